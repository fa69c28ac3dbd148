"""SIGKILL at every named point, in every state the outputs can be in, and again and again while recovering.

The command in a child process is the real one, but for Spark (see `driver.py`).
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from crash_harness import Lake, reading
from crash_model import TABLES

from anabranch.core.crash import POINTS

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

#: What must have happened before, for a start to pass the point at all.
BEFORE = {"recovering": "decided", "discarding": "staged"}

#: The points at which the epoch in hand is decided and not published: recovery has to finish it.
OPEN = (*POINTS[POINTS.index("decided") : POINTS.index("published")], "recovering")

#: The points that recovery passes when it finds an open epoch and a leftover file.
RECOVERY = ("recovering", "applying", "committed", "applied", "publishing", "published", "discarding", "recovered")


@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, lake: Lake) -> None:
    lake.land()
    lake.finish()
    lake.land(2)
    if point in BEFORE:
        lake.die(BEFORE[point])
    lake.die(point)
    assert lake.eye.seen == (1 if point == "published" else 0)
    staged = sorted(lake.storage.rglob("ab-*.parquet"))
    ended = lake.finish()
    assert [e["epoch"] for e in ended.events("epoch_recovered")] == ([1] if point in OPEN else [])
    if point in OPEN:
        assert set(staged) <= set(lake.storage.rglob("ab-*.parquet")), "what was decided is not computed again"


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_the_very_first_epoch(point: str, lake: Lake) -> None:
    lake.land()
    if point in BEFORE:
        lake.die(BEFORE[point])
    lake.die(point)
    lake.finish()


@pytest.mark.parametrize("first", ["untouched", "committed", "recorded"])
def test_killed_in_every_state_of_three_outputs(first: str, lake: Lake) -> None:
    """Each output has not taken the epoch, has taken it unknown to the ledger, or is recorded: all 27 states."""
    with reading(lake):
        for others in itertools.product(["untouched", "committed", "recorded"], repeat=2):
            lake.land()
            _kill_in_state(lake, dict(zip(TABLES, (first, *others), strict=True)))
            lake.land()
            lake.finish()


def _kill_in_state(lake: Lake, states: Mapping[str, str]) -> None:
    holds = {"untouched": "applying", "committed": "committed", "recorded": "applied"}
    epoch, before = lake.inputs - 1, {table: _commits(lake, table) for table in TABLES}
    child = lake.start(crash=",".join(f"{holds[state]}({table}):hang" for table, state in states.items()))
    taken = {table for table, state in states.items() if state != "untouched"}
    recorded = {table for table, state in states.items() if state == "recorded"}

    def reached() -> bool:
        if not all(_commits(lake, table) > before[table] for table in taken):
            return False
        record = lake.epochs().get(epoch)
        return record is not None and set(record.applied) == recorded

    child.until(lambda: lake.ledger_file.exists() and (lake.storage / "_anabranch" / "identity.json").exists())
    child.until(reached)
    assert child.kill().killed
    assert {table for table in TABLES if _commits(lake, table) > before[table]} == taken
    assert lake.eye.look() == epoch - 1


def _commits(lake: Lake, table: str) -> int:
    """Commits that added rows; making the table is none."""
    return max((int(p.stem) for p in (lake.table(table) / "_delta_log").glob("*.json")), default=0)


@pytest.mark.parametrize("first", RECOVERY)
def test_killed_three_deep_in_recovery(first: str, lake: Lake) -> None:
    """A crash in the recovery of a crash in the recovery of a crash in the recovery."""
    lake.land()
    lake.finish()
    for second in RECOVERY[RECOVERY.index(first) :]:
        if first == second == "published":
            continue  # what is published is not published again
        lake.land()
        lake.die("decided")
        _orphan(lake, "slow")
        for depth, point in enumerate((first, second, second if second != "published" else "recovered")):
            lake.die(_in_recovery(point, depth))
    lake.finish()


def _in_recovery(point: str, depth: int) -> str:
    """For points that are passed once per sink: a sink that no crash before has touched, and none of the later ones."""
    if point not in ("committed", "applied"):
        return point
    return ",".join([f"{point}({TABLES[depth]})", *(f"applying({later}):hang" for later in TABLES[depth + 1 :])])


def _orphan(lake: Lake, table: str) -> Path:
    """A file that a task attempt left behind whose task was tried again."""
    last = max(lake.table(table).glob("ab-*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    head, _, name = last.stem.rpartition("-")
    return Path(shutil.copy(last, last.with_name(f"{head}-{name[::-1]}.parquet")))
