"""What a piece of work costs: CPU-seconds of this process and all its descendants, wall time, peak memory.

A process that has ended is in the figures of the parent that waited for it, so work done by short-lived workers is not
lost; nor is that of one whose parent died first, after `adopt_orphans`. Figures come in ticks of 10 ms.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import psutil

#: How often memory is looked at. What the looking costs is known, and taken off.
LOOK_SECONDS = 0.1

ROLES = ("driver", "jvm", "workers")


#: Of Linux: from now on a descendant whose parent dies becomes a child of this process.
_SUBREAPER = 36


def adopt_orphans() -> None:
    """Count also what outlives its parent, as the JVM does that `spark-pipelines` starts by way of Python."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)


@dataclass
class Cost:
    """What one piece of work took; filled in when it is over. Memory is resident, in MB.

    `peak_mb` is that of the whole tree, where pages that forked workers share are counted in each of them; `worker_mb`
    is the largest single Python worker, `jvm_mb` the JVM.
    """

    wall_s: float = 0.0
    cpu: dict[str, float] = field(default_factory=lambda: dict.fromkeys(ROLES, 0.0))
    peak_mb: float = 0.0
    worker_mb: float = 0.0
    jvm_mb: float = 0.0

    @property
    def cpu_s(self) -> float:
        """CPU-seconds of the whole tree."""
        return sum(self.cpu.values())

    def shared(self, times: int) -> Cost:
        """The cost of one, if this is that of `times` equal pieces of work."""
        return replace(self, wall_s=self.wall_s / times, cpu={role: s / times for role, s in self.cpu.items()})


@dataclass(frozen=True)
class Record:
    """One line of the results: the best of some rounds of one way in one case."""

    case: str
    way: str
    outputs: int
    events: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    worker_mb: float = 0.0
    jvm_mb: float = 0.0
    cpu: dict[str, float] = field(default_factory=dict)
    rounds: int = 1
    chosen: str = "minimum"

    def as_json(self) -> dict[str, Any]:
        """The record as it is written down."""
        return asdict(self)


def best(case: str, way: str, outputs: int, events: int, costs: Iterable[Cost]) -> Record:
    """The least CPU and the least wall time among the rounds, and the most memory."""
    rounds = list(costs)
    least = min(rounds, key=lambda c: c.cpu_s)
    return Record(
        case,
        way,
        outputs,
        events,
        cpu_s=round(least.cpu_s, 3),
        wall_s=round(min(c.wall_s for c in rounds), 3),
        peak_mb=round(max(c.peak_mb for c in rounds), 1),
        worker_mb=round(max(c.worker_mb for c in rounds), 1),
        jvm_mb=round(max(c.jvm_mb for c in rounds), 1),
        cpu={role: round(seconds, 3) for role, seconds in least.cpu.items()},
        rounds=len(rounds),
    )


@dataclass(frozen=True)
class Seen:
    """A process at some moment: its own CPU-seconds, and those of its children that ended and were waited for."""

    role: str
    parent: int
    own: float
    ended: float


Tree = dict[psutil.Process, Seen]


def look() -> Tree:
    """This process and all its descendants."""
    found: Tree = {}
    for role, process in _tree():
        try:
            times, parent = process.cpu_times(), process.ppid()
        except psutil.NoSuchProcess:
            continue
        own, ended = times.user + times.system, times.children_user + times.children_system
        found[process] = Seen(role, parent, own, ended)
    return found


def cpu_between(before: Tree, after: Tree) -> dict[str, float]:
    """CPU-seconds spent between two looks, by role.

    What a process that ended in between had spent before arrives with its parent now, and is taken off there; but not
    every parent waits for its children, so no more is taken off than has arrived.
    """
    alive = {process.pid for process in after}
    parents = {process.pid: seen.parent for process, seen in before.items()}
    old: dict[int, float] = {}  # living process -> what its descendants that ended had spent before
    for process, seen in before.items():
        if process not in after:
            pid = seen.parent
            while pid not in alive and pid in parents:
                pid = parents[pid]
            old[pid] = old.get(pid, 0.0) + seen.own + seen.ended
    spent = dict.fromkeys(ROLES, 0.0)
    for process, seen in after.items():
        first = before.get(process, Seen(seen.role, seen.parent, 0.0, 0.0))
        spent[first.role] += seen.own - first.own
        arrived = max(0.0, seen.ended - first.ended - old.get(process.pid, 0.0))
        # Children of a JVM are Python workers; of others we cannot know.
        spent["workers" if first.role == "jvm" else first.role] += arrived
    return spent


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure what is done inside; the figures are there afterwards."""
    cost = Cost()
    over = threading.Event()
    looking = [0.0]

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            _look_at_memory(cost)
            looking[0] = time.thread_time()

    watcher = threading.Thread(target=watch, name="memory", daemon=True)
    before, started = look(), time.perf_counter()
    watcher.start()
    try:
        yield cost
    finally:
        cost.wall_s = time.perf_counter() - started
        over.set()
        watcher.join()
        cost.cpu = cpu_between(before, look())
        _look_at_memory(cost)
        cost.cpu["driver"] = max(0.0, cost.cpu["driver"] - looking[0])


def cost_of(work: Callable[[], object]) -> Cost:
    """What a call costs."""
    with measured() as cost:
        work()
    return cost


def _tree() -> list[tuple[str, psutil.Process]]:
    top = psutil.Process()
    return [("driver", top), *((_role(p), p) for p in top.children(recursive=True))]


def _role(process: psutil.Process) -> str:
    """By the program it runs: its name may be that of the thread it was forked from."""
    try:
        return "jvm" if os.path.basename(process.exe()) == "java" else "workers"
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return "workers"


def _look_at_memory(cost: Cost) -> None:
    total = 0.0
    tree = _tree()
    jvms = {process.pid for role, process in tree if role == "jvm"}
    for role, process in tree:
        try:
            if role == "jvm" and process.ppid() in jvms:
                continue  # a JVM that has forked to start a program, and is for a moment seen twice
            size = process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            continue
        total += size
        if role == "workers":
            cost.worker_mb = max(cost.worker_mb, size)
        elif role == "jvm":
            cost.jvm_mb = max(cost.jvm_mb, size)
    cost.peak_mb = max(cost.peak_mb, total)
