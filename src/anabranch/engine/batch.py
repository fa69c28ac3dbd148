"""Call flows over tables at rest: views of the cut, and the past of an output that has just been declared.

Every table of the pipeline is a temporary view of its rows at the cut, every view is called again over those.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from anabranch.core.declarations import Flow, Kind
from anabranch.core.graph import Graph
from anabranch.engine.dataset_names import reading
from anabranch.engine.flows import call_into, missing, union_of
from anabranch.engine.patched import patched
from anabranch.engine.quality import kept
from anabranch.errors import UserCodeError
from anabranch.load.declare import without_live

#: Gives the rows of a table of the pipeline.
Tables = Mapping[str, Callable[[], DataFrame]]


def batch_frame(spark: SparkSession, graph: Graph, flow: Flow, tables: Tables) -> DataFrame:
    """The frame of a flow over tables at rest; `readStream.table` gives their rows too."""
    registered: list[str] = []
    try:
        with reading(graph), _streams_at_rest(spark, graph):
            return _called(spark, graph, flow, tables, registered)
    finally:
        for name in registered:
            spark.catalog.dropTempView(graph.views[name])


def _called(spark: SparkSession, graph: Graph, flow: Flow, tables: Tables, registered: list[str]) -> DataFrame:
    for name in graph.inputs(flow):
        _register(spark, graph, name, tables, registered)
    while True:
        try:
            return call_into(spark, graph, flow)
        except UserCodeError as error:
            # A name that is computed could not be known before.
            found = missing(error, graph)
            if found is None or found in registered:
                raise
            _register(spark, graph, found, tables, registered)


def _register(spark: SparkSession, graph: Graph, name: str, tables: Tables, registered: list[str]) -> None:
    if name in registered:
        return
    if name in tables:
        frame = tables[name]()
    else:
        feeding = graph.feeding(name)
        frames = [_called(spark, graph, f, tables, registered) for f in feeding]
        frame = kept(union_of(frames), graph.datasets[name])
    registered.append(name)
    frame.createOrReplaceTempView(graph.views[name])


@contextmanager
def _streams_at_rest(spark: SparkSession, graph: Graph) -> Iterator[None]:
    def at_rest(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def table(self: Any, tableName: str) -> Any:
            name = graph.meaning(without_live(tableName))
            return spark.table(graph.views[name]) if name else original(self, tableName)

        return table

    with patched(DataStreamReader, {"table": at_rest}):
        yield


def is_table(graph: Graph, name: str) -> bool:
    """Whether a dataset has rows at the cut."""
    return graph.datasets[name].kind in (Kind.STREAMING_TABLE, Kind.MATERIALIZED_VIEW)
