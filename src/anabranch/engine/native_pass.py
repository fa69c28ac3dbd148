"""A batch through the native pass: workers take what they are certain of, Spark computes the rest in the same epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.core.profile import all_observed
from anabranch.core.quality import total
from anabranch.engine.catalyst import Catalyst, catalyst_of, collect_arrow, frame_of
from anabranch.engine.catalyst_kept import KeptPlan
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, identity, items, kind, type_of
from anabranch.engine.chains import Part, over, rereading
from anabranch.engine.native_audit import SAMPLE, audit
from anabranch.engine.native_files import Feed, batch_splits, dealt, reading
from anabranch.engine.native_flows import NativeChains
from anabranch.engine.native_left import count_rows, folder_aside, left_lines, rows_aside
from anabranch.engine.native_rows import CannotRead, NativeWork
from anabranch.engine.native_sql import raw_name
from anabranch.engine.native_turns import Turns
from anabranch.engine.rows import NativeCount, OutputColumns, Staged
from anabranch.engine.source_files_errors import gone
from anabranch.engine.stage import Pass, Wanted, by_workers, stage, written
from anabranch.engine.user_code import with_settings
from anabranch.errors import SetupError
from anabranch.native.run import one_batch

if TYPE_CHECKING:
    from anabranch.connectors.contract import Staging
    from anabranch.core.epoch import EpochKey
    from anabranch.engine.checkpoint import Checkpoint
    from anabranch.engine.program import Program

#: Of a session: "true" where workers may parse and project, "false" where Spark does all, "audit" where it checks them.
SETTING = "spark.anabranch.native"

#: What stands on rows that are in the plan itself, Spark computes before it optimizes: `from_json` then looks at all
#: fields of its schema, and finds faults in those that nobody asks for.
_AS_RDD = {"spark.sql.execution.arrow.localRelationThreshold": "0"}

NativeMode = Literal["true", "audit"]

#: What Spark computes instead of workers: what they left, or all of a batch.
_What = Literal["rest", "batch"]


def native_mode(session: SparkSession) -> NativeMode | None:
    """Whether workers may compute flows; None where they may not."""
    said = session.conf.get(SETTING, "true")
    if said not in ("true", "false", "audit"):
        raise SetupError("SETTING_INVALID", f"{SETTING} is {said}", hint='write "true", "false" or "audit"')
    policy = session.conf.get("spark.sql.legacy.timeParserPolicy") or ""  # as it was written: Spark takes any case
    legacy = policy.strip().upper() == "LEGACY"  # other forms of times are taken
    return None if said == "false" or legacy else cast("NativeMode", said)


@dataclass(frozen=True)
class _Made:
    """A program over the raw records of one batch. To put it over those of the next takes a tenth of making it anew."""

    program: Program
    leaf: Node  # that has the records
    places: int  # of the leaf in the plan
    shapes: list[tuple[str, list[str]]]  # of the nodes on the way to the leaf
    kept: KeptPlan | None  # how Spark computes it, where that can be done again

    @classmethod
    def of(cls, catalyst: Catalyst, program: Program, raw: DataFrame) -> _Made | None:
        """None if it cannot be told which records are those of the batch."""
        path, shapes = _path(raw), _shapes(raw)
        kept = KeptPlan.of(program.frame) if [name for name, _ in shapes] == ["LogicalRDD"] else None
        if kept:
            return cls(program, path[-1], 1, shapes, kept)
        places = over(catalyst, analyzed(program.frame), path[-1], path[-1])[1] if path else 0
        return cls(program, path[-1], places, shapes, None) if places else None

    def fits(self, raw: DataFrame) -> bool:
        """Whether other records come in the very same way."""
        return _shapes(raw) == self.shapes

    def over(self, catalyst: Catalyst, raw: DataFrame) -> Program:
        """The program over other records, which fit."""
        if self.kept:
            return replace(self.program, frame=self.kept.over(raw))
        old, new = self.leaf, _path(raw)[-1]
        pairs = zip(items(new.output()), items(old.output()), strict=True)
        records = catalyst.project([catalyst.alias(one, other.name(), like=other) for one, other in pairs], new)
        plan, places = over(catalyst, analyzed(self.program.frame), old, records)
        if places != self.places:
            raise AssertionError(f"the records of a batch are in {places} places of a plan, not in {self.places}")
        return replace(self.program, frame=catalyst.frame(plan))


def _path(raw: DataFrame) -> tuple[Node, ...]:
    """From the top of a plan to its one leaf; empty if it has more."""
    path = [analyzed(raw)]
    while len(children_of(path[-1])) == 1:
        path += children_of(path[-1])
    return () if children_of(path[-1]) else tuple(path)


def _shapes(raw: DataFrame) -> list[tuple[str, list[str]]]:
    """What each node of the path is, and the names that it gives."""
    return [(kind(node), [attribute.name() for attribute in items(node.output())]) for node in _path(raw)]


@dataclass
class NativePass:
    """The native flows of a group: what workers do, and how Spark does the same.

    With `files`, workers read the files of an epoch themselves where they can.
    """

    work: NativeWork
    chains: NativeChains
    mode: NativeMode
    make: Callable[[Catalyst, Mapping[Part, Node]], Program]
    files: Feed | None = None
    turns: Turns = field(default_factory=Turns)
    _made: dict[_What, _Made | None] = field(default_factory=dict)

    def by_spark(self, raw: DataFrame, now: datetime) -> Program:
        """The same flows as Spark computes them, over raw records."""
        catalyst = catalyst_of(raw.sparkSession)
        unneeded = self._unneeded()
        nothing = [F.lit(None).cast(type_of(old)).alias(raw_name(n)) for n, old in unneeded]
        plan = analyzed(raw.select("*", *nothing))
        given = {a.name(): a for a in items(plan.output())}
        attributes = [*self.chains.raw, *self.chains.fields, *unneeded]
        columns = [catalyst.alias(given[raw_name(n)], old.name(), like=old) for n, old in attributes]
        base = catalyst.project(columns, plan)
        plans = {c.part: rereading(catalyst, c.plan, c.base, base, None, {}) for c in self.chains.chains}
        plans = {part: catalyst.at_time(one, now) for part, one in plans.items()}
        return self.make(catalyst, plans)

    def again_by_spark(self, what: _What, frame: DataFrame, now: datetime) -> Program:
        """The same over a batch, or raw records, which come in the same way in every epoch."""
        catalyst = catalyst_of(frame.sparkSession)
        known = self._made.get(what)
        if known is not None and known.fits(frame):
            return known.over(catalyst, frame)
        rest = self._made.get("rest")
        if what == "batch" and rest is not None and rest.kept and self._is_raw(frame):
            return rest.over(catalyst, frame)
        made = self.by_spark(self.raw(frame) if what == "batch" else frame, now)
        if not self.work.program.asks_time:
            self._made[what] = _Made.of(catalyst, made, frame)
        return made

    def _is_raw(self, batch: DataFrame) -> bool:
        """Whether a batch is raw records as workers leave them, and nothing else."""
        feed, raw = self.work.feed, [raw_name(number) for number, _ in self.chains.raw]
        named = [("LogicalRDD", [name for name, _ in feed.columns])]
        return not feed.mask and [r for _, r in feed.columns] == raw and _shapes(batch) == named

    def _unneeded(self) -> list[tuple[int, Node]]:
        """Columns of the base that steps may carry along, though no flow stands on them."""
        needed = {number for number, _ in (*self.chains.raw, *self.chains.fields)}
        numbered = [(identity(one), one) for one in items(self.chains.chains[0].base.output())]
        return [(number, one) for number, one in numbered if number not in needed]

    @contextmanager
    def frame(
        self, session: SparkSession, rest: pa.Table | None, checkpoint: Path, put_aside: Sequence[str] = ()
    ) -> Iterator[DataFrame]:
        """Raw records that workers handed back, or put aside; of lines of files, what Spark's reader has for them."""
        types = StructType()
        for number, attribute in self.chains.raw:
            types.add(raw_name(number), type_of(attribute))
        document = self.chains.document
        if document is None:
            with with_settings(session, _AS_RDD):
                frames = [frame_of(session, rest.select(types.names), types)] if rest is not None else []
            with rows_aside(session, types, put_aside) as more:
                yield reduce(DataFrame.unionAll, [*frames, *more])
            return
        assert rest is not None, "lines of files are not put aside"
        fields = {attribute.name(): raw_name(number) for number, attribute in self.chains.fields}
        about = (types[0].name, types[0].dataType) if types.fields else None
        with left_lines(session, document, fields, rest, about, checkpoint) as rows:
            yield rows

    def raw(self, frame: DataFrame) -> DataFrame:
        """The raw records of a batch."""
        feed = self.work.feed
        rows = frame.where(F.col(feed.mask)) if feed.mask else frame
        return rows.select([F.col(name).alias(raw) for name, raw in feed.columns])

    def is_sparks(self, rest: pa.Table | None) -> bool:
        """Whether what is left can only be computed with its files: a record that stops all is told with its file."""
        return rest is not None and self.chains.document is not None and self.chains.document.stops


