"""The past of an output: the rows it would have had, had it been declared from the start.

They are computed from what stands upstream of it at the channel's last published epoch: tables at the cut, or the files
that its sources have read until then. The output then stands at that epoch, beside the others, which are not touched.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from anabranch.core.epoch import EpochKey
from anabranch.core.events import Listener
from anabranch.core.events_data import Backfilled, SinkTold
from anabranch.core.plan import ChannelPlan, RunFlow, StageOutput
from anabranch.core.quality import check, quarantine_of
from anabranch.engine.batch import Tables, batch_frame, is_table
from anabranch.engine.planning import Planned
from anabranch.engine.program import Program, make_program
from anabranch.engine.sources_at_rest import at_rest, files_read
from anabranch.engine.stage import Wanted, stage
from anabranch.errors import StateError
from anabranch.read import at_version
from anabranch.store.ledger import EpochRecord, Lease, OutputRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.connectors.contract import Sink
    from anabranch.engine.opened import Opened


@dataclass(frozen=True)
class Past:
    """What the past of outputs is computed from."""

    opened: Opened
    spark: SparkSession
    planned: Planned
    listener: Listener

    def give(
        self, lease: Lease, plan: ChannelPlan, names: Collection[str], sinks: Mapping[str, Sink], last: EpochRecord
    ) -> None:
        """Give outputs the rows of all epochs up to `last`, in the place of whatever they hold."""
        started = time.monotonic()
        part = only(plan, names)
        frames = {f.flow.name: self._frame(f, plan, names, last) for f in part.flows}
        program = make_program(part, frames)
        if not program.repeatable:
            flow = next(name for name, how in program.how.items() if how != "fused")
            raise _refused(plan, names, last, f'flow "{flow}" keeps state, which begins with the rows it gets')
        keys = {name: self._key(sinks[name], last) for name in names}
        rows = self.put(lease, part, program, sinks, keys, last, said=last.key, replace=True)
        self.listener(Backfilled(plan.channel.name, last.key.epoch, rows, time.monotonic() - started))

    def put(
        self,
        lease: Lease,
        part: ChannelPlan,
        program: Program,
        sinks: Mapping[str, Sink],
        keys: Mapping[str, EpochKey],
        last: EpochRecord,
        *,
        said: EpochKey,
        replace: bool,
    ) -> dict[str, int]:
        """Stage a program at rest, let each output take its rows under its key and stand at `last` with them.

        `said` is the epoch that quarantined rows name. How many rows each output got.
        """
        stagings = {name: sinks[name].staging(key, lease.token) for name, key in keys.items()}
        staged = stage(Wanted(program.parts, stagings, said), program.frame, small=False).staged
        check(staged.quality)
        places = {d.name: self.opened.storage.location(d) for d in part.outputs}
        rows = {}
        for name, files in staged.files.items():
            receipt = sinks[name].receipt(keys[name], files, replace=replace)
            applied = sinks[name].apply(keys[name], receipt)
            if applied.note:
                self.listener(SinkTold(name, applied.note))
            output = OutputRecord(name, sinks[name].format, places[name])
            self.opened.ledger.join(lease, last.key, output, receipt, applied)
            rows[name] = receipt.rows
        return rows

    def _key(self, sink: Sink, last: EpochRecord) -> EpochKey:
        """An output that has this epoch already takes its past under a number of its own."""
        if sink.latest(last.key) is None:
            return last.key
        own = replace(last.key, channel=f"{last.key.channel}/rebuilt")
        return replace(own, epoch=(sink.latest(own) or 0) + 1)

    def _frame(self, step: RunFlow, plan: ChannelPlan, names: Collection[str], last: EpochRecord) -> DataFrame:
        tables = {name: rows for name, rows in self.tables().items() if name not in names}
        with self.planned.calling():
            frame = batch_frame(self.spark, self.planned.graph, step.flow, tables)
        if not frame.isStreaming:
            return frame
        checkpoint = self.opened.storage.checkpoint(last.key.channel, last.key.generation)
        checkpoint.verify(last.key, last)  # of one that was lost or put back, a part of the past would be all of it
        files = files_read(checkpoint, last.key.epoch)
        found = at_rest(self.spark, frame, files) if files is not None else None
        if found is None:
            raise _refused(plan, names, last, f'flow "{step.flow.name}" reads a source that cannot be read again')
        return found

    def tables(self) -> Tables:
        """The tables of the pipeline at the cut."""
        graph, cut = self.planned.graph, self.opened.ledger.cut(self.opened.pipeline.pipeline_id).tables

        def rows_of(name: str) -> DataFrame:
            place = self.opened.storage.absolute(cut[name].location)
            return at_version(self.spark, cut[name].format, place, cut[name].version)

        return {n: partial(rows_of, n) for n in graph.datasets if is_table(graph, n) and n in cut}


def only(plan: ChannelPlan, names: Collection[str]) -> ChannelPlan:
    """The part of a plan that feeds these outputs."""
    fed = {d.name for d in plan.channel.datasets if d.name in names or ((q := quarantine_of(d)) and q.name in names)}
    steps = tuple(
        s
        for s in plan.steps
        if (isinstance(s, RunFlow) and s.flow.target in fed) or (isinstance(s, StageOutput) and s.dataset.name in names)
    )
    return replace(plan, steps=steps)


def _refused(plan: ChannelPlan, names: Collection[str], last: EpochRecord, why: str) -> StateError:
    listed = ", ".join(sorted(names))
    return StateError(
        "OUTPUT_ADDED",
        f'{listed} cannot be given the rows of the epochs of channel "{plan.channel.name}" up to '
        f"{last.key.epoch}: {why}",
        where=next(d for d in plan.outputs if d.name in names).where,
        hint=f"rebuild all tables of the channel from its sources: anabranch run --full-refresh {_all(plan)}",
    )


def _all(plan: ChannelPlan) -> str:
    return ",".join(d.name for d in plan.outputs)
