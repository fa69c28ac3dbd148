"""A receiver of webhooks: a real HTTP server in a thread that answers as it is told and remembers what it was sent."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from http_listener import Listener, QuietHandler


@dataclass
class Receiver(Listener):
    """`answers` are used up one by one; without any, requests are taken.

    An answer is a status, a status with headers, "hang" (no answer while the receiver lives), "drip" (a byte now and
    then) or "lost" (the rows are taken, and the connection is closed without a word).
    """

    answers: list[Any] = field(default_factory=list)
    always: Any = 200
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    taken: dict[str, dict[str, Any]] = field(default_factory=dict)  # by key: what a receiver that looks at keys keeps

    def handler(self) -> type[QuietHandler]:
        return _handler(self)

    @property
    def url(self) -> str:
        return f"{self.address}/hook?team=ops"

    @property
    def keys(self) -> Counter[str]:
        return Counter(headers["Idempotency-Key"] for _, headers, _ in self.requests)

    @property
    def ids(self) -> list[int]:
        """The ids of the rows that were taken, in their order, each key once."""
        return [row["id"] for body in self.taken.values() for row in body["rows"]]


def _handler(receiver: Receiver) -> type[QuietHandler]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            receiver.requests.append((self.path, dict(self.headers), body))
            said = receiver.answers.pop(0) if receiver.answers else receiver.always
            status, headers = said if isinstance(said, tuple) else (said, {})
            if status == "hang":
                receiver.over.wait()
                return
            if status == "lost" or status == 200:
                receiver.taken.setdefault(self.headers["Idempotency-Key"], body)
            if status == "lost":
                return
            if status == "drip":
                while not receiver.over.wait(0.05):
                    try:
                        self.wfile.write(b"H")
                    except OSError:
                        return
                return
            text = headers.get("body", "ok").encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(text))}.items():
                if name != "body":
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_PUT = do_POST

    return Handler
