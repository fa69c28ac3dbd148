"""Spans for OpenTelemetry: a trace for each epoch, with a span for each of its steps and for each sink that took it.

Nothing is measured here. An event tells how long each step took, and the steps follow each other without a gap, so
their beginnings are counted back from the moment when the epoch was published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from anabranch.core.event_words import sentence
from anabranch.core.events import EpochPublished, Event
from anabranch.core.hidden import hide
from anabranch.load.watch_spec import SpanTarget
from anabranch.watch.beside import Complain
from anabranch.watch.version import version

#: How long a collector is waited for, in seconds, with all tries.
TIMEOUT = 3.0
#: A collector that did not take spans is left alone for this long, in seconds.
_TRY_AGAIN = 10.0
#: In the order an epoch goes through them; others come after these.
STEPS = ("read", "stage", "decide", "apply", "publish")
#: Spans that may wait for a collector that does not take them.
MOST_WAITING = 2_000


class Spans:
    """The watcher that makes spans."""

    def __init__(self, pipeline: str, service: str, exporter: SpanExporter, complain: Complain, to: str) -> None:
        self._pipeline, self._exporter, self._complain, self._to = pipeline, exporter, complain, to
        self._done = _Done()
        resource = Resource.create({"service.name": service, "service.version": version()})
        provider = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
        provider.add_span_processor(self._done)
        self._tracer = provider.get_tracer("anabranch", version())
        self._run: trace.Span | None = None
        self._lost, self._not_before = 0, 0.0

    def begin(self, at: float) -> None:
        """Begin the span of the run."""
        said = {"anabranch.pipeline": self._pipeline}
        self._run = self._tracer.start_span("run", Context(), attributes=said, start_time=_nanoseconds(at))

    def take(self, at: float, event: Event) -> None:
        """An epoch becomes a trace; what went wrong is noted in the span of the run."""
        if isinstance(event, EpochPublished):
            self._epoch(at, event)
            self._export()
        elif event.level != "info" and self._run:
            text = {"message": hide(sentence(event))}
            self._run.add_event(event.kind, text, timestamp=_nanoseconds(at))

    def end(self, at: float, error: BaseException | None, patience: float) -> None:
        """End the span of the run."""
        try:
            if self._run:
                if error is not None:
                    self._run.set_status(trace.StatusCode.ERROR, hide(f"{type(error).__name__}: {error}"))
                self._run.end(_nanoseconds(at))
            self._not_before = 0.0
            self._export()
        finally:
            self._exporter.shutdown()

    def lost(self) -> int:
        """Spans that no collector took."""
        return self._lost + len(self._done.spans)

    def _epoch(self, at: float, event: EpochPublished) -> None:
        steps = sorted(event.times, key=lambda step: STEPS.index(step) if step in STEPS else len(STEPS))
        began = at - sum(event.times.values())
        links = [trace.Link(self._run.get_span_context())] if self._run else []
        said: dict[str, Any] = {
            "anabranch.pipeline": self._pipeline,
            "anabranch.channel": event.channel,
            "anabranch.generation": event.generation,
            "anabranch.epoch": event.epoch,
        }
        more = {"anabranch.rows": sum(event.rows.values()), "anabranch.window_seconds": event.window}
        root = self._tracer.start_span(
            "epoch", Context(), attributes={**said, **more}, links=links, start_time=_nanoseconds(began)
        )
        inside, moment = trace.set_span_in_context(root, Context()), began
        for step in steps:
            span = self._span(step, inside, said, moment, moment + event.times[step])
            for sink, (first, last) in event.applied.items() if step == "apply" else ():
                of = {**said, "anabranch.sink": sink, "anabranch.rows": event.rows.get(sink, 0)}
                end = min(moment + last, moment + event.times[step])
                self._span("apply sink", trace.set_span_in_context(span, Context()), of, moment + first, end)
            moment += event.times[step]
        root.end(_nanoseconds(at))

    def _span(self, name: str, inside: Context, said: Mapping[str, Any], began: float, end: float) -> trace.Span:
        span = self._tracer.start_span(name, inside, attributes=said, start_time=_nanoseconds(began))
        span.end(_nanoseconds(max(began, end)))
        return span

    def _export(self) -> None:
        """Send what is done. What a collector does not take is tried again later, with what came meanwhile."""
        spans = self._done.spans
        while len(spans) > MOST_WAITING:
            spans.pop(0)
            self._lost += 1
        if not spans or time.monotonic() < self._not_before:
            return
        if self._exporter.export(tuple(spans)) is SpanExportResult.SUCCESS:
            spans.clear()
        else:
            self._not_before = time.monotonic() + _TRY_AGAIN
            self._complain(f"{self._to} did not take them")


class _Done(SpanProcessor):
    """Keeps spans that have ended; those of an epoch are sent together."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


def exporter_to(target: SpanTarget) -> SpanExporter:
    """Sends spans to a collector, in protobuf over HTTP."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # What it has to say of a collector that does not answer is told as an event, once.
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())
    return OTLPSpanExporter(endpoint=target.endpoint, timeout=TIMEOUT)


def _nanoseconds(at: float) -> int:
    return int(at * 1_000_000_000)
