"""One HTTP request with a body, within a time: certificates are checked, redirects are not followed."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

#: As much of an answer's text is looked at.
_ANSWER_BYTES = 2000

#: Answers that ask to come again: too slow, too early, too many.
_LATER = (408, 425, 429)


class NoAnswerError(Exception):
    """The other side was not reached, or gave no answer in time: it may have the request, or not."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `wait` is what its Retry-After asks for, in seconds."""

    status: int
    text: str
    wait: float | None = None

    @property
    def is_taken(self) -> bool:
        """Whether the other side has it."""
        return 200 <= self.status < 300

    @property
    def may_pass(self) -> bool:
        """Whether the same request may be taken later."""
        return self.status in _LATER or self.status >= 500


def post(url: str, method: str, headers: Mapping[str, str], body: bytes, seconds: float) -> Answer:
    """Send it, and wait so many seconds for all of the answer."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    connection: HTTPConnection
    if parts.scheme == "https":
        connection = HTTPSConnection(host, port, timeout=seconds, context=ssl.create_default_context())
    else:
        connection = HTTPConnection(host, port, timeout=seconds)
    # The connection's own limit is for each step; one that gives a byte now and then would never reach it.
    over = threading.Event()
    threading.Thread(target=_cut_after, args=[seconds, connection, over], daemon=True).start()
    try:
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        connection.request(method, path, body, dict(headers))
        return _answer(connection.getresponse())
    except (OSError, HTTPException) as error:
        raise NoAnswerError(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) from error
    finally:
        over.set()
        connection.close()


def _cut_after(seconds: float, connection: HTTPConnection, over: threading.Event) -> None:
    """Cut a connection that is not over by then; again and again, for one that is still being made cannot be cut."""
    while not over.wait(seconds):
        seconds = 0.05
        sock = connection.sock
        if sock is not None:
            with suppress(OSError):  # closed meanwhile
                sock.shutdown(socket.SHUT_RDWR)


def _answer(response: HTTPResponse) -> Answer:
    text = response.read(_ANSWER_BYTES).decode("utf-8", "replace")
    return Answer(response.status, text, retry_after(response.getheader("Retry-After")))


def retry_after(text: str | None) -> float | None:
    """The seconds that a header asks to wait; None where it says nothing sensible.

    >>> retry_after("120"), retry_after("Wed, 21 Oct 2015 07:28:00 GMT"), retry_after("soon"), retry_after(None)
    (120.0, 0.0, None, None)
    """
    if not text:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
