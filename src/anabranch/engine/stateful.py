"""Flows that keep state: what cannot be run is refused before anything is read, what needs a state store gets it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from anabranch.core.declarations import Flow, Kind
from anabranch.engine.catalyst import check_appends, keeps_state, transforms_with_state
from anabranch.engine.catalyst_nodes import analyzed
from anabranch.engine.user_code import spark_message
from anabranch.errors import ProjectError, UserCodeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.core.graph import Graph

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STORES = "org.apache.spark.sql.execution.streaming.state."

#: For a query of update flows: Spark refuses two aggregations in one, although these stand side by side here. Each flow
#: has been checked alone.
UPDATING = {"spark.sql.streaming.unsupportedOperationCheck": "false"}


def not_appending(graph: Graph, frames: Mapping[str, DataFrame]) -> list[UserCodeError]:
    """The flows into streaming tables and sinks that would have to change rows they gave before."""
    failed = []
    for flow in graph.pipeline.flows:
        frame = frames.get(flow.name)
        if frame is None or not frame.isStreaming or graph.datasets[flow.target].kind not in _FED_BY_STREAMS:
            continue
        try:
            check_appends(frame, updates=flow.mode == "update")
        except AnalysisException as error:
            failed.append(_refused(flow, error))
    return failed


_FED_BY_STREAMS = (Kind.STREAMING_TABLE, Kind.SINK)


def _refused(flow: Flow, error: AnalysisException) -> UserCodeError:
    if (error.getCondition() or "").startswith("STREAMING_OUTPUT_MODE"):
        return UserCodeError(
            "AGGREGATE_WITHOUT_WATERMARK",
            f'flow "{flow.name}" aggregates a stream without a watermark: its rows would never be final',
            where=flow.where,
            hint='put .withWatermark("<time column>", "10 minutes") before the groupBy and group by a window of that '
            "column; for totals that go on changing declare a materialized view, or feed a sink with update_flow",
        )
    return UserCodeError(
        "STREAM_UNSUPPORTED",
        f'flow "{flow.name}" has a step that Spark cannot do on a stream: {spark_message(error)}',
        where=flow.where,
        hint="leave the step out, or do it in a materialized view, which is computed from tables at rest",
    )


def updating(flows: Iterable[Flow], frames: Mapping[str, DataFrame]) -> bool:
    """Whether the query of these flows gives rows again that have changed; a query does so for all of them or for none.

    Flows that keep no state give the same either way.
    """
    feeding = list(flows)
    updates = [f for f in feeding if f.mode == "update"]
    for flow in feeding if updates else ():
        if flow.mode != "update" and keeps_state(analyzed(frames[flow.name])):
            raise ProjectError(
                "UPDATE_BESIDE_APPEND",
                f'flow "{flow.name}" keeps state and gives rows once they are final, "{updates[0].name}" in the same '
                "channel gives them whenever they change; one streaming query cannot do both",
                where=flow.where,
                hint="split the pipeline: a second project may read the same source; or make both update flows, or "
                "both append flows with a watermark",
            )
    return bool(updates)


def state_settings(frames: Iterable[DataFrame]) -> dict[str, str]:
    """The settings that flows need to keep their state; a state store that was chosen for the session is left alone."""
    for frame in frames:
        chosen = frame.sparkSession.conf.get(PROVIDER)
        if transforms_with_state(frame) and chosen == f"{_STORES}HDFSBackedStateStoreProvider":
            return {PROVIDER: f"{_STORES}RocksDBStateStoreProvider"}
    return {}
