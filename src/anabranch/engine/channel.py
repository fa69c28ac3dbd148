"""Start one channel: take its lease, recover, check that everything belongs together, start its streaming query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.core.epoch import EpochKey
from anabranch.core.events import Listener, OutputsRemoved
from anabranch.core.plan import ChannelPlan
from anabranch.engine.changes import merges
from anabranch.engine.checkpoint import Checkpoint
from anabranch.engine.epoch import ChannelRun, Offsets, Stager
from anabranch.engine.lease import Heartbeat, lease
from anabranch.engine.opened import Opened
from anabranch.engine.program import Program, make_program, output_schemas
from anabranch.engine.recover import recover
from anabranch.engine.rows import Staged
from anabranch.engine.session import LOCAL_CHECKPOINT
from anabranch.engine.stage import stage
from anabranch.errors import StateError
from anabranch.store.ledger import ChannelRecord, EpochRecord, Lease, OutputRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.connectors.contract import Sink, Staging
    from anabranch.core.changes import Merge


@dataclass(frozen=True)
class Entered:
    """A channel whose lease is held, which has recovered and whose sinks are ready for rows."""

    opened: Opened
    record: ChannelRecord
    lease: Lease
    heartbeat: Heartbeat
    sinks: Mapping[str, Sink]
    last: EpochRecord | None  # the newest epoch that was decided

    @property
    def key(self) -> EpochKey:
        """The first epoch of the channel's generation."""
        return EpochKey(self.opened.pipeline.pipeline_id, self.record.channel, self.record.generation, 0)

    def work(self, stager: Stager, checkpoint: Offsets, listener: Listener) -> ChannelRun:
        """What takes batches through their epochs."""
        return ChannelRun(
            self.opened.ledger, self.lease, self.record.generation, self.sinks, stager, checkpoint, listener
        )


@dataclass(frozen=True)
class Running:
    """A channel whose query has been started."""

    work: ChannelRun
    query: StreamingQuery
    heartbeat: Heartbeat


@contextmanager
def running(
    opened: Opened, plan: ChannelPlan, frames: Mapping[str, DataFrame], listener: Listener, *, once: bool
) -> Iterator[Running]:
    """A channel at work. Everything that can be refused is refused before its query reads a row."""
    schemas = {name: to_arrow_schema(schema) for name, schema in output_schemas(plan, frames).items()}
    program = make_program(plan, frames)
    with enter_channel(opened, plan, schemas, merges(plan, frames), listener) as entered:
        checkpoint = opened.storage.checkpoint(entered.record.channel, entered.record.generation)
        checkpoint.verify(entered.key, entered.last)
        checkpoint.claim(entered.key, opened.ledger.ledger_id, program.sources)
        work = entered.work(stager(program), checkpoint, listener)
        query = _start(program, work, checkpoint, opened.project.trigger_seconds, once=once)
        try:
            yield Running(work, query, entered.heartbeat)
        finally:
            work.stop()
            query.stop()


def stager(program: Program) -> Stager:
    """Stages batches of a program's frame."""

    def staged(frame: DataFrame, stagings: Mapping[str, Staging], key: EpochKey, *, small: bool) -> Staged:
        return stage(program.parts, frame, stagings, key, small=small and program.repeatable)

    return staged


@contextmanager
def enter_channel(
    opened: Opened,
    plan: ChannelPlan,
    schemas: Mapping[str, pa.Schema],
    merging: Mapping[str, Merge],
    listener: Listener,
) -> Iterator[Entered]:
    """Take the channel's lease, recover, check its past against its sinks, and make these ready.

    `schemas` are those of the rows that are staged, `merging` says for outputs that take changes how to apply them.
    """
    outputs = [OutputRecord(d.name, d.format, opened.storage.location(d)) for d in plan.outputs]
    pipeline, channel = opened.pipeline.pipeline_id, plan.channel.name
    before = opened.channel(channel) or opened.ledger.ensure_channel(pipeline, channel, outputs)
    with lease(opened, channel) as (held, heartbeat):
        old_sinks = opened.sinks(before.outputs)
        past = opened.ledger.last(pipeline, channel, before.generation)
        if past:
            _check_tables_are_there(old_sinks, past)
        recover(opened.ledger, held, old_sinks, listener)
        opened.ledger.prune(pipeline, channel, published_before=time.time() - opened.project.retention_seconds)
        _check_outputs(before, past, plan, listener)
        sinks = opened.declared_sinks(plan.outputs, merging)
        for name, sink in sinks.items():
            sink.prepare(schemas[name])
        record = opened.ledger.ensure_channel(pipeline, channel, outputs)
        last = opened.ledger.last(pipeline, channel, record.generation)
        entered = Entered(opened, record, held, heartbeat, sinks, last)
        for name, sink in sinks.items():
            _check_table(sink, entered.key, -1 if last is None else last.key.epoch, name)
        yield entered


def _start(program: Program, work: ChannelRun, checkpoint: Checkpoint, seconds: float, *, once: bool) -> StreamingQuery:
    for key, value in LOCAL_CHECKPOINT.items():
        program.frame.sparkSession.conf.set(key, value)
    writer = program.frame.writeStream.queryName(work.lease.channel)
    writer = writer.option("checkpointLocation", str(checkpoint.folder)).foreachBatch(work.batch)
    trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{seconds} seconds")
    return trigger.start()


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


def _check_outputs(before: ChannelRecord, past: EpochRecord | None, plan: ChannelPlan, listener: Listener) -> None:
    """An output that joins a channel with a past would silently lack that past."""
    had, has = {o.name for o in before.outputs}, {d.name: d for d in plan.outputs}
    added = [name for name in has if name not in had]
    if added and past:
        raise StateError(
            "OUTPUT_ADDED",
            f'{", ".join(added)} joined channel "{before.channel}", which is at epoch {past.key.epoch}: '
            "the rows of the epochs before would be missing from it",
            where=has[added[0]].where,
            hint=f"rebuild the channel's tables from its sources: anabranch reset {before.channel}",
        )
    removed = tuple(sorted(had - set(has)))
    if removed:
        listener(OutputsRemoved(before.channel, removed))
