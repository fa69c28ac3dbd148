"""A physical plan that is kept gives over other rows what a new one gives, and is kept only where that is so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.engine import native_pass
from anabranch.engine.catalyst import collect_arrow, frame_of
from anabranch.engine.catalyst_kept import KeptPlan
from anabranch.engine.user_code import with_settings

pytestmark = pytest.mark.spark

TYPES = "text STRING, raw BINARY, number INT, at TIMESTAMP, place STRUCT<file: STRING, sizes: ARRAY<BIGINT>>"
ARROW = pa.schema(
    [
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("number", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("place", pa.struct([("file", pa.string()), ("sizes", pa.list_(pa.int64()))])),
    ]
)
PLACE = {"file": "a", "sizes": [1, None, 3]}
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "one": [('{"a":1,"b":[1,2,9]}', b"x", 1, datetime(2026, 1, 2, tzinfo=UTC), PLACE)],
    "other": [
        ('{"a":5,"b":[7]}', b"\x00\xff", 2, datetime(1581, 1, 2, tzinfo=UTC), {"file": None, "sizes": []}),
        (None, None, None, None, None),
        ('{"a":"x', b"", -7, datetime(9999, 1, 2, tzinfo=UTC), {"file": "é😀", "sizes": None}),
    ],
    "many": [(f'{{"a":{i},"b":[{i},2]}}', b"z", i, None, PLACE) for i in range(5000)],
    "none": [("{}", b"", 4000, None, None)],
}


def sent(spark: SparkSession, rows: list[tuple[Any, ...]]) -> DataFrame:
    columns = [list(column) for column in zip(*rows, strict=True)]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    with with_settings(spark, native_pass._AS_RDD):
        return frame_of(spark, pa.table(arrays, schema=ARROW), StructType.fromDDL(TYPES))


def queried(rows: DataFrame) -> DataFrame:
    parsed = rows.select("*", F.from_json("text", "a INT, b ARRAY<INT>").alias("e")).where(
        "number IS NULL OR number < 4000"
    )
    each = parsed.select(
        "e.a", F.explode_outer("e.b").alias("b"), "raw", "at", "place.sizes", F.expr("number * 2 AS n")
    )
    return each.where("b IS NULL OR b > 1").withColumn("late", F.col("at") > F.lit("2000-01-01").cast("timestamp"))


def values(frame: DataFrame) -> list[dict[str, Any]]:
    return [row for batch in collect_arrow(frame) for row in batch.to_pylist()]


def test_other_rows_give_what_a_new_plan_gives(spark: Any) -> None:
    kept = KeptPlan.of(queried(sent(spark, ROWS["one"])))
    assert kept is not None
    for name in ("one", "other", "many", "none", "one"):
        wanted = values(queried(sent(spark, ROWS[name])))
        assert values(kept.over(sent(spark, ROWS[name]))) == wanted
        assert bool(wanted) == (name != "none")


def test_a_row_that_fails_fails_in_the_same_way_and_the_next_do_not(spark: Any) -> None:
    def halved(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("1 / number AS share")

    zero = [(None, None, 0, None, None)]
    kept = KeptPlan.of(halved(sent(spark, ROWS["one"])))
    assert kept is not None
    for frame in (halved(sent(spark, zero)), kept.over(sent(spark, zero))):
        with pytest.raises(ArithmeticException, match="DIVIDE_BY_ZERO"):
            values(frame)
    assert values(kept.over(sent(spark, ROWS["one"]))) == [{"share": 1.0}]


@pytest.mark.parametrize(
    "made",
    [
        lambda rows: rows.groupBy("number").count(),
        lambda rows: rows.orderBy("number"),
        lambda rows: rows.limit(3),
        lambda rows: rows.dropDuplicates(["number"]),
        lambda rows: rows.join(F.broadcast(rows.selectExpr("number")), "number"),
        lambda rows: rows.union(rows),
        lambda rows: rows.select(F.udf(lambda x: x)("text")),
        lambda rows: rows.where(F.col("number") > rows.selectExpr("max(number)").scalar()),
        lambda rows: rows.sparkSession.range(3),
        lambda rows: rows.cache(),
    ],
)
def test_what_may_remember_rows_is_not_kept(spark: Any, made: Callable[[DataFrame], DataFrame]) -> None:
    rows = sent(spark, ROWS["one"])
    try:
        assert KeptPlan.of(made(rows)) is None
    finally:
        rows.unpersist()
