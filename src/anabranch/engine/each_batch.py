"""The body of somebody else's `foreachBatch`: epochs for a query whose checkpoint is not ours.

The batch id is the epoch. Its offsets are known to that query's checkpoint only, so an epoch remembers which query it
was: a query with a new checkpoint starts again at batch 0 and would otherwise be taken for one that repeats itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.core.events import Listener
from anabranch.core.plan import ChannelPlan, make_plan
from anabranch.engine.catalyst import batch_keeps_state
from anabranch.engine.changes import merges
from anabranch.engine.channel import enter_channel, stager
from anabranch.engine.epoch import ChannelRun
from anabranch.engine.flows import resolve_flows
from anabranch.engine.opened import open_project
from anabranch.engine.program import Program, make_program, output_schemas
from anabranch.engine.row_types import arrow_types
from anabranch.errors import StateError
from anabranch.load.project import Project
from anabranch.store.ledger import EpochRecord
from anabranch.streams import Output, pipeline_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class ForeignCheckpoint:
    """Stands for the checkpoint of a query that is not ours."""

    query: str

    def offsets(self, epoch: int) -> str:
        """Which query the epoch belongs to."""
        return f"query {self.query}"

    def input_bytes(self, epoch: int) -> int | None:
        """Not known."""

    def settle(self, epoch: int) -> None:
        """The checkpoint is the query's own affair."""

    def same_offsets(self, record: EpochRecord) -> None:
        """Refuse a batch of another query."""
        if record.offsets != self.offsets(record.key.epoch):
            raise StateError(
                "CHECKPOINT_FOREIGN",
                f"epoch {record.key.epoch} was written by another query than the one that runs now",
                hint="put that query's checkpoint back, or use another storage folder for the new one",
            )


class BatchBody:
    """What `each_batch` hands to `foreachBatch`; storage, ledger and lease are taken at the first batch."""

    def __init__(self, project: Project, outputs: Mapping[str, Output], listener: Listener) -> None:
        self._project, self._outputs, self._listener = project, outputs, listener
        self._held = ExitStack()
        self._work: ChannelRun | None = None

    def __call__(self, frame: DataFrame, number: int) -> None:
        pipeline = pipeline_of(self._project.name, frame, self._outputs)
        resolved = resolve_flows(frame.sparkSession, pipeline, streaming=False)
        (part,) = make_plan(resolved.graph).channels
        program = make_program(part, resolved.frames)
        if batch_keeps_state(frame):
            program = replace(program, parts=tuple(replace(p, stateful=True) for p in program.parts))
        if self._work is None:
            self._work = self._begin(frame, part, resolved.frames, program)
        self._work.stage = stager(program)
        self._work.batch(program.frame, number)

    def _begin(
        self, frame: DataFrame, part: ChannelPlan, frames: Mapping[str, DataFrame], program: Program
    ) -> ChannelRun:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or "none"
        opened = self._held.enter_context(open_project(self._project, create=True))
        schemas = {name: arrow_types(name, schema) for name, schema in output_schemas(part, frames).items()}
        entered = self._held.enter_context(enter_channel(opened, part, schemas, merges(part, frames), self._listener))
        checkpoint = ForeignCheckpoint(query)
        if entered.last is not None:
            checkpoint.same_offsets(entered.last)
        return entered.work(stager(program), checkpoint, self._listener)

    def close(self) -> None:
        """Give the lease back."""
        self._held.close()
