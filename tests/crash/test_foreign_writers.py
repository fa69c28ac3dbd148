"""Others write to the same tables: their rows stay, ours are there once. And epochs that have nothing to write."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable

import pytest
from crash_foreign import all_of_it, append, optimize, vacuum, vacuum_all
from crash_harness import Lake, reading
from crash_model import TABLES, compare

from anabranch import read
from anabranch.errors import StateError

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]


ACTS: dict[str, Callable[[Lake, str, str], None]] = {
    "append": append,
    "optimize": optimize,
    "vacuum": vacuum,
    "all of it": all_of_it,
}


def _foreign(lake: Lake) -> dict[str, int]:
    return {
        table: compare(lake.rows(table), lake.model.expected(table)).foreign.total()
        for table in TABLES
        if lake.table(table).exists()
    }


@pytest.mark.parametrize("act", ACTS)
def test_between_epochs(act: str, lake: Lake) -> None:
    with reading(lake):
        for number in range(3):
            lake.land()
            lake.finish()
            for table in TABLES:
                ACTS[act](lake, table, str(number))
            lake.land()
            lake.finish()
    assert _foreign(lake) == dict.fromkeys(TABLES, 3 if act in ("append", "all of it") else 0)


@pytest.mark.parametrize("point", ["staged", "decided", "applying", "committed", "applied", "published"])
def test_inside_an_epoch(point: str, lake: Lake) -> None:
    """The process pauses at a point, others write, it goes on; then the same with a kill in place of going on."""
    lake.land()
    lake.finish()
    with reading(lake):
        for number, wake in enumerate((signal.SIGCONT, signal.SIGKILL)):
            lake.land(2)
            child = lake.start(crash=f"{point}:stop")
            child.until_stopped()
            for table in TABLES:
                all_of_it(lake, table, str(number))
            child.signal(wake)
            ended = child.wait()
            assert ended.killed if wake == signal.SIGKILL else ended.code == 0, ended
            lake.finish()
    assert _foreign(lake) == dict.fromkeys(TABLES, 2)


def test_a_vacuum_that_spares_nothing_takes_staged_files(lake: Lake) -> None:
    """Somebody switched Delta's safety off while a decided epoch was waiting: what is gone is staged again."""
    lake.land(2)
    lake.die("decided")
    for table in TABLES:
        vacuum_all(lake, table)
    assert lake.leftovers() == []
    ended = lake.finish()
    assert [e["sinks"] for e in ended.events("epoch_restaged")] == [sorted(TABLES)]


def test_a_vacuum_that_spares_nothing_takes_the_cut(lake: Lake) -> None:
    """The pinned versions are gone: that is told, and the next epoch is whole again."""
    lake.land(2)
    lake.finish()
    for table in TABLES:
        optimize(lake, table, "")
        vacuum_all(lake, table)
    with pytest.raises(StateError) as gone:
        read.cut(lake.folder).arrow("everything")
    assert gone.value.code == "VERSION_GONE"
    assert gone.value.hint
    lake.land()
    lake.finish()


def test_epochs_without_rows(lake: Lake) -> None:
    """An empty file is an epoch all the same: the cut moves, and no table gets a commit."""
    with reading(lake):
        lake.land(2, events=0)
        lake.finish()
        assert [lake.rows(table) for table in TABLES] == [Counter()] * 3
        lake.land()
        lake.land(2, events=0)
        lake.land(events=1)  # not every table gets something
        lake.finish()
    versions = {epoch: {t: a.version for t, a in record.applied.items()} for epoch, record in lake.epochs().items()}
    assert versions[0] == versions[1] == dict.fromkeys(TABLES, "0")
    assert versions[2] == versions[3] == versions[4] == dict.fromkeys(TABLES, "1")


@pytest.mark.parametrize("point", ["read", "staged", "deciding", "decided", "applying", "applied", "publishing"])
def test_killed_in_an_epoch_without_rows(point: str, lake: Lake) -> None:
    lake.land(events=0)
    lake.die(point)
    lake.land()
    lake.finish()
