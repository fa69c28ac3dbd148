"""What receivers in tests share: a real HTTP server in a thread, at a free port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass
class Listener:
    """Listens while a block runs; `over` is set at its end, for answers that are never given."""

    over: threading.Event = field(default_factory=threading.Event, kw_only=True)

    def handler(self) -> type[QuietHandler]:
        """What answers."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"


@contextlib.contextmanager
def nobody() -> Iterator[str]:
    """An address where nobody listens; its port is held, so that nobody comes to listen there meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


class QuietHandler(BaseHTTPRequestHandler):
    """Answers without a word on the terminal."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 its name there
        """Say nothing."""
