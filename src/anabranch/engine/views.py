"""What is computed from the cut: materialized views, tables that are made of snapshots or of flows that run once.

Each is a channel of its own, whose epochs are its refreshes; what stands for the offsets of an epoch is which version
of each input it was computed from. A view is staged aside and put in the place of the rows before in one commit. A
refresh that fails leaves the rows as they were, and the others go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.declarations import Flow
from anabranch.core.events import ChannelFailed, Listener
from anabranch.core.events_data import ViewKept
from anabranch.core.graph import Graph
from anabranch.core.plan import ChannelPlan
from anabranch.core.selection import Selection
from anabranch.engine.batch import batch_frame, is_table
from anabranch.engine.catalyst import fingerprint, reads_only
from anabranch.engine.changes import merges
from anabranch.engine.channel import Entered, enter_channel, stager
from anabranch.engine.incremental import grouped, rows_since, together
from anabranch.engine.opened import Opened
from anabranch.engine.planning import Planned
from anabranch.engine.program import make_program, output_schemas
from anabranch.engine.row_types import arrow_types
from anabranch.engine.snapshots import changes_between, snapshots
from anabranch.engine.traced import Tracer
from anabranch.engine.user_code import told
from anabranch.errors import AnabranchError, UserCodeError, disk_failure
from anabranch.read import at_version
from anabranch.store.records import EpochRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.core.epoch import CutTable


@dataclass(frozen=True, slots=True)
class ReadAt:
    """Stands for a checkpoint: which version of each input a refresh has read."""

    said: str

    def offsets(self, epoch: int) -> str:
        """What was read."""
        return self.said

    def input_bytes(self, epoch: int) -> int | None:
        """Not known."""

    def settle(self, epoch: int) -> None:
        """Versions of tables are durable."""

    def same_offsets(self, record: EpochRecord) -> None:
        """A refresh that was cut off is done again from whatever is there by then."""


@dataclass
class Views:
    """The views of a pipeline at work."""

    opened: Opened
    spark: SparkSession
    planned: Planned
    listener: Listener
    selection: Selection
    epochs: int = 0
    rows: int = 0
    tracer: Tracer | None = None
    _seen: Mapping[str, str] | None = field(default=None)

    @property
    def graph(self) -> Graph:
        """The pipeline's graph."""
        return self.planned.graph

    @property
    def chosen(self) -> tuple[ChannelPlan, ...]:
        """The views that this run is about, each after those it reads."""
        return tuple(part for part in self.planned.plan.views if self.selection.takes([part.channel.name]))

    def refresh_if_moved(self) -> list[AnabranchError]:
        """Refresh when the cut has moved since this was asked last."""
        if not self.chosen or (self._watched() == self._seen and not self._unwatched()):
            return []
        return self.refresh(frozenset())

    def _watched(self) -> Mapping[str, str]:
        """The version of each table that the views are computed from, but for those that are refreshed with them."""
        own = {part.channel.name for part in self.chosen}
        inputs = {name for part in self.chosen for name in self._upstream(part)} - own
        return {name: table.version for name, table in self._cut().items() if name in inputs}

    def _unwatched(self) -> bool:
        """Whether there is one that reads nothing of the pipeline, of which nobody can tell whether it has moved."""
        return any(not f.inputs for part in self.chosen for f in part.flows)

    def refresh(self, failed: frozenset[str]) -> list[AnabranchError]:
        """Every view, each after those it reads; `failed` are datasets that stand behind the others for an error."""
        errors: list[AnabranchError] = []
        behind = set(failed)
        self._seen = self._watched()  # what comes while they are computed is for the next time
        for part in self.chosen:
            name = part.channel.name
            if stopped := sorted(behind & self._upstream(part)):
                behind.add(name)
                self.listener(ViewKept(name, f"{', '.join(stopped)} failed"))
                continue
            try:
                self._refresh(part)
            except Exception as error:  # noqa: BLE001 - one view that fails does not stop the others
                known = _known(error, part)
                errors.append(known)
                behind.add(name)
                self.listener(ChannelFailed(name, known.code, known.message, str(known.where or "")))
        return errors

    def _upstream(self, part: ChannelPlan) -> set[str]:
        """Everything a view is computed from."""
        found: set[str] = set()
        waiting = [name for f in part.flows for name in f.inputs]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [i for f in self.graph.feeding(name) for i in self.graph.inputs(f)]
        return found

    def _cut(self) -> Mapping[str, CutTable]:
        return self.opened.ledger.cut(self.opened.pipeline.pipeline_id).tables

    def _refresh(self, part: ChannelPlan) -> None:
        flow = part.flows[0].flow
        if flow.changes and flow.changes.snapshot:
            self._take_snapshots(part)
        elif flow.once:
            self._run_once(part)
        else:
            self._compute(part)

    def _compute(self, part: ChannelPlan) -> None:
        """A materialized view."""
        cut, flow = self._cut(), part.flows[0].flow
        frame, read = self._frame(part, flow, cut)
        said = json.dumps({"read": read, "query": fingerprint(frame)}, sort_keys=True)
        repeatable = reads_only(frame, [self._location(name) for name in read])
        rebuild = bool(self.selection.rebuilds(part.outputs))
        with self._entered(part, {flow.name: frame}) as entered:
            last = entered.last
            self._trace(part, {flow.name: frame}, last)
            if last and not last.restaging and repeatable and last.offsets == said and not rebuild:
                self.listener(ViewKept(part.channel.name, "nothing changed"))
                return
            if last and not last.restaging and repeatable and not rebuild:
                frame = self._kept_up(part, frame, last, cut) or frame
            self._epoch(part, entered, {flow.name: frame}, said, replaces=True)

    def _take_snapshots(self, part: ChannelPlan) -> None:
        """A table that is made what a snapshot is: of a table at the cut, or of those that a function gives."""
        (flow,) = (f.flow for f in part.flows)
        assert flow.changes is not None
        table = part.channel.datasets[0].name
        before = self.opened.ledger.last(self.opened.pipeline.pipeline_id, part.channel.name, self._generation(part))
        known = json.loads(before.offsets) if before else {"version": None, "read": None}
        if callable(flow.changes.source):
            with self.planned.calling():
                for frame, version in snapshots(flow, known["version"]):
                    self._apply_snapshot(part, frame, version, {"version": version, "read": None})
            return
        frame, read = self._frame(part, replace(flow, changes=None), self._cut())
        if before and known["read"] == read and reads_only(frame, [self._location(name) for name in read]):
            self.listener(ViewKept(table, "nothing changed"))
            return
        version = (known["version"] or 0) + 1
        self._apply_snapshot(part, frame, version, {"version": version, "read": read})

    def _apply_snapshot(self, part: ChannelPlan, frame: DataFrame, version: Any, said: Mapping[str, Any]) -> None:
        flow, cut = part.flows[0].flow, self._cut()
        name = part.channel.datasets[0].name
        assert flow.changes is not None
        held = self._at(name, cut[name].version) if name in cut else None
        rows = changes_between(held, frame, flow.changes, version)
        with self._entered(part, {flow.name: rows}) as entered:
            self._trace(part, {flow.name: frame}, entered.last)
            self._epoch(part, entered, {flow.name: rows}, json.dumps(said, sort_keys=True), replaces=False)

    def _run_once(self, part: ChannelPlan) -> None:
        """A table that only flows which run once feed."""
        cut = self._cut()
        frames = {f.flow.name: self._frame(part, f.flow, cut)[0] for f in part.flows}
        rebuild = bool(self.selection.rebuilds(part.outputs))
        with self._entered(part, frames) as entered:
            self._trace(part, frames, entered.last)
            if entered.last and not entered.last.restaging and not rebuild:
                self.listener(ViewKept(part.channel.name, "its flows have run"))
                return
            self._epoch(part, entered, frames, json.dumps(sorted(frames)), replaces=True)

    def _frame(self, part: ChannelPlan, flow: Flow, cut: Mapping[str, CutTable]) -> tuple[DataFrame, Mapping[str, str]]:
        """What a flow gives at the cut, and which version of which table it has read."""
        read: dict[str, str] = {}

        def rows_of(name: str) -> DataFrame:
            read[name] = cut[name].version if name in cut else "0"
            return self._at(name, read[name])

        tables = {name: partial(rows_of, name) for name in self.graph.datasets if is_table(self.graph, name)}
        with self.planned.calling():
            frame = batch_frame(self.spark, self.graph, flow, tables)
        if frame.isStreaming:
            raise UserCodeError(
                "VIEW_NOT_BATCH",
                f'"{part.channel.name}" is computed from tables at rest, but flow "{flow.name}" reads a stream',
                where=flow.where,
                hint="read with spark.read, or declare a streaming table that reads the stream and read that",
            )
        return frame, read

    def _entered(self, part: ChannelPlan, frames: Mapping[str, DataFrame]) -> AbstractContextManager[Entered]:
        schemas = {name: arrow_types(name, schema) for name, schema in output_schemas(part, frames).items()}
        return enter_channel(self.opened, part, schemas, merges(part, frames), self.listener)

    def _epoch(
        self, part: ChannelPlan, entered: Entered, frames: Mapping[str, DataFrame], said: str, *, replaces: bool
    ) -> None:
        program, last = make_program(part, frames), entered.last
        number = 0 if last is None else last.key.epoch + (0 if last.restaging else 1)
        work = entered.work(stager(program), ReadAt(said), self.listener)
        work.replaces = replaces
        work.batch(program.frame, number)
        self.epochs, self.rows = self.epochs + work.epochs, self.rows + work.rows

    def _trace(self, part: ChannelPlan, frames: Mapping[str, DataFrame], last: EpochRecord | None) -> None:
        if self.tracer:
            self.tracer.look_at_view(part, frames, last)

    def _generation(self, part: ChannelPlan) -> int:
        known = self.opened.channel(part.channel.name)
        return known.generation if known else 1

    def _kept_up(
        self, part: ChannelPlan, frame: DataFrame, last: EpochRecord, cut: Mapping[str, CutTable]
    ) -> DataFrame | None:
        """The view from its rows before and what its one input has got since, where that gives the same."""
        before, view = json.loads(last.offsets), part.channel.datasets[0]
        query = grouped(frame)
        if query is None or view.expectations or before["query"] != fingerprint(frame) or len(before["read"]) != 1:
            return None
        ((name, version),) = before["read"].items()
        if name not in cut or view.name not in cut or cut[name].format != "delta":  # others tell no changes
            return None
        table, location = self._at(name, cut[name].version), self._location(name)
        added = rows_since(self.spark, table, location, int(version), int(cut[name].version))
        if added is None:
            return None
        with self.planned.calling():
            more = batch_frame(self.spark, self.graph, part.flows[0].flow, {name: lambda: added})
        return together(self._at(view.name, cut[view.name].version), more, query)

    def _location(self, name: str) -> str:
        return self.opened.storage.absolute(self.opened.storage.location(self.graph.datasets[name]))

    def _at(self, name: str, version: str) -> DataFrame:
        return at_version(self.spark, self.graph.datasets[name].format, self._location(name), version)


def _known(error: Exception, part: ChannelPlan) -> AnabranchError:
    if isinstance(error, AnabranchError):
        return error
    return disk_failure(error) or told(error, f'view "{part.channel.name}"', part.flows[0].flow.where)
