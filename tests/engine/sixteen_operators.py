"""Sixteen operators, each a materialized view over the table `t1`: the code, and a model of it in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: A row of `t1`: id, name, amount.
Row = tuple[int, str | None, int | None]
Rows = list[Row]
Model = Callable[[Rows], list[tuple[Any, ...]]]


def _deduplicated(rows: Rows) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(rows))


#: Whose dependency on `t1` is lost by Spark's runner: analysed at once, by name, as the catalogue knows it.
BOUND_TOO_EARLY: dict[str, tuple[str, Model]] = {
    "with_column": (
        't.withColumn("twice", F.col("id") * 2)',
        lambda rows: [(*row, row[0] * 2) for row in rows],
    ),
    "with_column_renamed": ('t.withColumnRenamed("name", "called")', lambda rows: [tuple(row) for row in rows]),
    "drop": ('t.drop("amount")', lambda rows: [row[:2] for row in rows]),
    "drop_duplicates": ('t.dropDuplicates(["id"])', _deduplicated),
    "distinct": ("t.distinct()", _deduplicated),
    "fillna": ("t.fillna(-1)", lambda rows: [(i, n, -1 if a is None else a) for i, n, a in rows]),
    "dropna": ('t.dropna(subset=["id"])', lambda rows: [tuple(row) for row in rows]),
    "replace": (
        't.replace("ann", "anne", subset=["name"])',
        lambda rows: [(i, "anne" if n == "ann" else n, a) for i, n, a in rows],
    ),
}

#: Those that Spark's runner puts in order.
BOUND_TO_THE_GRAPH: dict[str, tuple[str, Model]] = {
    "selected": ('t.select("id", "amount")', lambda rows: [(i, a) for i, _, a in rows]),
    "filtered": ("t.filter('id > 0')", lambda rows: [tuple(row) for row in rows if row[0] > 0]),
    "counted": (
        't.groupBy("name").count()',
        lambda rows: [(name, sum(n == name for _, n, _ in rows)) for name in {n for _, n, _ in rows}],
    ),
    "united": ('t.union(spark.read.table("t1"))', lambda rows: [tuple(row) for row in rows * 2]),
    "ordered": ('t.orderBy("id")', lambda rows: [tuple(row) for row in rows]),
    "joined": (
        't.join(spark.read.table("t1").select("id", F.col("name").alias("again")), "id")',
        lambda rows: [(*row, row[1]) for row in rows],
    ),
    "to_df": ('t.toDF("a", "b", "c")', lambda rows: [tuple(row) for row in rows]),
    "unpivoted": (
        't.unpivot("id", ["amount"], "what", "value")',
        lambda rows: [(i, "amount", a) for i, _, a in rows],
    ),
}

ALL = BOUND_TOO_EARLY | BOUND_TO_THE_GRAPH

#: Of those bound too early, the ones that have no way back when the catalogue does not know the table at all.
NOT_REGISTERED = tuple(name for name in BOUND_TOO_EARLY if not name.startswith("with_column"))

_HEAD = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
"""


#: Over a streaming view of the pipeline; each is refused by Spark's runner as well.
OVER_A_STREAM: dict[str, tuple[str, Model]] = {
    "s_watermark": (
        'stream("rows").selectExpr("id", "timestamp_seconds(id) AS at").withWatermark("at", "1 minute").select("id")',
        lambda rows: [(i,) for i, _, _ in rows],
    ),
    "s_within_watermark": (
        'stream("timed").dropDuplicatesWithinWatermark(["id"]).select("id")',
        lambda rows: [(i,) for i, _, _ in rows],
    ),
    "s_drop": ('stream("rows").drop("amount")', lambda rows: [row[:2] for row in rows]),
    "s_drop_duplicates": (
        'stream("rows").dropDuplicates(["name"]).select("name")',
        lambda rows: list({(n,) for _, n, _ in rows}),
    ),
}


def views() -> str:
    """A file with the sixteen views."""
    declared = (f"\n\n@dp.materialized_view\n{_function(name, code)}" for name, (code, _) in ALL.items())
    return _HEAD + "".join(declared)


def tables(landing: str) -> str:
    """A file with the tables over streaming views."""
    declared = (f"\n\n@dp.table\n{_function(name, code)}" for name, (code, _) in OVER_A_STREAM.items())
    return _HEAD + _TIMED.format(landing=landing) + "".join(declared)


def each_tried(landing: str) -> str:
    """A file that declares all of them, and says of each that is refused why."""
    tried = (
        f"\n\n{_function(name, code)}\n\ntried(dp.{'table' if stream else 'materialized_view'}, {name})"
        for stream, operators in ((False, ALL), (True, OVER_A_STREAM))
        for name, (code, _) in operators.items()
    )
    return _HEAD + _TIMED.format(landing=landing) + _TRIED + "".join(tried)


def _function(name: str, code: str) -> str:
    read = "stream = spark.readStream.table" if "stream(" in code else 't = spark.read.table("t1")'
    return f"def {name}():\n    {read}\n    return {code}\n"


_TIMED = """

@dp.temporary_view
def timed():
    rows = spark.readStream.format("json").schema("id INT, name STRING, amount INT").load({landing!r})
    return rows.select("id", F.timestamp_seconds(F.col("id") + 99).alias("at")).withWatermark("at", "1 minute")
"""

_TRIED = """

def tried(declare, query):
    try:
        declare(query)
    except Exception as error:
        print("REFUSED", query.__name__, error.getCondition())
"""
