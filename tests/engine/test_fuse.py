"""Flows in one pass equal each flow alone: the cases that were thought of. `test_fuse_generated` has those that were not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))

from together import executed, program_of, same, taken  # noqa: E402

pytestmark = pytest.mark.spark

SCHEMA = """
id INT, a INT, b INT, big BIGINT, x DOUBLE, s STRING, t STRING, who STRUCT<name: STRING, home: STRUCT<city: STRING>>,
tags ARRAY<STRING>, nums ARRAY<INT>, grid ARRAY<ARRAY<INT>>,
errors ARRAY<STRUCT<code: STRING, level: INT, notes: ARRAY<STRING>>>, props MAP<STRING, INT>
"""
MAX = 2**31 - 1
ROWS: list[tuple[Any, ...]] = [
    (1, 10, 0, 2**63 - 1, 1.5, "7", "x", ("ann", ("rome",)), [], None, [[1, 2], [], None], [("E1", 1, ["n"])], {"k": 1}),
    (2, 10, 5, -1, float("nan"), "seven", "y", ("bob", None), ["p", "q", None], [1, 0, 3], [], [], {}),
    (3, -7, 2, 0, -0.0, None, "x", None, None, [0], None, None, None),
    (4, None, 1, None, None, "12", None, (None, ("oslo",)), ["p"], [], [[3]], [("E2", 2, None), None], {"k": None, "l": 2}),
    (5, MAX, 1, 5, 1e300, " 3 ", "y", ("eve", ("rome",)), ["p", "p"], [MAX, 1], [[1], [2, 3]], [("E1", 3, [])], {"m": 3}),
    (5, MAX, 1, 5, 1e300, " 3 ", "y", ("eve", ("rome",)), ["p", "p"], [MAX, 1], [[1], [2, 3]], [("E1", 3, [])], {"m": 3}),
]


@pytest.fixture(scope="module")
def base(spark: Any) -> DataFrame:
    frame: DataFrame = spark.createDataFrame(ROWS, SCHEMA)
    return frame


@pytest.fixture(params=["whole stage", "projections", "interpreted"])
def codegen(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """Each of Spark's three ways to compute expressions."""
    off = {"spark.sql.codegen.wholeStage": "false"} if request.param != "whole stage" else {}
    if request.param == "interpreted":
        off["spark.sql.codegen.factoryMode"] = "NO_CODEGEN"
    for key, value in off.items():
        spark.conf.set(key, value)
    yield
    for key in off:
        spark.conf.unset(key)


Flows = Callable[[DataFrame], dict[str, DataFrame]]


def same_over(base: DataFrame, **flows: Callable[[DataFrame], DataFrame]) -> dict[str, str]:
    """How each flow is run; all are checked."""
    return dict(same({name: flow(base) for name, flow in flows.items()}).how)


def fused(base: DataFrame, **flows: Callable[[DataFrame], DataFrame]) -> None:
    """All flows are checked, and all are in one pass."""
    assert set(same_over(base, **flows).values()) == {"fused"}


# Errors that ANSI rules raise: wherever a flow alone does not, and only there.


GUARDED: dict[str, Callable[[DataFrame], DataFrame]] = {
    "division behind a filter": lambda d: d.where("b != 0").withColumn("y", F.expr("a / b")),
    "division before a filter": lambda d: d.withColumn("y", F.expr("a / b")).where("b != 0"),
    "two filters": lambda d: d.where("b > 1").where("a / b > 1").selectExpr("id", "a / b AS y"),
    "the same in another order of filters": lambda d: d.where("b != 0").where("a / b < 1").select("id"),
    "another threshold": lambda d: d.where("b != 0").where("a / b < 2").select("id"),
    "cast": lambda d: d.where("s rlike '^[0-9]+$'").selectExpr("id", "cast(s AS INT) AS n"),
    "cast in a condition": lambda d: d.where("s rlike '^[0-9]+$'").where("cast(s AS INT) > 3"),
    "index": lambda d: d.where("size(nums) > 2").selectExpr("nums[2] AS third"),
    "overflow": lambda d: d.where("a < 100").selectExpr("a + 1 AS more", "a * 2 AS twice"),
    "big overflow": lambda d: d.where("id > 1").selectExpr("big + 1 AS more"),
    "raise_error": lambda d: d.where("id > 100").selectExpr("raise_error('no') AS e"),
    "null condition": lambda d: d.where("a > 0").selectExpr("10 / a AS y"),
    "used below and above": lambda d: d.withColumn("y", F.expr("a / b")).where("b != 0").where("y > 1").drop("y"),
    "short circuit": lambda d: d.selectExpr("id", "b != 0 AND a / b > 1 AS p"),
    "another short circuit": lambda d: d.selectExpr("id", "b != 0 AND a / b > 2 AS p", "b = 0 OR a / b > 3 AS q"),
    "case": lambda d: d.selectExpr("CASE WHEN b != 0 THEN a / b END AS y", "coalesce(x, a / b) AS z"),
    "explode after a division": lambda d: d.withColumn("y", F.expr("a / b")).select("y", F.explode("nums")),
    "explode beside a division": lambda d: d.selectExpr("a / b AS y", "explode(nums) AS n"),
    "explode then a filter on the row": lambda d: (
        d.withColumn("y", F.expr("a / b")).select("y", "b", F.explode("tags")).where("b > 0")
    ),
    "explode then divide by the element": lambda d: (
        d.select("id", F.explode("nums").alias("n")).where("n != 0").withColumn("y", F.expr("100 / n"))
    ),
    "explode of an array that raises": lambda d: d.where("b != 0").selectExpr("explode(array(a / b, 1)) AS y"),
}


@pytest.mark.usefixtures("codegen")
def test_nothing_is_computed_for_rows_that_a_flow_alone_does_not_compute_it_for(base: DataFrame) -> None:
    fused(base, **GUARDED)


@pytest.mark.usefixtures("codegen")
@pytest.mark.parametrize("names", [[n] for n in GUARDED] + [list(GUARDED)[i::3] for i in range(3)], ids=" + ".join)
def test_the_same_in_smaller_groups(base: DataFrame, names: list[str]) -> None:
    fused(base, plain=lambda d: d, **{name: GUARDED[name] for name in names})
