"""Waiting for the time of the next slice, and ending between two slices when a signal asks for it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class Stopped(Exception):
    """A signal asked to stop, and no slice is half written."""


@dataclass(slots=True)
class Pace:
    """The first signal ends the waiting, or the next one if a slice is being written; a second one interrupts that."""

    asked: bool = False
    waiting: bool = False

    def wait(self, seconds: float) -> None:
        """Wait; `Stopped` if a signal came meanwhile or before."""
        self.waiting = True
        try:
            if self.asked:
                raise Stopped
            threading.Event().wait(seconds)
        finally:
            self.waiting = False

    def on_signal(self, *_: object) -> None:
        """Python calls this in the main thread, between two steps of whatever it does."""
        if self.waiting:
            raise Stopped
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def signals_stop() -> Iterator[Pace]:
    """While this lasts, Ctrl-C and SIGTERM ask to stop."""
    pace = Pace()
    before = {number: signal.signal(number, pace.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pace
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
