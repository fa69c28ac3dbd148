"""Child processes: how they are waited for, stopped and killed, and what they said."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE = 240.0  # seconds after which a child that should have ended is taken to hang


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (minus the signal that killed it) and what it said."""

    code: int
    text: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def records(self) -> list[dict[str, Any]]:
        """The events of the run, and its error, as `--json` printed them."""
        found, at = [], 0
        while (at := self.text.find("{", at)) >= 0:
            try:
                record, at = json.JSONDecoder().raw_decode(self.text, at)
                found.append(record)
            except json.JSONDecodeError:  # a line that is no record, or was cut off by the kill
                at = max(at + 1, self.text.find("\n", at))
        return found

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [r for r in self.records if r.get("event") == kind]

    @property
    def error(self) -> dict[str, Any]:
        """The error the run ended with; empty when there is none."""
        found: dict[str, Any] = next((r["error"] for r in self.records if "error" in r), {})
        return found

    def refused(self, code: str) -> None:
        """Assert that the run ended with this error, and with a way out."""
        assert self.error.get("code") == code, self
        assert self.code == self.error["exit_code"] != 0, self
        assert self.error["hint"], self


@dataclass
class Child:
    """A running child process."""

    pid: int
    out: Path
    _join: Callable[[float], int | None]

    def wait(self, patience: float = PATIENCE) -> Ended:
        code = self._join(patience)
        if code is None:
            self.signal(signal.SIGKILL)
            raise AssertionError(f"the child hangs; it said:\n{self.out.read_text()}")
        return Ended(code, self.out.read_text(errors="replace"))

    def kill(self) -> Ended:
        self.signal(signal.SIGKILL)
        return self.wait()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self, within: float = 0.0) -> bool:
        """Whether it has ended, or does so soon."""
        return self._join(within) is not None

    def until_stopped(self) -> None:
        """Wait until the child is stopped by SIGSTOP."""
        self.until(self.stopped)

    def stopped(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except (FileNotFoundError, ProcessLookupError):
            return False

    def until(self, true: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Wait until a condition holds; the child must not end before that."""
        wait_until(true, patience, lambda: None if not self.ended() else self.out.read_text())


def wait_until(
    true: Callable[[], bool], patience: float = PATIENCE, failed: Callable[[], str | None] = lambda: None
) -> None:
    """Wait until a condition holds that nobody signals, such as the contents of a file."""
    deadline = time.monotonic() + patience
    while not true():
        reason = failed()
        assert reason is None, reason
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def race(start: Callable[[], Child]) -> tuple[Child, Child]:
    """Start two at once, both told to pause when they have recovered: the winner, paused, and the one that gave up."""
    both = [start(), start()]
    wait_until(lambda: any(child.ended() for child in both))
    [loser] = [child for child in both if child.ended()]
    [winner] = [child for child in both if child is not loser]
    winner.until_stopped()
    return winner, loser
