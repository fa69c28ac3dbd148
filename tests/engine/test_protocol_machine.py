"""The commit protocol, driven at random over in-memory sinks and a real SQLite ledger.

Everything but Spark is the product's own code. Spark is played by `World.run_batch`, which writes the offset log before
a batch and the commit log after it, and hands a batch in again when its commit is missing. The model of what must be
visible is one line of Python per output.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from anabranch.connectors.contract import Staging
from anabranch.core import crash
from anabranch.core.crash import CrashPointError
from anabranch.core.epoch import EpochKey
from anabranch.engine.checkpoint import Checkpoint
from anabranch.engine.epoch import ChannelRun
from anabranch.engine.recover import recover
from anabranch.engine.rows import Staged
from anabranch.errors import LockHeld
from anabranch.store.ledger import Ledger
from anabranch.store.records import OutputRecord
from memory_sink import MemorySink, MemoryTable

#: What each output takes of the source: the independent model.
OUTPUTS: dict[str, Callable[[int], bool]] = {
    "all": lambda n: True,
    "even": lambda n: n % 2 == 0,
    "rare": lambda n: n % 7 == 0,
}

#: Which of several; drawn before it is known how many there are, since sinks are applied in parallel.
PICK = st.integers(0, 99)

#: Points inside a ledger transaction: another process could only wait there.
IN_TRANSACTION = ("deciding", "publishing")


class World:
    """What outlives processes, and the faults that were asked for."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")  # nothing here tests the disk
        self.folder = Path(tempfile.mkdtemp(prefix="machine-", dir=memory if memory.is_dir() else None))
        self.ledger = Ledger.open(str(self.folder / "ledger.db"), create=True)
        self.pipeline = self.ledger.register("p", str(self.folder))
        self.tables = {name: MemoryTable() for name in OUTPUTS}
        self.outputs = [OutputRecord(name, "memory", name) for name in OUTPUTS]
        self.ledger.ensure_channel(self.pipeline.pipeline_id, "c", self.outputs)
        self.checkpoint = Checkpoint(self.folder / "checkpoint")
        for log in ("offsets", "commits"):
            (self.checkpoint.folder / log).mkdir(parents=True)
        self.source: list[int] = []
        self.fault: tuple[str, int, Callable[[], None]] | None = None

    def point(self, name: str, subject: str = "") -> None:
        """Stands in for `crash.point`: at the n-th pass of the chosen point the fault happens, once."""
        if self.fault and self.fault[0] == name:
            _, left, act = self.fault
            self.fault = (name, left - 1, act) if left > 1 else None
            if left == 1:
                act()

    def start(self) -> ChannelRun:
        """A process starts: it takes the lease, recovers, and checks the checkpoint."""
        lease = self.ledger.acquire(self.pipeline.pipeline_id, "c", seconds=0.0)
        sinks = {name: MemorySink(name, table) for name, table in self.tables.items()}
        recover(self.ledger, lease, sinks, lambda event: None)
        last = self.ledger.last(self.pipeline.pipeline_id, "c", 1)
        self.checkpoint.verify(EpochKey(self.pipeline.pipeline_id, "c", 1, 0), last)

        def stage(rows: list[int], stagings: Mapping[str, Staging], key: EpochKey, *, small: bool) -> Staged:
            chosen = {name: [r for r in rows if OUTPUTS[name](r)] for name in stagings}
            return Staged({n: [sinks[n].write(key, lease.token, kept)] if kept else [] for n, kept in chosen.items()})

        return ChannelRun(self.ledger, lease, 1, sinks, stage, self.checkpoint, lambda event: None)

    def run_batch(self, driver: ChannelRun) -> None:
        """Spark's part: the batch that is next by its logs, its offsets fixed before it and its commit after it."""
        offsets, commits = self.checkpoint.newest("offsets"), self.checkpoint.newest("commits")
        number = offsets if offsets is not None and commits != offsets else (-1 if offsets is None else offsets) + 1
        path = self.checkpoint.folder / "offsets" / str(number)
        if not path.exists():
            path.write_text(f"v1\n{{}}\n{len(self.source)}")
        start = int(self.checkpoint.offsets(number - 1) or 0) if number else 0
        driver.batch(self.source[start : int(self.checkpoint.offsets(number) or 0)], number)
        (self.checkpoint.folder / "commits" / str(number)).write_text("v1\n{}")

    def expected(self, name: str, epoch: int) -> Counter[int]:
        end = int(self.checkpoint.offsets(epoch) or 0)
        return Counter(n for n in self.source[:end] if OUTPUTS[name](n))

    def close(self) -> None:
        self.ledger.close()
        shutil.rmtree(self.folder)