def stage_batch(
    program: Program,
    frame: DataFrame,
    stagings: Mapping[str, Staging],
    key: EpochKey,
    *,
    small: bool,
    checkpoint: Checkpoint | None = None,
) -> Staged:
    """Stage a batch of a program's frame; `checkpoint` knows its time and its files."""
    wanted = Wanted(program.parts, stagings, key)
    if not (program.natives or program.by_files) or not stagings or checkpoint is None:
        return stage(wanted, frame, small=small).staged
    now = checkpoint.time(key.epoch)
    first = _first(wanted, program, frame, checkpoint, small=small, now=now)
    if first is None:
        return _by_spark(wanted, program, frame, small=small, now=now)
    for native in _natives(program):
        if native.mode == "audit":
            audit(native, frame.sparkSession, _sample(native, frame, checkpoint, key.epoch), now, checkpoint.folder)
    staged, by_spark = [first.staged], 0
    for i, (native, rest, files) in enumerate(zip(_natives(program), first.rest, first.put_aside, strict=True)):
        if rest is None and not files:
            continue
        with native.frame(frame.sparkSession, rest, checkpoint.folder, files) as raw:
            again = replace(wanted, parts=(made := native.again_by_spark("rest", raw, now)).parts)
            # What went through the driver is small.
            staged.append(stage(again, made.frame, small=not files, task=f"driver-rest-{i}").staged)
            by_spark += (rest.num_rows if rest else 0) + count_rows(files)
    count = NativeCount(first.records - by_spark, by_spark, first.records if first.aside else 0)
    return replace(_together(staged), native=count)


