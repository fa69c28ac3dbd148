"""A receiver of webhooks: a real HTTP server in a thread that answers as it is told and remembers what it was sent."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """`answers` are used up one by one; without any, requests are taken.

    An answer is a status, a status with headers, "hang" (no answer while the receiver lives), "drip" (a byte now and
    then) or "lost" (the rows are taken, and the connection is closed without a word).
    """

    answers: list[Any] = field(default_factory=list)
    always: Any = 200
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    taken: dict[str, dict[str, Any]] = field(default_factory=dict)  # by key: what a receiver that looks at keys keeps
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Receiver:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook?team=ops"

    @property
    def keys(self) -> Counter[str]:
        return Counter(headers["Idempotency-Key"] for _, headers, _ in self.requests)

    @property
    def ids(self) -> list[int]:
        """The ids of the rows that were taken, in their order, each key once."""
        return [row["id"] for body in self.taken.values() for row in body["rows"]]


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
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

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 its name there
            """Say nothing."""

    return Handler
