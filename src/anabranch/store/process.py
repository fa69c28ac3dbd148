"""Which process did something, and whether it is still there."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, told apart from one that later got the same pid, and from one in another container."""

    host: str
    boot: str
    pid: int
    started: str

    def is_gone(self) -> bool:
        """Whether this process is known to have ended. Of another machine nothing is known."""
        return self.is_here() and self.started != _started(self.pid)

    def is_here(self) -> bool:
        """Whether it is, or was, a process that this one can see."""
        here = this_process()
        return bool(here.boot) and (self.host, self.boot) == (here.host, here.boot)


def this_process() -> Holder:
    """The holder that this process is.

    >>> this_process().is_gone()
    False
    """
    return Holder(socket.gethostname(), _boot(), os.getpid(), _started(os.getpid()))


def _boot() -> str:
    """This boot of this machine and this space of pids, or "" where that cannot be told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process started, in the kernel's ticks; "" when there is none, or only its unburied remains."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    state, *rest = stat.rpartition(")")[2].split()  # the name before it may hold blanks and brackets
    return "" if state in "ZX" else rest[18]