def _natives(program: Program) -> Sequence[NativePass]:
    return [program.by_files] if program.by_files else program.natives


def _first(
    wanted: Wanted, program: Program, frame: DataFrame, checkpoint: Checkpoint, *, small: bool, now: datetime
) -> Pass | None:
    """What workers are certain of; None where Spark is to compute the batch.

    After batches that were too much for the native pass, or too dear, it is not tried for a while. Where state is kept
    it always is: records are then put aside, instead of the batch being computed once more.
    """
    if not program.repeatable:
        return _natively(wanted, program, frame, checkpoint, small=small, now=now)
    natives = _natives(program)
    turns = natives[0].turns
    if turns.is_sparks():
        return None
    first = _natively(wanted, program, frame, checkpoint, small=small, now=now)
    if first is None:
        return None
    if first.gave_up or any(map(NativePass.is_sparks, natives, first.rest)):
        turns.too_much()
        return None
    turns.passed(records=first.records, left=any(rest is not None for rest in first.rest))
    return first


def _natively(
    wanted: Wanted, program: Program, frame: DataFrame, checkpoint: Checkpoint, *, small: bool, now: datetime
) -> Pass | None:
    """What workers are certain of; None where they cannot read the batch."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    own = program.by_files or (program.natives[0] if len(program.natives) == 1 and not program.parts else None)
    if own and own.files and (splits := batch_splits(checkpoint, wanted.key.epoch, cores)) is not None:
        feed = OutputColumns(None, None, tuple((name, name) for name in own.work.program.raw))
        work = Wanted((), wanted.stagings, wanted.key, [replace(own.work, feed=feed, now=now)])
        if small or not splits:
            return replace(written(work, "driver", own.files.batches(splits)), aside=True)
        tasks = dealt(splits, cores)
        numbers = frame.sparkSession.range(0, len(tasks), 1, len(tasks))
        return replace(by_workers(work, numbers, reading(own.files, tasks)), aside=True)
    if program.by_files:
        return None
    aside = None if program.repeatable else str(folder_aside(checkpoint.folder))
    works = [replace(native.work, now=now, aside=aside) for native in program.natives]
    return stage(replace(wanted, natives=works), frame, small=small)


def _sample(native: NativePass, frame: DataFrame, checkpoint: Checkpoint, epoch: int) -> pa.RecordBatch:
    """Some raw records of a batch: of files, from another one in each epoch."""
    splits = batch_splits(checkpoint, epoch, 1) if native.files else None
    if native.files and splits is not None:
        first = epoch % len(splits) if splits else 0
        try:  # a part of a file may have no record
            found = next(native.files.batches([*splits[first:], *splits[:first]]), None)
        except CannotRead as problem:  # it could a moment ago
            raise gone([str(problem)]) from problem
        return pa.record_batch({}) if found is None else found.slice(0, SAMPLE)
    rows = [batch for batch in collect_arrow(native.raw(frame).limit(SAMPLE)) if batch.num_rows]
    return one_batch(rows) if rows else pa.record_batch({})


def _by_spark(wanted: Wanted, program: Program, frame: DataFrame, *, small: bool, now: datetime) -> Staged:
    staged = [stage(wanted, frame, small=small).staged] if wanted.parts else []
    for i, native in enumerate(program.natives):
        again = native.again_by_spark("batch", frame, now)
        task = f"driver-spark-{i}"
        staged.append(stage(replace(wanted, parts=again.parts), again.frame, small=small, task=task).staged)
    return _together(staged)


def _together(staged: Sequence[Staged]) -> Staged:
    """What several passes over parts of a batch staged."""
    if len(staged) == 1:
        return staged[0]
    names = {name for one in staged for name in one.files}
    return Staged(
        {name: [file for one in staged for file in one.files.get(name, ())] for name in sorted(names)},
        total(q for one in staged for q in one.quality),
        all_observed(one.observed for one in staged),
    )
