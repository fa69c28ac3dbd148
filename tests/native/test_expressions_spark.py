"""Every expression that is compiled gives what Spark gives, bit by bit, of every value of which it has no doubt."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.engine.catalyst_nodes import analyzed, identity, items
from anabranch.engine.catalyst_tree import tree
from anabranch.native.expressions import compile_expr
from anabranch.native.tree import NotKnown
from native import decimal_cases
from native.expression_cases import FRAMES
from native.expressions_against_spark import compiled, database, different
from native.random_expressions import FOUND, differences, kept

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", FRAMES)
def test_gives_what_spark_gives(spark: Any, name: str) -> None:
    frame = FRAMES[name]
    assert different(spark, frame.table, frame.expressions) == []


@pytest.mark.parametrize("name", decimal_cases.FRAMES)
def test_decimals_are_what_spark_has(spark: Any, name: str) -> None:
    frame = decimal_cases.FRAMES[name]
    left = [
        one
        for one in compiled(spark.createDataFrame(frame.table), frame.expressions).values()
        if isinstance(one, NotKnown)
    ]
    assert len(left) < len(frame.expressions) / 8
    assert different(spark, frame.table, frame.expressions, all_known=False) == []


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Kolkata", "Europe/Berlin"])
def test_in_other_time_zones_too(spark: Any, zone: str) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for name in ("times", "one string", "timestamps"):
            frame = FRAMES[name]
            assert different(spark, frame.table, frame.expressions, all_known=False) == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("word", ["today", " NOW ", "epoch", "nonsense"])
def test_words_for_times_are_sparks(spark: Any, word: str) -> None:
    """Spark's optimizer knows some of them, also where the cast alone gives null."""
    texts = [f"try_cast('{word}' AS {kind})" for kind in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")]
    texts.append("try_cast(concat('to', 'day') AS DATE)")
    assert all(isinstance(one, NotKnown) for one in compiled(spark.range(1), texts).values())
    assert not isinstance(compiled(spark.range(1), ["try_cast('x' AS INT)"])["try_cast('x' AS INT)"], NotKnown)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_rows_that_dropna_leaves(spark: Any, least: int) -> None:
    rows = [(None, 1.0, "a"), (None, None, None), (1, float("nan"), "b"), (2, float("nan"), None), (3, 0.0, "c")]
    frame = spark.createDataFrame(rows, "i int, x double, s string")
    plan = analyzed(frame.dropna(thresh=least))
    one = compile_expr(tree(plan.condition()), {str(identity(a)): a.name() for a in items(plan.output())})
    table = frame.toArrow()
    connection = database()
    connection.register("records", table)
    kept = connection.sql(f"SELECT i FROM records WHERE {one.sql} AND NOT {one.doubt or 'FALSE'}").fetchall()
    assert kept == [tuple(row) for row in frame.dropna(thresh=least).select("i").collect()]


def test_random_expressions_give_what_spark_gives(spark: Any) -> None:
    assert differences(spark, seed=1, seconds=8) == []


def test_what_was_found_once(spark: Any) -> None:
    assert [line for table, texts in kept(FOUND) for line in different(spark, table, texts, all_known=False)] == []
