"""A batch through the native pass: workers take what they are certain of, Spark computes the rest in the same epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

import pyarrow.compute as pc
from pyarrow import ArrowInvalid
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.core.profile import all_observed
from anabranch.core.quality import total
from anabranch.engine.catalyst import Catalyst, Node, analyzed, collect_arrow, frame_of, items, type_of
from anabranch.engine.chains import Part, rereading
from anabranch.engine.native_audit import SAMPLE, audit
from anabranch.engine.native_files import FileFeed, batch_splits, dealt, reading
from anabranch.engine.native_flows import NativeChains
from anabranch.engine.native_json_files import LINE
from anabranch.engine.native_rows import NativeWork
from anabranch.engine.native_sql import raw_name
from anabranch.engine.rows import NativeCount, OutputColumns, Staged
from anabranch.engine.stage import Pass, Wanted, by_workers, stage, written
from anabranch.errors import SetupError
from anabranch.native.run import one_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.connectors.contract import Staging
    from anabranch.core.epoch import EpochKey
    from anabranch.engine.checkpoint import Checkpoint
    from anabranch.engine.program import Program

#: Of a session: "true" where workers may parse and project, "false" where Spark does all, "audit" where it checks them.
SETTING = "spark.anabranch.native"

NativeMode = Literal["true", "audit"]

#: Bytes of lines that mean something else in a file.
_OF_FILES = r"^\s*\[|^\xef\xbb\xbf|\x00"

#: Epochs that Spark computes alone after one of which the native pass could take too little.
_PAUSE = 20


def native_mode(session: SparkSession) -> NativeMode | None:
    """Whether workers may compute flows; None where they may not."""
    said = session.conf.get(SETTING, "true")
    if said not in ("true", "false", "audit"):
        raise SetupError("SETTING_INVALID", f"{SETTING} is {said}", hint='write "true", "false" or "audit"')
    legacy = session.conf.get("spark.sql.legacy.timeParserPolicy") == "LEGACY"  # other forms of times are taken
    return None if said == "false" or legacy else cast("NativeMode", said)


@dataclass
class NativePass:
    """The native flows of a group: what workers do, and how Spark does the same.

    With `files`, workers read the files of an epoch themselves where they can.
    """

    work: NativeWork
    chains: NativeChains
    mode: NativeMode
    make: Callable[[Catalyst, Mapping[Part, Node]], Program]
    files: FileFeed | None = None
    pause: int = 0  # epochs that Spark computes alone

    def by_spark(self, raw: DataFrame, now: datetime | None) -> Program:
        """The same flows as Spark computes them, over raw records."""
        catalyst = Catalyst(raw.sparkSession)
        names = {number: raw_name(number) for number, _ in self.chains.raw}
        attributes = dict(self.chains.raw)
        if document := self.chains.document:
            raw = document.read(raw, *names.values())
            attributes |= dict(self.chains.fields)
            names |= {number: node.name() for number, node in self.chains.fields}
        plan = analyzed(raw)
        given = {a.name(): a for a in items(plan.output())}
        columns = [catalyst.alias(given[names[n]], old.name(), like=old) for n, old in attributes.items()]
        base = catalyst.project(columns, plan)
        plans = {c.part: rereading(catalyst, c.plan, c.base, base, None, {}) for c in self.chains.chains}
        if now is not None:
            plans = {part: catalyst.at_time(one, now) for part, one in plans.items()}
        return self.make(catalyst, plans)

    def frame(self, session: SparkSession, rest: pa.Table) -> DataFrame:
        """Raw records that workers handed back."""
        types = StructType()
        if self.chains.document:
            types.add(LINE, "string")
        for number, attribute in self.chains.raw:
            types.add(raw_name(number), type_of(attribute))
        return frame_of(session, rest.select(types.names), types)

    def raw(self, frame: DataFrame) -> DataFrame:
        """The raw records of a batch."""
        feed = self.work.feed
        rows = frame.where(F.col(feed.mask)) if feed.mask else frame
        return rows.select([F.col(name).alias(raw) for name, raw in feed.columns])

    def is_sparks(self, rest: pa.Table | None) -> bool:
        """Whether what is left can only be computed with its files: an array of records, or one that stops all.

        And what is no UTF-8, or begins with a mark, or has a zero byte: of files Spark guesses the encoding line by
        line, and refuses bytes that `from_json` reads as signs for something unknown. And see `JsonFiles.differs`.
        """
        document = self.chains.document
        if rest is None or document is None:
            return False
        lines = rest.column(LINE).cast("binary")
        if document.stops or pc.any(pc.match_substring_regex(lines, _OF_FILES)).as_py():
            return True
        try:
            texts = lines.cast("string")
        except ArrowInvalid:
            return True
        return document.differs(texts.to_pylist())


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
    natives = [program.by_files] if program.by_files else program.natives
    now = checkpoint.time(key.epoch)
    first = None
    if any(native.pause for native in natives):
        for native in natives:
            native.pause = max(0, native.pause - 1)
    else:
        first = _natively(wanted, program, frame, checkpoint, small=small, now=now)
        if first is not None and (first.gave_up or any(map(NativePass.is_sparks, natives, first.rest))):
            first = None
            for native in natives:
                native.pause = _PAUSE
    if first is None:
        return _by_spark(wanted, program, frame, small=small, now=now)
    left = [(native, rest) for native, rest in zip(natives, first.rest, strict=True) if rest is not None]
    for native in natives:
        if native.mode == "audit":
            audit(native, frame.sparkSession, _sample(native, frame, checkpoint, key.epoch), now)
    staged = [first.staged]
    for i, (native, rest) in enumerate(left):
        again = native.by_spark(native.frame(frame.sparkSession, rest), now)
        # What is left is what went through the driver: it is small.
        staged.append(
            stage(replace(wanted, parts=again.parts), again.frame, small=True, task=f"driver-rest-{i}").staged
        )
    by_spark = sum(rest.num_rows for _, rest in left)
    count = NativeCount(first.records - by_spark, by_spark, first.records if first.aside else 0)
    return replace(_together(staged), native=count)


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
    works = [replace(native.work, now=now) for native in program.natives]
    return stage(replace(wanted, natives=works), frame, small=small)


def _sample(native: NativePass, frame: DataFrame, checkpoint: Checkpoint, epoch: int) -> pa.RecordBatch:
    """Some raw records of a batch: of files, from another one in each epoch."""
    splits = batch_splits(checkpoint, epoch, 1) if native.files else None
    if splits and native.files:
        split = splits[epoch % len(splits)]
        return next(native.files.batches([split])).slice(0, SAMPLE)
    return one_batch(collect_arrow(native.raw(frame).limit(SAMPLE)))


def _by_spark(wanted: Wanted, program: Program, frame: DataFrame, *, small: bool, now: datetime) -> Staged:
    staged = [stage(wanted, frame, small=small).staged] if wanted.parts else []
    for i, native in enumerate(program.natives):
        again = native.by_spark(native.raw(frame), now)
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
