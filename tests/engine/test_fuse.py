"""Flows in one pass equal each flow alone: the cases that were thought of; others are in `test_fuse_generated`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parent))

from together import collected, executed, plan_of, program_of, rows, same, taken

from anabranch.engine.program import make_program
from anabranch.engine.rows import take

pytestmark = pytest.mark.spark

SCHEMA = """
id INT, a INT, b INT, big BIGINT, x DOUBLE, s STRING, t STRING, who STRUCT<name: STRING, home: STRUCT<city: STRING>>,
tags ARRAY<STRING>, nums ARRAY<INT>, grid ARRAY<ARRAY<INT>>,
errors ARRAY<STRUCT<code: STRING, level: INT, notes: ARRAY<STRING>>>, props MAP<STRING, INT>
"""
MAX = 2**31 - 1
ROWS: list[tuple[Any, ...]] = [
    (
        1,
        10,
        0,
        2**63 - 1,
        1.5,
        "7",
        "x",
        ("ann", ("rome",)),
        [],
        None,
        [[1, 2], [], None],
        [("E1", 1, ["n"])],
        {"k": 1},
    ),
    (2, 10, 5, -1, float("nan"), "seven", "y", ("bob", None), ["p", "q", None], [1, 0, 3], [], [], {}),
    (3, -7, 2, 0, -0.0, None, "x", None, None, [0], None, None, None),
    (
        4,
        None,
        1,
        None,
        None,
        "12",
        None,
        (None, ("oslo",)),
        ["p"],
        [],
        [[3]],
        [("E2", 2, None), None],
        {"k": None, "l": 2},
    ),
    (
        5,
        MAX,
        1,
        5,
        1e300,
        " 3 ",
        "y",
        ("eve", ("rome",)),
        ["p", "p"],
        [MAX, 1],
        [[1], [2, 3]],
        [("E1", 3, [])],
        {"m": 3},
    ),
    (
        5,
        MAX,
        1,
        5,
        1e300,
        " 3 ",
        "y",
        ("eve", ("rome",)),
        ["p", "p"],
        [MAX, 1],
        [[1], [2, 3]],
        [("E1", 3, [])],
        {"m": 3},
    ),
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
    "another short circuit": lambda d: d.selectExpr("id", "b != 0 AND a / b > 2 AS p"),
    "a third short circuit": lambda d: d.selectExpr("id", "b = 0 OR a / b > 3 AS p"),
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


@pytest.mark.parametrize(
    "flow",
    [
        lambda d: d.selectExpr("a / b AS y"),
        lambda d: d.where("a / b > 1").where("b != 0"),
        lambda d: d.where("id < 3").selectExpr("cast(s AS INT) AS n"),
        lambda d: d.select(F.explode("nums").alias("n")).selectExpr("100 / n AS y"),
        lambda d: d.where("id < 0").selectExpr("1 / 0 AS constant"),
    ],
)
def test_what_raises_alone_raises_in_one_pass(base: DataFrame, flow: Callable[[DataFrame], DataFrame]) -> None:
    fused(base, raises=flow, quiet=lambda d: d.where("b != 0").selectExpr("a / b AS y"), all=lambda d: d)


def test_what_a_flow_does_not_use_is_not_computed(base: DataFrame) -> None:
    fused(
        base,
        unused=lambda d: d.withColumn("y", F.expr("a / b")).select("id"),
        overwritten=lambda d: d.withColumn("y", F.expr("a / b")).withColumn("y", F.lit(1)),
        unused_before_explode=lambda d: d.withColumn("y", F.expr("a / b")).select(F.explode("tags").alias("tag")),
    )


# Generators.


@pytest.mark.usefixtures("codegen")
def test_generators(base: DataFrame) -> None:
    fused(
        base,
        rows=lambda d: d.select("id", "s"),
        explode=lambda d: d.select("id", F.explode("tags").alias("tag")),
        explode_outer=lambda d: d.select("id", F.explode_outer("tags").alias("tag")),
        posexplode=lambda d: d.select("id", F.posexplode("nums")),
        posexplode_outer=lambda d: d.select("id", F.posexplode_outer("nums")),
        inline=lambda d: d.select("id", F.inline("errors")),
        inline_outer=lambda d: d.select("id", F.inline_outer("errors")),
        map=lambda d: d.select("id", F.explode("props")),
        map_outer=lambda d: d.select("id", F.explode_outer("props")),
        map_pos=lambda d: d.select("id", F.posexplode("props")),
        map_pos_outer=lambda d: d.select("id", F.posexplode_outer("props")),
        constant=lambda d: d.select("id", F.explode(F.array(F.lit(1), F.lit(2)))),
        empty=lambda d: d.selectExpr("explode(cast(array() AS array<int>))"),
        computed=lambda d: d.select("id", F.explode(F.split("s", "e"))),
        lateral=lambda d: d.sparkSession.sql(
            "SELECT id, t.* FROM {d} LATERAL VIEW OUTER posexplode(tags) t AS p, tag", d=d
        ),
    )


def test_generators_and_filters(base: DataFrame) -> None:
    fused(
        base,
        before=lambda d: d.where("size(tags) > 1").select("id", F.explode("tags").alias("tag")),
        after=lambda d: (
            d.select("id", "s", F.explode("tags").alias("tag")).where("tag = 'p'").withColumn("n", F.length("s"))
        ),
        null_after=lambda d: d.select("id", F.explode_outer("tags").alias("tag")).where("tag != 'p'"),
        away=lambda d: d.where("tags IS NULL").select("id", "tags"),
        other_array=lambda d: d.where("id > 1").select(F.explode("nums").alias("n")),
        on_the_row_after=lambda d: d.select("id", "b", F.explode("nums").alias("n")).where("b = 1 AND n > 1"),
        element=lambda d: d.select(F.explode("errors").alias("e")).where("e.level > 1").select("e.*"),
        null_element=lambda d: d.select("id", F.explode("errors").alias("e")).where("e IS NULL"),
        nothing=lambda d: d.where("id > 100").select(F.explode("tags")),
    )


def test_a_flow_that_explodes_more_than_once(base: DataFrame) -> None:
    fused(
        base,
        rows=lambda d: d.where("id > 1").select("id"),
        nested=lambda d: d.select("id", F.explode("grid").alias("row")).select("id", F.explode("row").alias("cell")),
        nested_outer=lambda d: d.select("id", F.posexplode_outer("grid").alias("p", "row")).select(
            "*", F.posexplode_outer("row")
        ),
        cross=lambda d: d.select("id", "nums", F.explode("tags").alias("tag")).select("id", "tag", F.explode("nums")),
        notes=lambda d: (
            d.select("id", F.inline("errors")).where("level < 3").select("id", "code", F.explode("notes").alias("note"))
        ),
        thrice=lambda d: (
            d.select("props", F.explode("grid").alias("row"))
            .select("props", F.explode("row").alias("cell"))
            .where("cell > 1")
            .select("cell", F.explode_outer("props"))
        ),
        guarded=lambda d: (
            d.select("b", F.explode("grid").alias("row"))
            .where("b > 0")
            .select("b", F.explode("row").alias("cell"))
            .where("cell > 1")
            .selectExpr("10 / b / (cell - 1) AS y")
        ),
        once=lambda d: d.select("id", F.explode("tags")),
    )


# Names, types, and columns that are not computed.


def test_names_and_columns(base: DataFrame) -> None:
    fused(
        base,
        as_it_is=lambda d: d,
        literals=lambda d: d.select(F.lit(1).alias("one"), F.lit(None).alias("none"), F.lit("x")),
        literals_of_some=lambda d: d.where("id > 2").select(F.lit(1).alias("one")),
        twice=lambda d: d.select("id", "id", "a", "id"),
        doubled_name=lambda d: d.select("id", F.col("a").alias("id"), F.expr("id * 2").alias("id")),
        odd=lambda d: d.select(
            F.col("id").alias("a.b"),
            F.col("a").alias("a`b"),
            F.col("b").alias("é ü"),
            F.col("s").alias("ID"),
            F.col("t").alias("id"),
            F.col("x").alias("x#1, y#2"),
        ),
        of_odd=lambda d: d.select(F.col("id").alias("a.b"), F.col("a").alias("x#1, y#2")).selectExpr(
            "`a.b` + 1 AS `c.d`", "`x#1, y#2`"
        ),
        renamed=lambda d: d.withColumnRenamed("id", "key").withColumnRenamed("key", "k").where("k > 1"),
        swapped=lambda d: (
            d.select(F.col("a").alias("b"), F.col("b").alias("a")).where("b > a").withColumn("c", F.expr("a - b"))
        ),
        dropped=lambda d: d.drop("s", "who", "no such column"),
        nested=lambda d: d.select("who.name", "who.home.city", F.col("who")["home"], F.struct("id", "who").alias("z")),
        map=lambda d: d.selectExpr("props['k'] AS k", "map_keys(props) AS keys", "errors.code", "errors[0].code AS c0"),
        higher=lambda d: d.selectExpr("transform(nums, n -> n / 2) AS halves", "filter(nums, n -> n > b) AS some"),
        nothing=lambda d: d.where("false"),
        null_condition=lambda d: d.where("cast(null AS boolean)"),
        not_null_condition=lambda d: d.where("NOT (a > 5)"),
    )


def test_meaning_is_what_counts_not_names(base: DataFrame) -> None:
    program = same(
        {
            "one": base.select(F.upper("s").alias("big"), F.col("id")),
            "other": base.withColumnRenamed("s", "text").select(
                F.upper("text").alias("loud"), F.col("id").alias("key")
            ),
            "third": base.where("id > 1").selectExpr("upper(s)"),
        }
    )
    wide = {part.output: [wide for wide, _ in part.columns] for part in program.parts}
    assert wide["one"] == wide["other"]
    assert wide["third"] == wide["one"][:1]
    assert len(program.frame.columns) == 3


def test_one_flow(base: DataFrame) -> None:
    fused(base, only=lambda d: d.where("id > 1").select("id", F.explode("tags")))


def test_thirty_outputs(base: DataFrame) -> None:
    flows = {
        f"f{i}": base.where(F.col("id") > i % 4).select("id", (F.col("b") + i).alias("c"), F.expr(f"a / (b + {i + 1})"))
        for i in range(30)
    }
    assert set(same(flows).how.values()) == {"fused"}


# SQL, views and layers.


def test_layers_of_views_and_sql(spark: Any, base: DataFrame) -> None:
    base.createOrReplaceTempView("bronze_v")
    spark.sql("SELECT id, a, b, tags, upper(s) AS s FROM bronze_v WHERE id > 1").createOrReplaceTempView("silver_v")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW text_v (k, v) AS SELECT id, a FROM silver_v WHERE b > 0")
    gold = spark.table("silver_v").select("id", "s", F.explode("tags").alias("tag"))
    gold.createOrReplaceTempView("gold_v")
    program = same(
        {
            "bronze": spark.table("bronze_v"),
            "silver": spark.table("silver_v"),
            "gold": spark.table("gold_v"),
            "gold_p": spark.sql("SELECT g.tag, length(g.s) AS n FROM gold_v AS g WHERE g.tag = 'p'"),
            "text": spark.sql("SELECT k + 1 AS k, v FROM text_v"),
            "with": spark.sql(
                "WITH t AS (SELECT id, a / b AS y FROM silver_v WHERE b > 0) SELECT y FROM t WHERE y > 1"
            ),
            "inner": spark.sql("SELECT z.s FROM (SELECT s, id FROM silver_v) z WHERE z.id < 5"),
        }
    )
    assert set(program.how.values()) == {"fused"}
    assert executed(program.frame).count("Scan ExistingRDD") == 1
    for view in ("bronze_v", "silver_v", "gold_v", "text_v"):
        spark.catalog.dropTempView(view)


def test_several_flows_into_one_table(spark: Any, base: DataFrame) -> None:
    frames = {
        "ints": base.selectExpr("id", "a AS `odd ``name`", "named_struct('p', 1) AS z"),
        "longs": base.where("id > 1").selectExpr("named_struct('p', 2L, 'q', 'x') AS z", "big AS id"),
    }
    program = make_program(plan_of({"ints": "table", "longs": "table"}), frames)
    united = frames["ints"].unionByName(frames["longs"], allowMissingColumns=True)
    assert taken(program, collected(program.frame))["table"] == rows(collected(united))
    assert [name for _, name in program.parts[0].columns] == united.columns
    assert set(program.how.values()) == {"fused"}


def test_steps_over_a_union_are_steps_over_each_side(spark: Any, base: DataFrame) -> None:
    other = spark.createDataFrame([(9, 0, ["z"]), (8, 2, None)], "key BIGINT, b INT, tags ARRAY<STRING>")
    both = base.select("id", "b", "tags").union(other)
    both.createOrReplaceTempView("both_v")
    program = same(
        {
            "first": base,
            "second": other.select("key"),
            "both": both,
            "gold": spark.sql("SELECT id, 10 / b AS y, t FROM both_v LATERAL VIEW explode(tags) AS t WHERE b != 0"),
            "missing": base.select("id", "s")
            .unionByName(other.select("b", "tags"), allowMissingColumns=True)
            .where("b > 0"),
            "itself": base.where("id > 1")
            .select("id", "a")
            .union(base.selectExpr("b", "a + 0L"))
            .withColumn("c", F.expr("id + 1")),
            "crossed": (
                base.where("id > 1 AND b > 0")
                .select("id", "b")
                .union(base.where("id > 2 AND b < 5").select("b", "id"))
                .where("id > 1")
                .selectExpr("id * 10 + b AS y")
            ),
            "thrice": both.union(both).union(base.select("id", "b", "tags")).where("id > 2").select("tags"),
        }
    )
    spark.catalog.dropTempView("both_v")
    assert set(program.how.values()) == {"fused"}


def test_types(base: DataFrame) -> None:
    fused(
        base,
        numbers=lambda d: d.where("s rlike '^[0-9]+$'").selectExpr(
            "cast(s AS DECIMAL(9, 2)) d", "cast(s AS TINYINT) t"
        ),
        texts=lambda d: d.where("id > 1").selectExpr(
            "cast(t AS VARCHAR(9)) v", "t COLLATE UTF8_LCASE AS c", "cast(s AS BINARY)"
        ),
        times=lambda d: d.where("b > 0").selectExpr(
            "date_add(DATE'2024-01-01', cast(10 DIV b AS INT)) d",
            "make_timestamp_ntz(2024, b, 1, 0, 0, 0) t",
            "make_dt_interval(a DIV b) i",
        ),
        nested=lambda d: d.where("b > 0").selectExpr(
            "named_struct('r', a DIV b, 'always', 1) z",
            "array(a DIV b) y",
            "map('k', a DIV b) m",
            "array(named_struct('x', 1)) w",
        ),
        collated=lambda d: d.where("t COLLATE UTF8_LCASE = 'X'").select("t"),
        nothing=lambda d: d.where("id > 1").selectExpr("NULL AS n", "array() AS e", "explode(array(NULL)) AS x"),
        everything=lambda d: d.select("id"),
    )


def test_rows_that_no_flow_wants_are_not_handed_over(base: DataFrame) -> None:
    program = same({"one": base.where("id = 1").select("s"), "two": base.where("id = 2").select(F.explode("nums"))})
    assert program.frame.count() == 1 + 3


# What is not deterministic.


def test_what_is_not_deterministic_is_computed_once_for_all(base: DataFrame) -> None:
    view = base.withColumn("r", F.rand()).withColumn("u", F.expr("uuid()"))
    frames = {
        "one": view.select("id", "r", "u"),
        "two": view.where("id > 1").select("id", "r", "u"),
        "three": view.select("id", "r", "u", F.explode("tags")),
        "four": view.where("r > 2 OR id = 5").withColumn("s", F.expr("r * 2")).select("id", F.expr("s / 2"), "u"),
    }
    found = values(frames)
    drawn = Counter(row[:3] for row in found["one"])
    assert len({row[1] for row in found["one"]}) == len(ROWS)
    for name in ("two", "three", "four"):
        assert {row[:3] for row in found[name]} <= set(drawn), name


def test_a_random_choice_in_a_view_is_made_once(base: DataFrame) -> None:
    some = base.sparkSession.range(1000).where(F.rand() < 0.5)
    found = values({"one": some.select("id"), "two": some.select("id"), "three": some.where("id < 500")})
    assert set(found["one"]) == set(found["two"])
    assert set(found["three"]) == {row for row in found["one"] if row[0] < 500}
    assert 300 < len(found["one"]) < 700


def test_two_random_numbers_are_two(base: DataFrame) -> None:
    found = values({"one": base.select(F.rand().alias("r")), "two": base.select(F.rand().alias("r"))})
    assert not set(found["one"]) & set(found["two"])


def test_what_is_seeded_equals_the_flow_alone(base: DataFrame) -> None:
    fused(
        base,
        one=lambda d: d.select("id", F.rand(7)),
        same=lambda d: d.select("id", F.rand(7).alias("again"), F.monotonically_increasing_id()),
        some=lambda d: d.where("id > 1").select("id", F.rand(7), F.monotonically_increasing_id()),
        chosen=lambda d: d.where(F.rand(7) < 0.5),
        chosen_of_some=lambda d: d.where("id > 1").where(F.rand(7) < 0.5),
        between=lambda d: d.where("id > 1").withColumn("r", F.rand(7)).where("b > 1").select("r"),
        of_elements=lambda d: d.select(F.explode("tags")).select(F.rand(7)),
    )


def values(frames: dict[str, DataFrame]) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of each flow, of one pass."""
    program = program_of(frames)
    assert set(program.how.values()) == {"fused"}
    wide = collected(program.frame)
    found = {}
    for part in program.parts:
        tables = [take(batch, part) for batch in wide.to_batches()]
        found[part.output] = [row for t in tables for row in zip(*(c.to_pylist() for c in t.columns), strict=True)]
    return found


