"""Flows that run once: a batch of rows for a table that streams feed, and for what reads it, in one go.

The rows are appended when the channel stands between two epochs, under a marker of their own in each table, and the
tables then stand at the same epoch with them. Killed half way, the rest is appended by the next run.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.core.declarations import Flow
from anabranch.core.epoch import EpochKey
from anabranch.core.events_data import Backfilled
from anabranch.core.plan import ChannelPlan
from anabranch.engine.backfill import Past, only
from anabranch.engine.batch import batch_frame
from anabranch.engine.program import make_program
from anabranch.engine.quality import kept
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.engine.channel import Entered


def waiting(past: Past, plan: ChannelPlan, generation: int) -> list[Flow]:
    """The flows that have not run yet in a generation of the channel."""
    once = [s.flow for s in plan.flows if s.flow.once]
    return [flow for flow in once if not _marker(past, plan, generation, flow).exists()]


def run_once(past: Past, plan: ChannelPlan, entered: Entered) -> bool:
    """Append the rows of every flow that has not run yet; False when they wait for the channel's first epoch."""
    pending = waiting(past, plan, entered.record.generation)
    last = past.opened.ledger.last(entered.key.pipeline, entered.key.channel, entered.record.generation)
    if last is None:
        return not pending
    for flow in pending:
        started = time.monotonic()
        frames = _frames(past, plan, flow)
        fed = {f.target for f in _flows(plan) if f.name in frames}
        part = only(plan, {d.name for d in plan.outputs if d.name in fed})
        part = replace(part, steps=tuple(s for s in part.steps if getattr(s, "flow", flow).name in frames))
        program = make_program(part, frames)
        if len(frames) > 1 and not program.repeatable:
            raise _refused(flow, "a flow that reads its table keeps state")
        key = EpochKey(last.key.pipeline, f"{last.key.channel}/once/{flow.name}", last.key.generation, 0)
        keys = {d.name: key for d in part.outputs}
        rows = past.put(entered.lease, part, program, entered.sinks, keys, last, said=key, replace=False)
        marker = _marker(past, plan, last.key.generation, flow)
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        past.listener(Backfilled(plan.channel.name, last.key.epoch, rows, time.monotonic() - started))
    return True


def _frames(past: Past, plan: ChannelPlan, flow: Flow) -> dict[str, DataFrame]:
    """The rows of the flow, and of every flow downstream of its table over these rows alone."""
    graph = past.planned.graph
    with past.planned.calling():
        rows = batch_frame(past.spark, graph, flow, past.tables())
        frames = {flow.name: rows}
        given = {flow.target: kept(rows, graph.datasets[flow.target])}
        for reader in _flows(plan):
            inputs = set(graph.inputs(reader))
            if reader.at_rest or not inputs & set(given):
                continue
            if inputs - set(given):
                raise _refused(flow, f'flow "{reader.name}" reads its table together with others')
            tables = {name: partial(given.__getitem__, name) for name in inputs}
            frames[reader.name] = batch_frame(past.spark, graph, reader, tables)
            given[reader.target] = kept(frames[reader.name], graph.datasets[reader.target])
    return frames


def _flows(plan: ChannelPlan) -> list[Flow]:
    return [s.flow for s in plan.flows]


def _marker(past: Past, plan: ChannelPlan, generation: int, flow: Flow) -> Path:
    return past.opened.storage.own / "once" / plan.channel.name / str(generation) / flow.name


def _refused(flow: Flow, why: str) -> ProjectError:
    return ProjectError(
        "ONCE_NOT_POSSIBLE",
        f'flow "{flow.name}" is to run once, but {why}: what its rows would give there cannot be known',
        where=flow.where,
        hint="let it feed a table that nothing reads in that way",
    )
