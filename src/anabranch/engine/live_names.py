"""`LIVE.orders` in code and queries, as older pipelines of Databricks write it, means the dataset `orders`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from anabranch.engine.patched import patched
from anabranch.load.declare import without_live
from anabranch.load.sql_words import SqlFault, without_live_names


@contextmanager
def live_names() -> Iterator[None]:
    """Inside, the schema `LIVE` is taken off the names that are read."""
    with ExitStack() as stack:
        for owner in (SparkSession, DataFrameReader, DataStreamReader):
            stack.enter_context(patched(owner, {"table": _named}))
        stack.enter_context(patched(SparkSession, {"sql": _queried}))
        yield


def _named(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def table(self: Any, tableName: str) -> Any:
        return original(self, without_live(tableName) if isinstance(tableName, str) else tableName)

    return table


def _queried(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def sql(self: Any, sqlQuery: str, *arguments: Any, **named: Any) -> Any:
        return original(self, _without_live_names(sqlQuery), *arguments, **named)

    return sql


def _without_live_names(query: Any) -> Any:
    try:
        return without_live_names(query) if isinstance(query, str) else query
    except SqlFault:  # Spark says better what is wrong with a query
        return query