# Python functions.


def test_python_functions(base: DataFrame) -> None:
    tenth = F.udf(lambda b: 10 // b, "int")  # raises for 0, and for null
    letters = F.udf(lambda s: list(s or ""), "array<string>")
    number = F.pandas_udf(lambda s: s * 2, "int")
    size = F.udf(lambda s: len(s or ""), "int")
    chosen = "branch: calls a Python function for chosen rows only"
    how = same_over(
        base,
        all=lambda d: d.select("id", size("s").alias("n"), number("id").alias("twice")),
        same_of_some=lambda d: d.withColumn("n", size("s")).where("id > 1").select("n"),
        by_its_result=lambda d: d.withColumn("m", size("t")).where("m > 0").select("id", "m"),
        by_its_result_and_more=lambda d: d.withColumn("y", tenth("b")).where("y > 1 AND b != 0").select("y"),
        after=lambda d: d.where("b != 0").select(tenth("b")),
        before=lambda d: d.withColumn("y", tenth("b")).where("b != 0").select("y"),
        in_a_condition=lambda d: d.where("b != 0").where(tenth("b") > 2).select("b"),
        alone_in_a_condition=lambda d: d.where(size("t") > 0).select("t"),
        in_explode=lambda d: d.select("id", F.explode(letters("s")).alias("letter")),
        of_elements=lambda d: d.select(F.explode("nums").alias("n")).where("n != 0").select(tenth("n")),
        beside_explode=lambda d: d.select(tenth("b"), F.explode("tags")),
        two=lambda d: d.select(number(size("s")).alias("z")),
    )
    assert how == {
        "all": "fused",
        "same_of_some": "fused",
        "by_its_result": "fused",
        "by_its_result_and_more": chosen,
        "after": chosen,
        "before": chosen,
        "in_a_condition": chosen,
        "alone_in_a_condition": "fused",
        "in_explode": "fused",
        "of_elements": chosen,
        "beside_explode": chosen,
        "two": "fused",
    }


# What stays a branch.


def test_branches_and_their_reasons(spark: Any, base: DataFrame) -> None:
    other = spark.range(4).withColumnRenamed("id", "key")
    counted = base.groupBy("t").agg(F.count("*").alias("n"), F.max("a").alias("most"))
    how = same_over(
        base,
        rows=lambda d: d.where("b != 0").selectExpr("a / b"),
        explode=lambda d: d.select(F.explode("tags")),
        aggregate=lambda d: counted,
        aggregate_some=lambda d: counted.where("n > 1").withColumn("more", F.expr("n + 1")),
        aggregate_exploded=lambda d: counted.select("t", F.explode(F.sequence(F.lit(1), "n"))),
        join=lambda d: d.join(other, d.id == other.key).select("key", "s"),
        self_join=lambda d: d.alias("l").join(d.alias("r"), F.expr("l.id = r.b")).select("l.id", "r.s"),
        duplicates=lambda d: d.dropDuplicates(["t", "id"]).select("t", "id"),
        distinct=lambda d: d.select("t").distinct(),
        union=lambda d: d.select("id").union(d.where("id > 2").select("a")),
        union_of_random=lambda d: d.union(d).select(F.rand(7) * 0),
        union_of_counted=lambda d: d.select("id").union(counted.select("most")).where("id > 1"),
        window=lambda d: d.select("id", F.count("*").over(Window.partitionBy("t"))),
        sort=lambda d: d.orderBy("id").select("id"),
        limit=lambda d: d.limit(100).select("id"),
        subquery=lambda d: d.where("id > (SELECT min(id) FROM range(3))").select("id"),
        in_subquery=lambda d: d.where("id IN (SELECT id FROM range(3))").select("id").where("id > 1"),
        stack=lambda d: d.selectExpr("id", "stack(2, a, b)"),
        json_tuple=lambda d: d.selectExpr("json_tuple(s, 'x')"),
        pandas=lambda d: d.select("id").mapInPandas(lambda frames: frames, "id int"),
        repartition=lambda d: d.repartition(3).select("id"),
    )
    assert how == {
        "rows": "fused",
        "explode": "fused",
        "aggregate": "branch: aggregates",
        "aggregate_some": "branch: aggregates",
        "aggregate_exploded": "branch: aggregates",
        "join": "branch: joins",
        "self_join": "branch: joins",
        "duplicates": "branch: drops duplicates",
        "distinct": "branch: drops duplicates",
        "union": "fused",
        "union_of_random": "branch: unites flows",
        "union_of_counted": "branch: aggregates",
        "window": "branch: uses a window",
        "sort": "branch: sorts",
        "limit": "branch: limits rows",
        "subquery": "branch: has a subquery",
        "in_subquery": "branch: has a subquery",
        "stack": "branch: generates rows with stack",
        "json_tuple": "branch: generates rows with json_tuple",
        "pandas": "branch: calls a Python function for many rows at a time",
        "repartition": "branch: moves rows between tasks",
    }


def test_json_is_parsed_once(spark: Any) -> None:
    texts = spark.createDataFrame([('{"a": 1, "l": [1, 2], "s": "7"}',), ("{}",), ("no",), (None,)], "value STRING")
    parsed = texts.select(F.from_json("value", "a INT, l ARRAY<INT>, s STRING").alias("e")).select("e.*")
    program = same(
        {
            "all": parsed,
            "some": parsed.where("a > 0").select("s"),
            "elements": parsed.select("a", F.explode("l").alias("n")).where("n > 1"),
            "cast": parsed.where("s rlike '[0-9]'").selectExpr("cast(s AS INT) AS n", "a / a AS y"),
        }
    )
    assert executed(program.frame).count("from_json") == 1
    alone = program_of({"elements": parsed.where("a > 0").select("a", F.explode("l").alias("n")).where("n > 1")})
    assert executed(alone.frame).count("from_json") == 1
