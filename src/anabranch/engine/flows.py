"""Call every flow once, at start, and learn what it really reads.

A dataset becomes a temporary view of its streaming query, so that `spark.table`, `spark.readStream.table` and
`spark.sql` inside later flows mean the graph and never a stale table of a catalogue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from anabranch.core.channels import is_at_rest
from anabranch.core.declarations import Flow, Kind, Pipeline
from anabranch.core.detached import tables_between, turns
from anabranch.core.graph import Graph, build, changes_as_stream
from anabranch.engine.catalyst import views_read
from anabranch.engine.changes import change_rows
from anabranch.engine.dataset_names import reading
from anabranch.engine.quality import kept
from anabranch.engine.row_origins import with_origin
from anabranch.engine.stateful import not_appending
from anabranch.engine.user_code import user_code, with_settings
from anabranch.errors import AnabranchError, ProjectError, ProjectErrors, UserCodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from anabranch.engine.table_streams import TableStreams


#: How Spark says that it knows no such table, database or catalogue.
_NOT_FOUND = ("TABLE_OR_VIEW_NOT_FOUND", "REQUIRES_SINGLE_PART_NAMESPACE", "SCHEMA_NOT_FOUND", "CATALOG_NOT_FOUND")


@dataclass(frozen=True)
class Resolved:
    """A pipeline whose flows were called: the graph with the inputs they really have, and a frame for each flow."""

    graph: Graph
    frames: Mapping[str, DataFrame]


def resolve_flows(
    spark: SparkSession, pipeline: Pipeline, tables: TableStreams | None = None, *, streaming: bool = True
) -> Resolved:
    """Call each flow after those it reads; raises `ProjectErrors` with every flow that failed.

    `tables` gives tables as streams, for detached ones to read. `streaming` asks that outputs be fed by streaming
    queries; the frames of one batch are not.
    """
    graph = build(pipeline)
    try:
        with reading(graph):
            return _resolve(spark, graph, tables, streaming=streaming)
    finally:
        # The frames are analysed by now. A view left behind would be found by a later run in the same process.
        for view in graph.views.values():
            spark.catalog.dropTempView(view)


def _resolve(spark: SparkSession, graph: Graph, tables: TableStreams | None, *, streaming: bool) -> Resolved:
    frames: dict[str, DataFrame] = {}
    failed: list[AnabranchError] = []
    wanted, turn_of = _for_outputs(graph), turns(graph)
    between = tables_between(graph, turn_of)
    for turn in sorted(set(turn_of.values())):
        for name in (name for name, later in between.items() if turn in later and tables):
            # Frames made before are analysed by now, and do not mind what the name means from here on.
            feeding = [frames[f.name] for f in graph.feeding(name) if f.name in frames]
            if feeding and tables:
                tables.stream(graph.datasets[name], feeding).createOrReplaceTempView(graph.views[name])
        names = [name for name in graph.order if name in wanted and turn_of[name] == turn]
        failed += _call_all(spark, graph, [f for name in names for f in graph.feeding(name) if not f.at_rest], frames)
    failed += [*_not_streaming(graph, frames), *not_appending(graph, frames)] if streaming else []
    if failed:
        raise ProjectErrors(failed)
    return Resolved(build(_with_true_inputs(graph, frames)), frames)


def _call_all(
    spark: SparkSession, graph: Graph, waiting: list[Flow], frames: dict[str, DataFrame]
) -> list[AnabranchError]:
    """Call flows and add their frames; those that failed."""
    failed: list[AnabranchError] = []
    while waiting:
        later: list[Flow] = []
        for flow in waiting:
            try:
                frames[flow.name] = call_into(spark, graph, flow)
            except UserCodeError as error:
                # A name computed at run time could not be put in order before: try again once it is there.
                if missing(error, graph) in {f.target for f in waiting if f.name not in frames and f is not flow}:
                    later.append(flow)
                else:
                    failed.append(_better(graph, flow, error))
                continue
            except ProjectError as error:
                failed.append(ProjectError(error.code, error.message, where=error.where or flow.where, hint=error.hint))
                continue
            _register(graph, flow.target, frames)
        if len(later) == len(waiting):
            failed += [_stuck(flow) for flow in later]
            break
        waiting = later
    return failed


def _for_outputs(graph: Graph) -> set[str]:
    """The datasets that streams pass through; views of the cut are computed later, with what only they read."""
    views = {name for name in graph.datasets if is_at_rest(graph, name)}
    if not views or not all(f.inputs_known for f in graph.pipeline.flows):
        return set(graph.datasets) - views
    wanted = {d.name for d in graph.datasets.values() if d.is_output} - views
    for name in reversed(graph.order):
        if name in wanted:
            wanted |= {i for f in graph.feeding(name) for i in graph.inputs(f)} - views
    return wanted


def call_into(spark: SparkSession, graph: Graph, flow: Flow) -> DataFrame:
    """The frame of a flow, with what its target wants to know of each row."""
    frame, dataset = call(spark, flow), graph.datasets.get(flow.target)
    return with_origin(frame, dataset, flow) if dataset and dataset.origin else frame


def call(spark: SparkSession, flow: Flow) -> DataFrame:
    with user_code(f'flow "{flow.name}"', flow.where), with_settings(spark, flow.settings):
        frame = flow.query()
    if not isinstance(frame, DataFrame):
        raise UserCodeError(
            "FLOW_NO_FRAME",
            f'flow "{flow.name}" returned {type(frame).__name__}, not a DataFrame',
            where=flow.where,
            hint="return the DataFrame that the flow computes",
        )
    return change_rows(frame, flow) if flow.changes else frame


def _register(graph: Graph, dataset: str, frames: Mapping[str, DataFrame]) -> None:
    """Make the dataset's view once every flow into it has been called."""
    feeding = [f for f in graph.feeding(dataset) if not f.at_rest]
    # What is staged for a table that changes by key is not what it holds: nobody may read that as the table.
    if all(f.name in frames for f in feeding) and not any(f.changes for f in feeding):
        rows = kept(union_of([frames[f.name] for f in feeding]), graph.datasets[dataset])
        rows.createOrReplaceTempView(graph.views[dataset])


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of several flows into one dataset; a column that one lacks is null there."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def missing(error: UserCodeError, graph: Graph) -> str | None:
    """The dataset that Spark could not find, if that is what went wrong."""
    cause = error.__cause__
    if not isinstance(cause, AnalysisException) or cause.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
        return None
    table = (cause.getMessageParameters() or {}).get("relationName", "").replace("`", "")
    views = {view.lower(): name for name, view in graph.views.items()}
    return views.get(table.lower()) or graph.meaning(table)


