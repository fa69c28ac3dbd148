"""A receiver of spans: a real HTTP server in a thread that takes OpenTelemetry's protobuf, or answers as it is told."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from typing import Any

from http_listener import Listener, QuietHandler
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass
class Collector(Listener):
    """`answer` is a status, or "hang": no answer while the collector lives."""

    answer: Any = 200
    paths: list[str] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)

    def handler(self) -> type[QuietHandler]:
        return _handler(self)

    @property
    def url(self) -> str:
        return self.address

    @property
    def spans(self) -> list[Any]:
        return [s for r in self.requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]


def _handler(collector: Collector) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if collector.answer == "hang":
                collector.over.wait()
                return
            if collector.answer == 200:
                collector.paths.append(self.path)
                collector.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(collector.answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

    return Handler
