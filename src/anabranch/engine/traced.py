"""Find the column lineage of a pipeline's datasets when a run starts, and have what is new written down.

Nothing of this is needed to move rows: whatever goes wrong here is told, and the run goes on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.core.changes import DELETES, END_AT, SEQUENCE, START_AT, TRUNCATES
from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, RowOrigins, merged, together
from anabranch.core.declarations import Dataset, Flow
from anabranch.core.events import Listener, Notice
from anabranch.core.events_data import LineageChanged
from anabranch.core.graph import Graph
from anabranch.core.quality import quarantine_of
from anabranch.engine.catalyst import catalyst_of
from anabranch.engine.catalyst_columns import Patterns
from anabranch.engine.changes import names_in
from anabranch.engine.column_origins import ColumnWalk
from anabranch.engine.opened import known_channels
from anabranch.engine.planning import Planned, open_spark, plan_with_spark
from anabranch.engine.quality import kept
from anabranch.engine.storage import Storage
from anabranch.store.history import History
from anabranch.store.lineage_versions import newest_lineage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.core.plan import ChannelPlan
    from anabranch.engine.opened import Opened
    from anabranch.load.project import Project
    from anabranch.store.records import EpochRecord

#: Columns of a quarantine table that the engine fills in itself.
_OWN = ("flow", "generation", "epoch")


def lineage_of(
    spark: SparkSession, graph: Graph, frames: Mapping[str, DataFrame], root: str, ends: Collection[str] = ()
) -> list[DatasetColumns]:
    """The column lineage of every dataset that the frames feed; paths below `root` are shown from there.

    Origins are datasets that have rows of their own, those that the frames feed and those in `ends`; views that are
    none of these are looked through.
    """
    fed = {f.target for f in graph.pipeline.flows if f.name in frames}
    ending = {n: v for n, v in graph.views.items() if n in ends or n in fed or graph.datasets[n].is_output}
    walk = ColumnWalk(catalyst_of(spark), Patterns(spark), {view: name for name, view in ending.items()}, root)
    found: list[DatasetColumns] = []
    for name in graph.order:
        flows = graph.feeding(name)
        if not any(flow.name in frames for flow in flows):
            continue
        dataset = graph.datasets[name]
        one = merged(name, [_of_flow(walk, dataset, f, frames[f.name]) for f in flows if f.name in frames])
        apart = [f.name for f in flows if f.name not in frames]
        missing = frozenset(f'flow "{flow}" reads at rest, apart from the others' for flow in apart)
        if missing:
            columns = {c: replace(origins, unknown=origins.unknown | missing) for c, origins in one.columns.items()}
            one = replace(one, columns=columns, rows=one.rows | RowOrigins(unknown=missing))
        one = replace(one, owner=dataset.owner, tags=dict(dataset.tags))
        found.append(one)
        if aside := quarantine_of(dataset):
            found.append(_quarantined(aside, one))
    return found


def _of_flow(walk: ColumnWalk, dataset: Dataset, flow: Flow, frame: DataFrame) -> DatasetColumns:
    if flow.changes is None:
        return walk.columns(dataset.name, kept(frame, dataset))
    found = walk.columns(dataset.name, frame)
    added = {name: found.columns[name] for name in (SEQUENCE, DELETES, TRUNCATES) if name in found.columns}
    columns = {name: origins for name, origins in found.columns.items() if name not in added}
    rows = found.rows
    for deciding in [*added.values(), *(columns[key] for key in names_in(frame, flow.changes.keys))]:
        rows |= deciding.chooses(How.MERGE)
    if flow.changes.keeps_history:
        version = ColumnOrigins(made=frozenset({"the version of the snapshot"}))
        columns |= dict.fromkeys((START_AT, END_AT), added.get(SEQUENCE, version))
    return replace(found, columns=columns, rows=rows)


def _quarantined(aside: Dataset, judged: DatasetColumns) -> DatasetColumns:
    """The table of rows that are put aside: each row as JSON, with the rules it broke."""
    row = together(judged.columns.values()).used(How.TRANSFORMED)
    columns = {"reasons": row, "payload": row, **dict.fromkeys(_OWN, ColumnOrigins(made=frozenset({"the engine"})))}
    return DatasetColumns(aside.name, columns, judged.rows, aside.owner or judged.owner, judged.tags)


@dataclass
class Tracer:
    """Compares the lineage of datasets with what the history has, and tells what differs."""

    spark: SparkSession
    graph: Graph
    history: Path
    root: str
    listener: Listener
    ends: frozenset[str] = frozenset()  # datasets whose lineage is found, also where others look at them
    _known: dict[str, DatasetColumns] | None = field(default=None)
    _seen: set[str] = field(default_factory=set)

    def look(self, frames: Mapping[str, DataFrame], first_epochs: Mapping[str, tuple[str, int]]) -> None:
        """Look at datasets that have not been looked at; `first_epochs` has the channel of each and its next epoch."""
        try:
            wanted = {f: frame for f, frame in frames.items() if self._target(f) in first_epochs.keys() - self._seen}
            self._compare(lineage_of(self.spark, self.graph, wanted, self.root, self.ends), first_epochs)
        except Exception as error:  # noqa: BLE001 - to know where columns come from is never worth a run
            said = str(error).strip().splitlines()
            self.listener(Notice(f"column lineage could not be found: {said[0] if said else type(error).__name__}"))
        self._seen |= first_epochs.keys()

    def look_at_view(self, part: ChannelPlan, frames: Mapping[str, DataFrame], last: EpochRecord | None) -> None:
        """Look at what is computed from the cut, unless that was done."""
        if not {d.name for d in part.outputs} <= self._seen:
            self.look(frames, _channel_epochs(part, last))

    def _target(self, flow: str) -> str | None:
        return next((f.target for f in self.graph.pipeline.flows if f.name == flow), None)

    def _compare(self, found: Iterable[DatasetColumns], first_epochs: Mapping[str, tuple[str, int]]) -> None:
        if self._known is None:
            self._known = {name: one.lineage for name, one in newest_lineage(History(self.history)).items()}
        for one in found:
            before = self._known.get(one.dataset)
            if before is not None and before.digest == one.digest:
                continue
            self._known[one.dataset] = one
            channel, epoch = first_epochs.get(one.dataset, ("", 0))
            changed = one.differing(before) if before else tuple(one.columns)
            document = json.dumps(one.as_record(), ensure_ascii=False)
            self.listener(LineageChanged(channel, one.dataset, epoch, changed, document, before is None))


def tracer_of(project: Project, spark: SparkSession, planned: Planned, listener: Listener) -> Tracer:
    """What looks at the datasets of a planned project."""
    fed = frozenset(f.target for f in planned.graph.pipeline.flows if f.name in planned.frames)
    return Tracer(spark, planned.graph, Storage.of(project.storage).history, str(project.root), listener, fed)


def fresh_lineage(project: Project, listener: Listener) -> dict[str, DatasetColumns]:
    """The lineage of everything that streams feed, as the files say now. Nothing is read, nothing is stored."""
    spark = open_spark(project, listener)
    planned = plan_with_spark(project, spark, known_channels(project), pin=False)
    return {one.dataset: one for one in lineage_of(spark, planned.graph, planned.frames, str(project.root))}


def first_epochs(opened: Opened, part: ChannelPlan) -> dict[str, tuple[str, int]]:
    """For each dataset of a channel, the channel and its next epoch."""
    record = opened.channel(part.channel.name)
    pipeline = opened.pipeline.pipeline_id
    last = opened.ledger.last(pipeline, part.channel.name, record.generation) if record else None
    return _channel_epochs(part, last)


def _channel_epochs(part: ChannelPlan, last: EpochRecord | None) -> dict[str, tuple[str, int]]:
    names = dict.fromkeys(d.name for d in (*part.channel.datasets, *part.outputs))
    return dict.fromkeys(names, (part.channel.name, last.key.epoch + 1 if last else 0))
