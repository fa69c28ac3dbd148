"""How OpenLineage events are taken to where they are told: a file of JSON lines, or an address."""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.connectors.http_post import NoAnswerError, post
from anabranch.core.secrets import reveal
from anabranch.load.watch_spec import LineageTarget
from anabranch.watch.beside import Complain
from anabranch.watch.open_lineage import Transport

#: Events that may wait to be sent.
MOST_WAITING = 1_000
#: How long an answer is waited for, in seconds.
TIMEOUT = 5.0
#: The least and the longest wait after a failure, in seconds.
_LEAST, _LONGEST = 0.5, 30.0

#: How often the last events are tried, at the end of a run.
_TRIES = 3


def transport_of(target: LineageTarget, complain: Complain) -> Transport:
    """The way to a target; `complain` is called with what goes wrong in the background."""
    if target.file is not None:
        return FileTransport(target.file, complain)
    assert target.url is not None, "checked when the project file was read"
    token = reveal(target.token) if target.token else None
    return HttpTransport(target.url, token, complain)


class FileTransport:
    """Appends a line for each event, in one write, so that several runs may use one file."""

    def __init__(self, path: Path, complain: Complain) -> None:
        self._path, self._complain = path, complain
        self._torn, self._lost = False, 0
        path.parent.mkdir(parents=True, exist_ok=True)

    def send(self, document: Mapping[str, Any]) -> None:
        """Append an event; a line that was torn by a full disk is ended first."""
        line = ("\n" if self._torn else "") + json.dumps(document, ensure_ascii=False) + "\n"
        try:
            self._append(line.encode(errors="replace"))
        except OSError as error:
            self._lost += 1
            self._complain(error)

    def close(self, patience: float) -> None:
        """Nothing is left."""

    def lost(self) -> int:
        """Events that could not be written."""
        return self._lost

    def _append(self, content: bytes) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.write(file, content)
        finally:
            os.close(file)
        self._torn = written < len(content)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))


class HttpTransport:
    """Posts events from a thread of its own, in their order.

    One that the server cannot take now is tried again, after longer and longer waits; when too many wait, the oldest
    are given up. One that it refuses is given up at once.
    """

    def __init__(self, url: str, token: str | None, complain: Complain) -> None:
        self._url, self._token, self._complain = url, token, complain
        self._waiting: deque[Mapping[str, Any]] = deque()
        self._lock, self._some = threading.Lock(), threading.Event()
        self._closing, self._given_up = threading.Event(), threading.Event()
        self._lost = 0
        self._until = float("inf")  # on the monotonic clock: when to give up what is left
        self._thread = threading.Thread(target=self._work, name="anabranch-open-lineage-http", daemon=True)
        self._thread.start()

    def send(self, document: Mapping[str, Any]) -> None:
        """Have an event sent."""
        with self._lock:
            self._waiting.append(document)
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
        self._some.set()

    def close(self, patience: float) -> None:
        """Wait for what is left, but not for long."""
        self._until = time.monotonic() + patience
        self._closing.set()
        self._some.set()
        self._thread.join(patience)
        self._given_up.set()

    def lost(self) -> int:
        """Events that were refused or given up, and after `close` those that are left."""
        with self._lock:
            return self._lost + (len(self._waiting) if self._closing.is_set() else 0)

    def _work(self) -> None:
        wait, tries = _LEAST, 0
        while not self._given_up.is_set():
            with self._lock:
                document = self._waiting[0] if self._waiting else None
            if document is None:
                if self._closing.is_set():
                    return
                self._some.wait()
                self._some.clear()
            elif self._posted(document):
                wait = _LEAST
                with self._lock:
                    if self._waiting and self._waiting[0] is document:  # or else it was given up meanwhile
                        self._waiting.popleft()
            elif self._closing.is_set():
                tries += 1
                if tries == _TRIES:
                    return
                self._given_up.wait(_LEAST)
            else:
                self._closing.wait(wait)
                wait = min(2 * wait, _LONGEST)

    def _posted(self, document: Mapping[str, Any]) -> bool:
        """Whether an event is done with: taken, or refused for good."""
        headers = {"Content-Type": "application/json", "User-Agent": "anabranch"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        try:
            body = json.dumps(document, ensure_ascii=False).encode(errors="replace")
            # Redirects are not followed: a token is for the server it was given for.
            answer = post(self._url, "POST", headers, body, max(0.1, min(TIMEOUT, self._until - time.monotonic())))
        except NoAnswerError as error:
            self._complain(f"{self._url}: {error}")
            return False
        except Exception as error:  # noqa: BLE001 - an event that cannot be sent at all; the next one may be
            self._complain(error)
            with self._lock:
                self._lost += 1
            return True
        if answer.is_taken:
            return True
        self._complain(f"{self._url} answered {answer.status}")
        with self._lock:
            self._lost += not answer.may_pass
        return not answer.may_pass
