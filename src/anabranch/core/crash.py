"""Named crash points: places where a test can make the process die, stop or fail.

`point("decided")` does nothing unless the variable `ANABRANCH_CRASH` names that point. Its value is a list, separated
by commas, of `NAME[(SUBJECT)][:ACTION][@HIT]`: at the HIT-th time (default the first) that point NAME is passed, for
SUBJECT if one is given, ACTION happens. The subject is the sink where a point is passed once per sink.

    kill     SIGKILL to this process (the default)
    hang     this thread never goes on, so that others can be killed in a known state
    stop     SIGSTOP to this process, as a long pause of the machine would
    raise    an exception, as if the step had failed
    enospc   OSError: no space left on device
    eio      OSError: input/output error

Hits are counted per process and entry.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter

VARIABLE = "ANABRANCH_CRASH"

#: Every point, in the order an epoch passes them. Those after `published` are passed by recovery and upkeep.
POINTS = (
    "read",  # offsets are fixed, nothing is staged
    "staging",  # a staged file is half written (in a worker, or in the driver for small batches)
    "staged",  # every staged file is durable, nothing is decided
    "deciding",  # inside the deciding transaction, before it commits
    "decided",  # the epoch record is durable, nothing is applied
    "applying",  # before one sink's commit; passed once per sink
    "committed",  # one sink's commit is done, its answer not yet recorded; once per sink
    "applied",  # one sink's version is in the ledger; once per sink
    "publishing",  # inside the publishing transaction, before it commits
    "published",  # the cut has moved, Spark's commit log has not
    "recovering",  # recovery found a decided epoch, before it goes on
    "discarding",  # before one leftover file is removed
    "recovered",  # recovery is done, the run has not begun
)

_hits: Counter[str] = Counter()
_lock = threading.Lock()


class CrashPointError(RuntimeError):
    """Raised by the action `raise`; never seen outside tests."""


def point(name: str, subject: str = "") -> None:
    """Pass the crash point `name`, for `subject`.

    >>> point("decided")
    """
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    for entry in wanted.split(","):
        target, _, at = entry.strip().partition("@")
        target, _, action = target.partition(":")
        if target not in (name, f"{name}({subject})"):
            continue
        with _lock:
            _hits[entry] += 1
            hit = _hits[entry]
        if hit == int(at or "1"):
            _act(action or "kill", name)


def _act(action: str, name: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action == "hang":
        threading.Event().wait()
    elif action == "raise":
        raise CrashPointError(f"crash point {name}")
    elif action in ("enospc", "eio"):
        number = errno.ENOSPC if action == "enospc" else errno.EIO
        raise OSError(number, os.strerror(number), f"crash point {name}")
    else:
        raise ValueError(f"{VARIABLE}: unknown action {action!r} for point {name!r}")
