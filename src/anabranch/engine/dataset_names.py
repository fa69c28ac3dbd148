"""Names in the code of flows mean datasets, however they are written: `orders`, `main.sales.orders`, `LIVE.orders`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from anabranch.core.graph import Graph
from anabranch.core.names import meanings
from anabranch.engine.patched import patched
from anabranch.errors import ProjectError
from anabranch.load.declare import without_live
from anabranch.load.sql_tables import with_tables
from anabranch.load.sql_words import SqlFault, without_live_names

# Of this thread alone: what other threads read meanwhile, such as functions that take an epoch's rows, is their own.
_graph: ContextVar[Graph | None] = ContextVar("anabranch_graph", default=None)


@contextmanager
def dataset_names() -> Iterator[None]:
    """Inside, the schema `LIVE` is taken off the names that are read, and datasets are read by their views."""
    with ExitStack() as stack:
        for owner in (SparkSession, DataFrameReader, DataStreamReader):
            stack.enter_context(patched(owner, {"table": _named}))
        stack.enter_context(patched(SparkSession, {"sql": _queried}))
        yield


@contextmanager
def reading(graph: Graph) -> Iterator[None]:
    """Inside, names mean the datasets of `graph`; tables from outside are left alone."""
    token = _graph.set(graph)
    try:
        yield
    finally:
        _graph.reset(token)


def _named(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def table(self: Any, tableName: str) -> Any:
        if isinstance(tableName, str):
            tableName = without_live(tableName)
            tableName = _view(tableName) or tableName
        return original(self, tableName)

    return table


def _queried(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def sql(self: Any, sqlQuery: str, *arguments: Any, **named: Any) -> Any:
        return original(self, _with_views(sqlQuery), *arguments, **named)

    return sql


def _with_views(query: Any) -> Any:
    try:
        return with_tables(without_live_names(query), _view) if isinstance(query, str) else query
    except SqlFault:  # Spark says better what is wrong with a query
        return query


def _view(name: str) -> str | None:
    """The view of the dataset that a name means, unless that is what it says."""
    graph = _graph.get()
    if graph is None:
        return None
    found = meanings(name, graph.datasets, graph.pipeline.home)
    if len(found) > 1:
        hint = f"write the whole name: {' or '.join(found)}"
        raise ProjectError("PROJECT_AMBIGUOUS_INPUT", f'"{name}" may be one of several datasets', hint=hint)
    if not found or graph.views[found[0]].lower() == name.lower():
        return None
    return f"`{graph.views[found[0]]}`"
