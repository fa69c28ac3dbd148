"""Two processes and one channel: a sleeper that wakes after it was replaced, and starts at the same time."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import pytest
from crash_children import Child, race, wait_until
from crash_harness import Lake, reading
from crash_model import TABLES

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

#: Where a process can be paused with nothing locked.
PAUSES = ("recovered", "read", "staging", "staged", "decided", "applying", "committed", "applied", "published")

LEASE = 0.6


@pytest.fixture
def lake(new_lake: Callable[..., Lake]) -> Lake:
    """A project whose leases run out soon."""
    return new_lake(lease=LEASE)


@pytest.mark.parametrize("point", PAUSES)
def test_a_sleeper_that_was_replaced_writes_nothing(point: str, lake: Lake) -> None:
    """It pauses in its epoch until its lease has run out, another process takes over, then it wakes."""
    lake.land()
    lake.finish()
    with reading(lake):
        sleeper = lake.paused(point)
        token, _ = lake.lease_of()
        _take_over(lake)
        assert lake.eye.seen == lake.inputs - 1
        rows = {table: lake.rows(table) for table in TABLES}
        files = _files_named(lake, token)
        lake.land()  # something it would love to write
        sleeper.signal(signal.SIGCONT)
        sleeper.wait().refused("LOCK_LOST")
        assert sleeper.wait().code == 6
        assert rows == {table: lake.rows(table) for table in TABLES}
        assert files == _files_named(lake, token)
        assert lake.eye.look() == lake.inputs - 2
    lake.finish()


def test_a_sleeper_wakes_in_the_middle_of_its_successors_epoch(lake: Lake) -> None:
    """Both have the same decided epoch in hand; each table takes it once."""
    sleeper, successor = _both_paused(lake)
    sleeper.signal(signal.SIGCONT)
    sleeper.wait().refused("LOCK_LOST")
    successor.signal(signal.SIGCONT)
    assert successor.wait().code == 0
    lake.finish()


def test_a_sleeper_that_nobody_replaced_goes_on(lake: Lake) -> None:
    """Its lease has run out, but its token is still the highest: nothing was written behind its back."""
    lake.land(2)
    sleeper = lake.start(crash="decided:stop")
    sleeper.until_stopped()
    _, before = lake.lease_of()
    wait_until(lambda: before < time.time())
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait().code == 0
    lake.check_finished()


@pytest.mark.parametrize("times", range(4))
def test_two_starts_at_once(times: int, new_lake: Callable[..., Lake]) -> None:
    """The very first starts of a project: one makes the ledger and takes the lease, the other one is told who."""
    lake = new_lake()
    lake.land(2)
    for _ in range(2):
        winner, loser = race(lambda: lake.start(crash="recovered:stop"))
        ended = loser.wait()
        ended.refused("LOCK_HELD")
        assert ended.code == 6
        assert ended.error["details"]["pid"] == winner.pid
        winner.signal(signal.SIGCONT)
        assert winner.wait().code == 0
        lake.check_finished()
        lake.land()
    lake.finish()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("point", ["read", "decided", "applied"])
def test_a_signal_in_the_middle_of_an_epoch(number: int, code: int, point: str, new_lake: Callable[..., Lake]) -> None:
    """The epoch in hand is finished, no other is begun."""
    lake = new_lake()
    lake.land(30, events=1)
    child = lake.start("run", "--follow", crash=f"{point}:stop")
    child.until_stopped()
    child.signal(number)
    child.signal(signal.SIGCONT)
    ended = child.wait()
    assert ended.code == code, ended
    assert lake.eye.look() < 29, "it went on as if nobody had asked"
    assert all(record.state == "published" for record in lake.epochs().values())
    lake.finish()


def test_following(new_lake: Callable[..., Lake]) -> None:
    """It takes up files as they come, for as long as nobody stops it."""
    lake = new_lake()
    lake.land()
    with reading(lake):
        child = lake.start("run", "--follow")
        for _ in range(3):
            child.until(lambda: lake.published() == lake.inputs - 1)
            lake.land()
        child.until(lambda: lake.published() == lake.inputs - 1)
        child.signal(signal.SIGTERM)
        assert child.wait().code == 0
    lake.check_finished()


def _take_over(lake: Lake) -> None:
    """Run to the end as soon as the lease can be had."""
    while (ended := lake.run()).code == 6:
        ended.refused("LOCK_HELD")
    assert ended.code == 0, ended


def _both_paused(lake: Lake) -> tuple[Child, Child]:
    """A process in its epoch and one that took it over, paused with nothing locked."""
    while True:
        sleeper = lake.paused("applying")
        successor = _start_when_free(lake, "recovering:stop")
        if lake.ledger_is_free():
            return sleeper, successor
        successor.signal(signal.SIGCONT)
        assert successor.wait().code == 0
        sleeper.signal(signal.SIGCONT)
        sleeper.wait().refused("LOCK_LOST")


def _start_when_free(lake: Lake, crash: str) -> Child:
    """Start it as soon as the lease can be had, and wait for it to pause."""
    child = lake.start(crash=crash)
    wait_until(lambda: child.ended() or child.stopped())
    if not child.ended():
        return child
    child.wait().refused("LOCK_HELD")
    return _start_when_free(lake, crash)


def _files_named(lake: Lake, token: int) -> set[str]:
    """Files that a process with this token staged and that a commit names."""
    mine = re.compile(rf"ab-[0-9a-f]+-\d+-\d+-{token}-")
    return {add["path"] for table in TABLES for add in lake.actions(table, "add") if mine.search(add["path"])}
