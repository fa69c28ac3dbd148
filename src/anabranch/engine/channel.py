"""Start one channel: take its lease, recover, check that everything belongs together, start its streaming query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from anabranch.core.epoch import EpochKey, State
from anabranch.core.events import Listener
from anabranch.core.events_data import OutputsRemoved
from anabranch.core.plan import ChannelPlan
from anabranch.engine.archive import Cleaned, Cleaner
from anabranch.engine.catalyst import options_of_sources, source_numbers
from anabranch.engine.changes import merges
from anabranch.engine.checkpoint import Checkpoint
from anabranch.engine.compact import Compactor
from anabranch.engine.epoch import ChannelRun, Offsets, Stager
from anabranch.engine.lease import Heartbeat, lease
from anabranch.engine.native_left import forget_left
from anabranch.engine.native_pass import stage_batch
from anabranch.engine.observe import observed_columns
from anabranch.engine.once import run_once
from anabranch.engine.opened import Opened, check_formats
from anabranch.engine.program import Program, make_program, output_schemas
from anabranch.engine.queries import tell_changes
from anabranch.engine.recover import recover
from anabranch.engine.row_types import arrow_types
from anabranch.engine.rows import Staged
from anabranch.engine.session import LOCAL_CHECKPOINT
from anabranch.engine.source_files_errors import check_files
from anabranch.engine.sources_at_rest import each_file_once
from anabranch.engine.stateful import UPDATING
from anabranch.engine.user_code import with_settings
from anabranch.errors import StateError
from anabranch.store.ledger import ChannelRecord, EpochRecord, Lease, OutputRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.connectors.contract import Sink, Staging
    from anabranch.core.changes import Merge
    from anabranch.engine.backfill import Past


@dataclass(frozen=True)
class Entered:
    """A channel whose lease is held, which has recovered and whose sinks are ready for rows."""

    opened: Opened
    record: ChannelRecord
    lease: Lease
    heartbeat: Heartbeat
    sinks: Mapping[str, Sink]
    last: EpochRecord | None  # the newest epoch that was decided
    observe: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the columns to profile, by output

    @property
    def key(self) -> EpochKey:
        """The first epoch of the channel's generation."""
        return EpochKey(self.opened.pipeline.pipeline_id, self.record.channel, self.record.generation, 0)

    @property
    def published(self) -> int:
        """The newest epoch of the channel's generation that is published; -1 if there is none."""
        if self.last is None:
            return -1
        return self.last.key.epoch if self.last.state is State.PUBLISHED else self.last.key.epoch - 1

    def work(self, stager: Stager, checkpoint: Offsets, listener: Listener) -> ChannelRun:
        """What takes batches through their epochs."""
        return ChannelRun(
            self.opened.ledger,
            self.lease,
            self.record.generation,
            self.sinks,
            stager,
            checkpoint,
            listener,
            self.observe,
        )


@dataclass(frozen=True)
class Running:
    """A channel whose query has been started."""

    work: ChannelRun
    query: StreamingQuery
    heartbeat: Heartbeat


@contextmanager
def running(
    opened: Opened,
    plan: ChannelPlan,
    frames: Mapping[str, DataFrame],
    listener: Listener,
    past: Past,
    *,
    once: bool,
    rebuild: frozenset[str] = frozenset(),
) -> Iterator[Running]:
    """A channel at work. Everything that can be refused is refused before its query reads a row.

    Outputs in `rebuild` are given their rows anew first, as are those that have just been declared.
    """
    schemas = {name: arrow_types(name, schema) for name, schema in output_schemas(plan, frames).items()}
    program = make_program(plan, frames)
    with enter_channel(opened, plan, schemas, merges(plan, frames), listener, past, rebuild) as entered:
        checkpoint = opened.storage.checkpoint(entered.record.channel, entered.record.generation)
        checkpoint.verify(entered.key, entered.last)
        checkpoint.claim(entered.key, opened.ledger.ledger_id, program.sources, source_numbers(program.frame))
        tell_changes(opened.storage, plan, frames, entered.record.generation, rebuild, listener)
        work = entered.work(stager(program, checkpoint), checkpoint, listener)
        places = [Cleaned.of(options) for options in options_of_sources(program.frame)]
        cleaner = Cleaner(entered.record.channel, checkpoint, places, listener, keeps_state=not program.repeatable)
        cleaner.catch_up(entered.published)
        work.after = (*work.after, cleaner.after, Compactor(entered.sinks, listener).after)
        seconds = opened.project.trigger_seconds if plan.channel.trigger is None else plan.channel.trigger
        waits = {"availableNow": True} if once else {"processingTime": f"{seconds} seconds"}
        query = _started(program, work, checkpoint, entered, partial(run_once, past, plan, entered), waits)
        try:
            yield Running(work, query, entered.heartbeat)
        finally:
            work.stop()
            query.stop()
            cleaner.end()


def stager(program: Program, checkpoint: Checkpoint | None = None) -> Stager:
    """Stages batches of a program's frame; with a checkpoint, only those whose files are all there, each file once."""
    if checkpoint:
        forget_left(checkpoint.folder)

    def staged(frame: DataFrame, stagings: Mapping[str, Staging], key: EpochKey, *, small: bool) -> Staged:
        if checkpoint and (stagings or not program.repeatable):
            check_files(checkpoint, key.epoch)
        if checkpoint and stagings:
            frame = each_file_once(frame, program.frame, checkpoint, key.epoch, repeatable=program.repeatable)
        small = small and program.repeatable
        return stage_batch(program, frame, stagings, key, small=small, checkpoint=checkpoint)

    return staged


