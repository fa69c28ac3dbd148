"""What it costs to profile every column of every output in the pass that writes them, and to do it afterwards instead.

The same project with `observe=True` on its tables runs with observing switched off and on, in turn. The job of its own
then profiles the largest table from its files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import shape
import ways
from measure import Cost, Record, best, cost_of

from anabranch import read
from anabranch.engine.observe import SWITCH
from anabranch.engine.observe_offline import Asked, profile_table
from anabranch.engine.run import run
from anabranch.store.history import History
from anabranch.store.profiles import profiles_of

if TYPE_CHECKING:
    from cases import Bench

CASE = "3 outputs, 15 columns profiled"
OBSERVED = "ours, observed"
OFFLINE = "anabranch profile, the largest table"
ROUNDS = 3


def observers(bench: Bench) -> Iterator[Record]:
    """Three outputs, without and with their columns observed; then one of them by a job."""
    few = shape.event_files("events-1000", 1000, 1)
    tasks = {way: bench.task(shape.routed(3), few) for way in (ways.OURS, OBSERVED)}
    costs: dict[str, list[Cost]] = {way: [] for way in tasks}
    for turn in range(ROUNDS + 1):
        for way, task in tasks.items():
            if turn:
                task.land(bench.events, turn)
            cost = cost_of(lambda way=way, task=task: _run(task, observed=way == OBSERVED))  # type: ignore[misc]
            if turn:
                costs[way].append(cost)
                bench.say(f"round {turn}: {CASE}: {way}: {cost.cpu_s:.2f} CPU-s, {cost.wall_s:.2f} s")
    for way, task in tasks.items():
        _check(task, observed=way == OBSERVED, rows=1000 + ROUNDS * bench.count)
        yield best(CASE, way, 3, bench.count, costs[way])
    job = cost_of(lambda: profile_table(tasks[ways.OURS].scratch, "request_logs", Asked(), lambda _: None))
    yield best(CASE, OFFLINE, 1, 1000 + ROUNDS * bench.count, [job])
    for task in tasks.values():
        shutil.rmtree(task.scratch)


def _run(task: ways.Task, *, observed: bool) -> None:
    os.environ[SWITCH] = "on" if observed else "off"
    run(ways.project(task, "@dp.table(observe=True)"), once=True, listener=lambda _: None)


def _check(task: ways.Task, *, observed: bool, rows: int) -> None:
    """Refuse figures of runs that did not write, or did not look at, all rows."""
    found = read.cut(task.scratch).arrow("request_logs").num_rows
    storage = ways.project(task, "@dp.table(observe=True)").storage
    seen = sum(one.profile.rows for one in profiles_of(History.of(storage), "request_logs"))
    if found != rows or seen != (rows if observed else 0):
        raise AssertionError(f"{rows:,} rows came in, {found:,} were written and {seen:,} looked at")
