"""Start one channel: take its lease, recover, check that everything belongs together, start its streaming query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from anabranch.core.epoch import EpochKey
from anabranch.core.events import Listener, OutputsRemoved
from anabranch.core.plan import ChannelPlan
from anabranch.engine.epoch import ChannelRun
from anabranch.engine.lease import Heartbeat, lease
from anabranch.engine.opened import Opened
from anabranch.engine.program import Program, make_program, output_schemas
from anabranch.engine.recover import recover
from anabranch.engine.session import LOCAL_CHECKPOINT
from anabranch.engine.stage import stage
from anabranch.errors import StateError
from anabranch.store.ledger import ChannelRecord, EpochRecord, Lease, OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from anabranch.connectors.contract import Sink


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
    outputs = [OutputRecord(d.name, d.format, opened.storage.location(d)) for d in plan.outputs]
    before = opened.channel(plan.channel.name)
    if before is None:
        before = opened.ledger.ensure_channel(opened.pipeline.pipeline_id, plan.channel.name, outputs)
    with lease(opened, plan.channel.name) as (held, heartbeat):
        old_sinks = opened.sinks(before.outputs)
        past = opened.ledger.last(opened.pipeline.pipeline_id, before.channel, before.generation)
        if past:
            _check_tables_are_there(old_sinks, past)
        recover(opened.ledger, held, old_sinks, listener)
        _check_outputs(before, past, plan, listener)
        schemas = output_schemas(plan, frames)
        sinks = opened.declared_sinks(plan.outputs)
        for name, sink in sinks.items():
            sink.prepare(to_arrow_schema(schemas[name]))
        record = opened.ledger.ensure_channel(opened.pipeline.pipeline_id, plan.channel.name, outputs)
        program = make_program(plan, frames)
        work = _channel_run(opened, record, held, program, sinks, listener)
        query = _start(program, work, opened.project.trigger_seconds, once=once)
        try:
            yield Running(work, query, heartbeat)
        finally:
            work.stop()
            query.stop()


def _channel_run(
    opened: Opened,
    record: ChannelRecord,
    held: Lease,
    program: Program,
    sinks: Mapping[str, Sink],
    listener: Listener,
) -> ChannelRun:
    key = EpochKey(opened.pipeline.pipeline_id, record.channel, record.generation, 0)
    last = opened.ledger.last(key.pipeline, key.channel, key.generation)
    checkpoint = opened.storage.checkpoint(record.channel, record.generation)
    for name, sink in sinks.items():
        _check_table(sink, key, -1 if last is None else last.key.epoch, name)
    checkpoint.verify(key, last)
    checkpoint.claim(key, opened.ledger.ledger_id, program.sources)
    return ChannelRun(
        opened.ledger, held, record.generation, sinks, partial(stage, program.parts), checkpoint, listener
    )


def _start(program: Program, work: ChannelRun, seconds: float, *, once: bool) -> StreamingQuery:
    for key, value in LOCAL_CHECKPOINT.items():
        program.frame.sparkSession.conf.set(key, value)
    writer = program.frame.writeStream.queryName(work.lease.channel)
    writer = writer.option("checkpointLocation", str(work.checkpoint.folder)).foreachBatch(work.batch)
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
