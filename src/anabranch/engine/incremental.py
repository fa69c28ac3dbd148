"""A view kept up: its rows before, joined with what the rows that have come since add to them.

Only where that is certain to give what computing it anew would give: counts, whole-number and decimal sums, least and
greatest values by group, over one table that has only grown. Sums of floating-point numbers depend on their order, so
they are computed anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from pyspark.sql import functions as F

from anabranch.connectors.delta_log import live_files
from anabranch.engine.catalyst_nodes import Node, analyzed, items, kind, nodes

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROW_WISE = ("Project", "Filter", "SubqueryAlias", "View", "Generate", "LogicalRelation")

#: How the results of two parts of the rows become that of both.
_JOINED = {"Count": F.sum, "Sum": F.sum, "Min": F.min, "Max": F.max}


@dataclass(frozen=True, slots=True)
class Grouped:
    """A query that groups: for each output column the aggregate function it is, None for a column it groups by."""

    columns: Mapping[str, str | None]


def grouped(frame: DataFrame) -> Grouped | None:
    """What a query that can be kept up computes; None for any other query."""
    top = analyzed(frame)
    while kind(top) in ("SubqueryAlias", "View"):
        top = top.child()
    if kind(top) != "Aggregate" or any(kind(n) not in _ROW_WISE for n in nodes(top.child())):
        return None
    by = items(top.groupingExpressions())
    columns: dict[str, str | None] = {}
    keys = set()
    for named in items(top.aggregateExpressions()):
        computed = named.child() if kind(named) == "Alias" else named
        place = next((i for i, key in enumerate(by) if computed.semanticEquals(key)), None)
        if place is not None:
            keys.add(place)
            columns[named.name()] = None
            continue
        function = _function(computed)
        if function is None:
            return None
        columns[named.name()] = function
    whole = len(columns) == len(frame.columns) and len(keys) == len(by)
    return Grouped(columns) if whole else None


def _function(expression: Node) -> str | None:
    if kind(expression) != "AggregateExpression" or expression.isDistinct():
        return None
    function = expression.aggregateFunction()
    name = kind(function)
    exact = function.dataType().typeName().split("(")[0] in ("long", "decimal")
    return name if name in ("Count", "Min", "Max") or (name == "Sum" and exact) else None


def together(before: DataFrame, added: DataFrame, query: Grouped) -> DataFrame:
    """The query's result over all rows, given that over those before and that over those added."""
    types = {f.name: f.dataType for f in added.schema}
    both = before.select(*_named(added.columns)).unionAll(added)
    keys = [F.col(f"`{name}`") for name, function in query.columns.items() if function is None]
    joined: list[Column] = [
        _JOINED[function](F.col(f"`{name}`")).cast(types[name]).alias(name)
        for name, function in query.columns.items()
        if function is not None
    ]
    result = both.groupBy(*keys).agg(*joined) if joined else both.select(*keys).distinct()
    return result.select(*_named(added.columns))


def rows_since(spark: SparkSession, table: DataFrame, location: str, before: int, now: int) -> DataFrame | None:
    """The rows that a table has got since a version; None when that is not all that has happened to it.

    `table` is the table as it is now. A partitioned table is not looked at: the names of its folders do not always tell
    the values.
    """
    newest = DeltaTable(location, version=now)
    if newest.metadata().partition_columns:
        return None
    was, is_now = live_files(DeltaTable(location, version=before)), live_files(newest)
    if not was <= is_now:
        return None
    added = sorted(f"{location}/{path}" for path in is_now - was)
    return spark.read.schema(table.schema).parquet(*added) if added else table.limit(0)


def _named(columns: Sequence[str]) -> list[Column]:
    return [F.col(f"`{name}`") for name in columns]