@contextmanager
def enter_channel(
    opened: Opened,
    plan: ChannelPlan,
    schemas: Mapping[str, pa.Schema],
    merging: Mapping[str, Merge],
    listener: Listener,
    past: Past | None = None,
    rebuild: frozenset[str] = frozenset(),
) -> Iterator[Entered]:
    """Take the channel's lease, recover, check its past against its sinks, and make these ready.

    `schemas` are those of the rows that are staged, `merging` says for outputs that take changes how to apply them.
    `past` gives its rows to an output that joins a channel with a past, and to one in `rebuild`.
    """
    outputs = [OutputRecord(d.name, d.format, opened.storage.location(d)) for d in plan.outputs]
    pipeline, channel = opened.pipeline.pipeline_id, plan.channel.name
    before = opened.channel(channel) or opened.ledger.ensure_channel(pipeline, channel, outputs)
    with lease(opened, channel) as (held, heartbeat):
        check_formats(before.outputs, plan.outputs)
        old_sinks = opened.sinks(before.outputs, plan.outputs)
        last = opened.ledger.last(pipeline, channel, before.generation)
        if last:
            _check_tables_are_there(old_sinks, last)
        recover(opened.ledger, held, old_sinks, listener)
        opened.ledger.prune(pipeline, channel, published_before=time.time() - opened.project.retention_seconds)
        added = _added(before, plan, listener) if last else frozenset()
        if added and past is None:
            raise _joins(before, added, plan)
        sinks = opened.declared_sinks(plan.outputs, merging)
        for name, sink in sinks.items():
            sink.prepare(schemas[name])
        if last and past and (wanted := added | rebuild):
            past.give(held, plan, wanted, sinks, last)
        record = opened.ledger.ensure_channel(pipeline, channel, outputs)
        last = opened.ledger.last(pipeline, channel, record.generation)
        entered = Entered(opened, record, held, heartbeat, sinks, last, observed_columns(plan.outputs))
        for name, sink in sinks.items():
            _check_table(sink, entered.key, -1 if last is None else last.key.epoch, name)
        yield entered


def _started(
    program: Program,
    work: ChannelRun,
    checkpoint: Checkpoint,
    entered: Entered,
    between: Callable[[], bool],
    trigger: Mapping[str, Any],
) -> StreamingQuery:
    """The query of a channel. A rebuild begins with one epoch of all that its sources hold.

    So readers see the old rows until they see all of the new ones. `between` does what must be done between two epochs;
    it answers False when it waits for the first one.
    """
    rebuilding = entered.last is None and entered.record.generation > 1
    if not between() or rebuilding:
        query = _start(program, work, checkpoint, {"once": True})
        with suppress(StreamingQueryException):  # whoever waits for the query is told
            query.awaitTermination()
        if query.exception():
            return query
        between()
        if "availableNow" in trigger:
            return query
    return _start(program, work, checkpoint, trigger)


def _start(program: Program, work: ChannelRun, checkpoint: Checkpoint, trigger: Mapping[str, Any]) -> StreamingQuery:
    for key, value in LOCAL_CHECKPOINT.items():
        program.frame.sparkSession.conf.set(key, value)
    writer = program.frame.writeStream.queryName(work.lease.channel).outputMode(
        "update" if program.updates else "append"
    )
    writer = writer.option("checkpointLocation", str(checkpoint.folder)).foreachBatch(work.batch)
    with with_settings(program.frame.sparkSession, UPDATING if program.updates else {}):
        return writer.trigger(**trigger).start()


def _check_table(sink: Sink, key: EpochKey, decided: int, name: str) -> None:
    """A table that holds epochs the ledger does not know means that an older ledger was put back."""
    held = sink.latest(key)
    if held is not None and held > decided:
        raise StateError(
            "LEDGER_OLDER",
            f'"{name}" holds epoch {held}, but the ledger knows no epoch after {decided}: an older ledger was put back',
            hint=f"put the newest ledger back; without it, rebuild the tables: anabranch reset {key.channel}",
        )


def _check_tables_are_there(sinks: Mapping[str, Sink], past: EpochRecord) -> None:
    """A table that was removed or replaced must not be made anew beside others that go on."""
    for name, applied in past.applied.items():
        if name in sinks and not sinks[name].has(applied.version):
            raise StateError(
                "TABLE_GONE",
                f'"{name}" stood at version {applied.version} after epoch {past.key.epoch}; the table at '
                f"{sinks[name].location} is missing, or is another one",
                hint=f"put it back, or rebuild the channel's tables: anabranch reset {past.key.channel}",
            )


def _added(before: ChannelRecord, plan: ChannelPlan, listener: Listener) -> frozenset[str]:
    """The outputs that join a channel with a past; those that left it are told."""
    had, has = {o.name for o in before.outputs}, {d.name for d in plan.outputs}
    if removed := tuple(sorted(had - has)):
        listener(OutputsRemoved(before.channel, removed))
    return frozenset(has - had)


def _joins(before: ChannelRecord, added: frozenset[str], plan: ChannelPlan) -> StateError:
    first = next(d for d in plan.outputs if d.name in added)
    return StateError(
        "OUTPUT_ADDED",
        f'{", ".join(sorted(added))} joined channel "{before.channel}": the rows of its epochs so far would be missing',
        where=first.where,
        hint="use another storage folder, or run the stream with fan_out, which can give an output its past",
    )
