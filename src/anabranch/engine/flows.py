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

from anabranch.core.declarations import Flow, Kind, Pipeline
from anabranch.core.graph import Graph, build, resolve
from anabranch.engine.catalyst import views_read
from anabranch.engine.changes import change_rows
from anabranch.engine.quality import kept
from anabranch.engine.user_code import user_code
from anabranch.errors import AnabranchError, ProjectErrors, UserCodeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Resolved:
    """A pipeline whose flows were called: the graph with the inputs they really have, and a frame for each flow."""

    graph: Graph
    frames: Mapping[str, DataFrame]


def resolve_flows(spark: SparkSession, pipeline: Pipeline, *, streaming: bool = True) -> Resolved:
    """Call each flow after those it reads; raises `ProjectErrors` with every flow that failed.

    `streaming` asks that outputs be fed by streaming queries; the frames of one batch are not.
    """
    graph = build(pipeline)
    try:
        return _resolve(spark, graph, streaming=streaming)
    finally:
        # The frames are analysed by now. A view left behind would be found by a later run in the same process.
        for name in graph.datasets:
            spark.catalog.dropTempView(name)


def _resolve(spark: SparkSession, graph: Graph, *, streaming: bool) -> Resolved:
    frames: dict[str, DataFrame] = {}
    failed: list[AnabranchError] = []
    waiting = [f for name in graph.order for f in graph.feeding(name)]
    while waiting:
        later: list[Flow] = []
        for flow in waiting:
            try:
                frames[flow.name] = _call(spark, flow)
            except UserCodeError as error:
                # A name computed at run time could not be put in order before: try again once it is there.
                if _missing(error) in {f.target for f in waiting if f.name not in frames and f is not flow}:
                    later.append(flow)
                else:
                    failed.append(error)
                continue
            _register(graph, flow.target, frames)
        if len(later) == len(waiting):
            failed += [_stuck(flow) for flow in later]
            break
        waiting = later
    failed += _not_streaming(graph, frames) if streaming else []
    if failed:
        raise ProjectErrors(failed)
    return Resolved(build(_with_true_inputs(graph.pipeline, frames)), frames)


def _call(spark: SparkSession, flow: Flow) -> DataFrame:
    with user_code(f'flow "{flow.name}"', flow.where):
        for key, value in flow.settings.items():
            spark.conf.set(key, value)
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
    feeding = graph.feeding(dataset)
    # What is staged for a table that changes by key is not what it holds: nobody may read that as the table.
    if all(f.name in frames for f in feeding) and not any(f.changes for f in feeding):
        kept(union_of([frames[f.name] for f in feeding]), graph.datasets[dataset]).createOrReplaceTempView(dataset)


def union_of(frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of several flows into one dataset; a column that one lacks is null there."""
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _missing(error: UserCodeError) -> str | None:
    """The table that Spark could not find, if that is what went wrong."""
    cause = error.__cause__
    if isinstance(cause, AnalysisException) and cause.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
        return (cause.getMessageParameters() or {}).get("relationName", "").replace("`", "")
    return None


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


def _with_true_inputs(pipeline: Pipeline, frames: Mapping[str, DataFrame]) -> Pipeline:
    names = [d.name for d in pipeline.datasets]
    flows = []
    for flow in pipeline.flows:
        read = views_read(frames[flow.name])
        inputs = tuple(n for n in names if n in read)
        outside = tuple(text for text in flow.inputs if resolve(text, names) is None)
        flows.append(replace(flow, inputs=inputs + outside, inputs_known=True))
    return replace(pipeline, flows=tuple(flows))