def _better(graph: Graph, flow: Flow, error: UserCodeError) -> AnabranchError:
    """What is behind an error: a table that is changed by key has no view that could be found.

    And a name with another catalogue or database than the project's is not that of a dataset.
    """
    name = missing(error, graph)
    if name and any(f.changes for f in graph.feeding(name)):
        return changes_as_stream(flow, name)
    outside = (text for text in flow.inputs if graph.meaning(text) is None)
    alike = [(text, one) for text in outside if (one := graph.meaning(text.rpartition(".")[2]))]
    if name or not alike or error.details.get("condition") not in _NOT_FOUND:
        return error
    hint = '"{}" is a table from outside; to mean "{}", say its catalog and database in the project file'
    return UserCodeError(error.code, error.message, where=error.where, hint=hint.format(*alike[0]))


def _stuck(flow: Flow) -> UserCodeError:
    return UserCodeError(
        "FLOW_WAITS",
        f'flow "{flow.name}" waits for a dataset that waits for it',
        where=flow.where,
        hint="break the circle: one of the flows must read a source instead",
    )


def _not_streaming(graph: Graph, frames: Mapping[str, DataFrame]) -> list[UserCodeError]:
    return [
        UserCodeError(
            "FLOW_NOT_STREAMING",
            f'flow "{flow.name}" feeds the {graph.datasets[flow.target].kind} "{flow.target}" with a batch query',
            where=flow.where,
            hint="read its input with spark.readStream",
        )
        for flow in graph.pipeline.flows
        if flow.name in frames
        and graph.datasets[flow.target].kind in (Kind.STREAMING_TABLE, Kind.SINK)
        and not frames[flow.name].isStreaming
    ]


def _with_true_inputs(graph: Graph, frames: Mapping[str, DataFrame]) -> Pipeline:
    flows = []
    for flow in graph.pipeline.flows:
        if flow.name not in frames:
            flows.append(flow)
            continue
        read = {view.lower() for view in views_read(frames[flow.name])}
        inputs = tuple(name for name, view in graph.views.items() if view.lower() in read)
        outside = tuple(text for text in flow.inputs if graph.meaning(text) is None)
        flows.append(replace(flow, inputs=inputs + outside, inputs_known=True))
    return replace(graph.pipeline, flows=tuple(flows))
