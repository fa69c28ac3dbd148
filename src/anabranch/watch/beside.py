"""Watchers of a run, each in a thread of its own: a run at work never waits for one and never fails of one.

This is the one boundary. Events wait in a bounded queue; whatever a watcher raises is told once, as an event, and what
it could not take is counted and told at the end.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from anabranch.core.events import Event, Listener, NotSent

#: Events that may wait for a watcher.
MOST_WAITING = 5_000
#: How long the start of a run waits for watchers to be made, in seconds. They import libraries then, and while files of
#: the project are run, one that is called `requests` would be taken for the library.
MAKING = 3.0
#: How long the end of a run waits for a watcher to be done, in seconds.
PATIENCE = 5.0
#: Of that, what a watcher leaves for the rest, in seconds.
_A_MOMENT = 0.2


class Watcher(Protocol):
    """Takes the events of one run, in their order, from one thread; may raise whatever it likes.

    `at` is when something happened, in seconds since 1970.
    """

    def begin(self, at: float) -> None:
        """The run begins."""

    def take(self, at: float, event: Event) -> None:
        """Something happened."""

    def end(self, at: float, error: BaseException | None, patience: float) -> None:
        """The run ended, with an error or well; what is left is to be done within `patience` seconds."""

    def lost(self) -> int:
        """What this watcher has counted as lost without raising."""


#: Called with what went wrong, as often as it does; only the first is told.
Complain = Callable[[BaseException | str], None]


class Beside:
    """A watcher at work beside a run. `put` may be called from any thread, and takes microseconds."""

    def __init__(self, name: str, make: Callable[[Complain], Watcher], listener: Listener) -> None:
        """`make` is called in the watcher's thread: it may import, look up secrets and open files."""
        self.name, self._make, self._listener = name, make, listener
        self._waiting: deque[tuple[float, Event]] = deque()
        self._lock = threading.Lock()
        self._some, self._given_up, self._made = threading.Event(), threading.Event(), threading.Event()
        self._end: tuple[float, BaseException | None, float] | None = None
        self._lost, self._told, self._began = 0, False, time.time()
        self._watcher: Watcher | None = None
        self._thread = threading.Thread(target=self._work, name=f"anabranch-{name}", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Have an event taken."""
        with self._lock:
            self._waiting.append((time.time(), event))
            if len(self._waiting) > MOST_WAITING:
                self._waiting.popleft()
                self._lost += 1
        self._some.set()

    def wait_until_made(self, until: float) -> None:
        """Wait for `make`, whether it fails or not, until then on the monotonic clock."""
        self._made.wait(max(0.0, until - time.monotonic()))

    def end(self, error: BaseException | None, until: float) -> None:
        """Say that the run has ended; what is left is to be done `until` then, on the monotonic clock."""
        self._end = (time.time(), error, until)
        self._some.set()

    def wait(self, until: float) -> None:
        """Wait for what is left after `end`, and tell what was lost."""
        self._thread.join(max(0.0, until - time.monotonic()))
        self._given_up.set()
        with self._lock:
            lost = self._lost + len(self._waiting) + (self._watcher.lost() if self._watcher else 0)
        if lost:
            self._listener(NotSent(self.name, f"{lost:,} could not be sent", lost))

    def complain(self, error: BaseException | str) -> None:
        """Tell why something could not be sent; only the first time."""
        if not self._told:
            self._told = True
            why = error if isinstance(error, str) else _reason(error)
            self._listener(NotSent(self.name, f"cannot be sent, the run goes on: {why}"))

    def _work(self) -> None:
        try:
            self._watcher = watcher = self._make(self.complain)
        except Exception as error:  # noqa: BLE001 - the boundary
            self.complain(error)
            return
        finally:
            self._made.set()
        self._guarded(lambda: watcher.begin(self._began))
        while not self._given_up.is_set():
            if found := self._next():
                self._guarded(partial(watcher.take, *found))
            elif self._end is not None:
                at, failure, until = self._end
                patience = max(0.0, until - time.monotonic() - _A_MOMENT)
                self._guarded(partial(watcher.end, at, failure, patience))
                return
            else:
                self._some.wait()
                self._some.clear()

    def _next(self) -> tuple[float, Event] | None:
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the boundary: whatever it is, it must not end a run
            with self._lock:
                self._lost += 1
            self.complain(error)


def _reason(error: BaseException) -> str:
    """What went wrong, in words."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"
