"""Each operator against a plain Python model of it."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F

from anabranch.errors import UserCodeError
from anabranch.operators.audit import audit
from anabranch.operators.cast import cast
from anabranch.operators.dedupe import dedupe
from anabranch.operators.explode import explode
from anabranch.operators.flatten import flatten
from anabranch.operators.snake_case import snake_case
from anabranch.operators.standardise import standardise
from anabranch.operators.trim import trim

pytestmark = pytest.mark.spark


def rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]


def test_snake_case_renames_columns_and_what_is_inside(spark: Any) -> None:
    frame = spark.sql(
        "SELECT 1 AS orderId, 4 AS _meta, "
        "named_struct('UnitPrice', 2, 'inner', array(named_struct('aB', 3))) AS `Line Item`"
    )
    assert rows(snake_case(frame)) == [
        {"order_id": 1, "line_item": {"unit_price": 2, "inner": [{"a_b": 3}]}, "_meta": 4}
    ]
    with pytest.raises(UserCodeError, match='two columns the name "order_id": orderId and order_id'):
        snake_case(spark.sql("SELECT 1 AS orderId, 2 AS order_id"))


def test_flatten_takes_deep_structs_apart(spark: Any) -> None:
    deep = ", ".join(f"'f{i}', {i}" for i in range(35))
    frame = spark.sql(f"SELECT 7 AS id, named_struct('deep', named_struct({deep}), 'list', array(1, 2)) AS a")
    found = rows(flatten(frame))
    assert found == [{"id": 7, **{f"a_deep_f{i}": i for i in range(35)}, "a_list": [1, 2]}]
    assert flatten(frame, separator=".", columns=["a"]).columns[1] == "a.deep.f0"
    null = frame.select("id", F.when(F.lit(False), F.col("a")).alias("a"))
    assert set(rows(flatten(null))[0].values()) == {7, None}
    with pytest.raises(UserCodeError, match="flatten would give two columns"):
        flatten(spark.sql("SELECT 1 AS a_b, named_struct('b', 2) AS a"))


def test_explode_gives_a_row_for_each_element(spark: Any) -> None:
    frame = spark.sql(
        "SELECT * FROM VALUES (1, array(named_struct('n', 1), named_struct('n', 2))), (2, array()), (3, null) "
        "AS t(id, xs)"
    )
    assert rows(explode(frame, "xs")) == [{"id": 1, "n": 1}, {"id": 1, "n": 2}]
    outer = rows(explode(frame, "xs", outer=True, prefix="x_"))
    assert outer == [{"id": 1, "x_n": 1}, {"id": 1, "x_n": 2}, {"id": 2, "x_n": None}, {"id": 3, "x_n": None}]
    assert rows(explode(spark.sql("SELECT array(1, 2) AS xs"), "xs")) == [{"xs": 1}, {"xs": 2}]
    with pytest.raises(UserCodeError, match='explode names "id", which is int and no array'):
        explode(frame, "id")
    with pytest.raises(UserCodeError, match='explode names "ys", which is no column here'):
        explode(frame, "ys")


def test_cast_keeps_what_cannot_be_cast(spark: Any) -> None:
    frame = spark.createDataFrame(
        [("1", "2.50", "2026-01-05"), ("x", None, "05.01.2026")], "qty string, price string, day string"
    )
    assert rows(cast(frame, {"qty": "int", "price": "decimal(10,2)", "day": "date"})) == [
        {"qty": 1, "price": Decimal("2.50"), "day": date(2026, 1, 5),
         "_uncast_qty": "1", "_uncast_price": "2.50", "_uncast_day": "2026-01-05"},
        {"qty": None, "price": None, "day": None,
         "_uncast_qty": "x", "_uncast_price": None, "_uncast_day": "05.01.2026"},
    ]  # fmt: skip


def test_trim_and_standardise(spark: Any) -> None:
    texts = [" a  b ", "", "   ", None, "Up", "\tx"]
    frame = spark.createDataFrame([(t, t, 1) for t in texts], "a string, b string, n int")
    model = [(t.strip(" ") or None) if t is not None else None for t in texts]
    assert [row["a"] for row in rows(trim(frame))] == model
    only = rows(trim(frame, columns=["b"], empty_to_null=False))
    assert [row["a"] for row in only] == texts
    assert [row["b"] for row in only] == [None if t is None else t.strip(" ") for t in texts]
    done = rows(standardise(frame, upper=["a"], lower=["b"], collapse=["a"], replace={"b": {"up": "down"}}))
    assert [row["a"] for row in done] == [None if t is None else re.sub(r"\s+", " ", t).upper() for t in texts]
    assert [row["b"] for row in done] == [
        None if t is None else {"up": "down"}.get(t.lower(), t.lower()) for t in texts
    ]


def test_dedupe_keeps_the_newest_at_rest_and_the_first_of_a_stream(spark: Any) -> None:
    frame = spark.createDataFrame([("a", 1), ("a", 3), ("b", 2), ("a", 2)], "k string, n int")
    assert sorted(map(str, rows(dedupe(frame, ["k"], "n")))) == ["{'k': 'a', 'n': 3}", "{'k': 'b', 'n': 2}"]
    stream = spark.readStream.format("rate").load()
    with pytest.raises(UserCodeError, match="for how long keys are remembered"):
        dedupe(stream, ["value"])
    kept = dedupe(stream, ["value"], within="1 hour", at="timestamp")
    assert "DeduplicateWithinWatermark" in kept._jdf.queryExecution().analyzed().toString()


def test_audit_says_when_and_whence(spark: Any) -> None:
    frame = spark.createDataFrame([("f", 1), ("g", 2)], "_source_file string, n int")
    found = audit(frame)
    assert found.columns == ["n", "_ingested_at", "_epoch", "_source_file"]
    assert len({row["_ingested_at"] for row in rows(found)}) == 1