class Protocol(RuleBasedStateMachine):
    """Ingest, epoch, crash, restart, zombie, foreign write, compaction, damage, reading: in any order."""

    @initialize()
    def begin(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.world = World()
        self.patch.setattr(crash, "point", self.world.point)
        self.driver: ChannelRun | None = None
        self.zombies: list[ChannelRun] = []
        self.seen = -1
        self.next_row = 0

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        try:
            self.world.fault = None
            self.ingest(3)
            self.restart()
            for _ in range(3):  # whatever was open, then what was just ingested
                self.epoch()
            cut = self.world.ledger.cut(self.world.pipeline.pipeline_id)
            assert cut.epochs["c"] == self.world.checkpoint.newest("offsets")
            for name, table in self.world.tables.items():
                ours = Counter(row for row in table.versions[-1] if row >= 0)
                assert ours == Counter(n for n in self.world.source if OUTPUTS[name](n))
            self.restart()  # leftovers of superseded attempts are gone after the next start
            assert all(not table.staged for table in self.world.tables.values())
        finally:
            self.patch.undo()
            self.world.close()

    @rule(rows=st.integers(0, 5))
    def ingest(self, rows: int) -> None:
        self.world.source += range(self.next_row, self.next_row + rows)
        self.next_row += rows

    @rule()
    def restart(self) -> None:
        """A new process; one that was running becomes a zombie that knows nothing of it."""
        if self.driver:
            self.zombies.append(self.driver)
        self.driver = None
        self.driver = self.world.start()

    @precondition(lambda self: self.driver)
    @rule()
    def epoch(self) -> None:
        assert self.driver
        self.world.run_batch(self.driver)

    @precondition(lambda self: self.driver)
    @rule(point=st.sampled_from(crash.POINTS), hit=st.integers(1, 3))
    def epoch_killed(self, point: str, hit: int) -> None:
        self._killed_at(point, hit, lambda: self.world.run_batch(self.driver))  # type: ignore[arg-type]

    @rule(point=st.sampled_from(crash.POINTS), hit=st.integers(1, 3))
    def restart_killed(self, point: str, hit: int) -> None:
        self.driver = None
        self._killed_at(point, hit, self.restart)

    @precondition(lambda self: self.driver)
    @rule(point=st.sampled_from([p for p in crash.POINTS if p not in IN_TRANSACTION]), hit=st.integers(1, 3))
    def epoch_taken_over(self, point: str, hit: int) -> None:
        """In the middle of an epoch this process pauses, another takes over and works, then this one wakes."""
        old, self.driver = self.driver, None
        assert old

        def take_over() -> None:
            self.driver = self.world.start()
            self.world.run_batch(self.driver)

        self.world.fault = (point, hit, take_over)
        try:
            self.world.run_batch(old)
        except LockHeld:
            assert self.driver, "refused without having been taken over"
        finally:
            self.world.fault = None
        self.driver, zombie = (self.driver, old) if self.driver else (old, None)
        self.zombies += [zombie] if zombie else []

    @precondition(lambda self: self.zombies)
    @rule(pick=PICK)
    def zombie_wakes(self, pick: int) -> None:
        zombie = self.zombies[pick % len(self.zombies)]
        before = {name: len(table.versions) for name, table in self.world.tables.items()}
        with contextlib.suppress(LockHeld):
            self.world.run_batch(zombie)
        assert before == {name: len(table.versions) for name, table in self.world.tables.items()}

    @rule(name=st.sampled_from(list(OUTPUTS)), row=st.integers(-9, -1))
    def foreign_write(self, name: str, row: int) -> None:
        self.world.tables[name].append([row])

    @rule(name=st.sampled_from(list(OUTPUTS)))
    def compact(self, name: str) -> None:
        table = self.world.tables[name]
        table.versions.append(tuple(sorted(table.versions[-1])))

    @precondition(lambda self: self.driver is None)
    @rule(pick=PICK)
    def damage_staged(self, pick: int) -> None:
        """While nothing runs, a staged file is torn."""
        staged = [(t, path) for t in self.world.tables.values() for path in sorted(t.staged)]
        if staged:
            table, path = staged[pick % len(staged)]
            table.staged[path] = ("torn",)

    @precondition(lambda self: self.driver)
    @rule(point=st.sampled_from(["decided", "applied"]), hit=st.integers(1, 2), pick=PICK)
    def decided_and_then_damaged(self, point: str, hit: int, pick: int) -> None:
        """The one way back: a receipt is decided, and what it names is torn before its sink takes it."""
        self.ingest(7)  # rows for every output
        self.epoch_killed(point, hit)
        if self.driver is None:
            self.damage_staged(pick)
            self.restart()

    @precondition(lambda self: self.driver is None)
    @rule()
    def lose_commit_log_entry(self) -> None:
        newest = self.world.checkpoint.newest("commits")
        if newest is not None:
            (self.world.checkpoint.folder / "commits" / str(newest)).unlink()

    @invariant()
    def the_cut_is_whole_and_never_goes_back(self) -> None:
        if not hasattr(self, "world"):
            return
        cut = self.world.ledger.cut(self.world.pipeline.pipeline_id)
        if "c" not in cut.epochs:
            assert self.seen == -1
            return
        epoch = cut.epochs["c"]
        assert epoch >= self.seen
        self.seen = epoch
        for name in OUTPUTS:
            rows = self.world.tables[name].versions[int(cut.tables[name].version)]
            assert Counter(r for r in rows if r >= 0) == self.world.expected(name, epoch)

    @invariant()
    def rows_of_others_stay(self) -> None:
        if hasattr(self, "world"):
            for table in self.world.tables.values():
                counts = [sum(row < 0 for row in version) for version in table.versions]
                assert counts == sorted(counts)

    def _killed_at(self, point: str, hit: int, work: Callable[[], Any]) -> None:
        def die() -> None:
            raise CrashPointError(point)

        self.world.fault = (point, hit, die)
        try:
            work()
        except CrashPointError:
            self.driver = None
        finally:
            self.world.fault = None


Protocol.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestProtocol = pytest.mark.core(Protocol.TestCase)
