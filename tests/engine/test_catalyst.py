"""Each look inside Spark, so that an upgrade that changes one fails here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import ArithmeticException
from pyspark.sql import functions as F

from anabranch.engine.catalyst import (
    Catalyst,
    check_version,
    describe,
    is_source,
    meaning,
    same_source,
    source_numbers,
    sources,
    views_read,
)
from anabranch.engine.catalyst_nodes import analyzed, identity, items, kind, nodes
from anabranch.errors import SetupError

pytestmark = pytest.mark.spark


@pytest.fixture
def catalyst(spark: Any) -> Catalyst:
    return Catalyst(spark)


class _Old:
    version = "3.5.1"


def test_check_version(spark: Any) -> None:
    check_version(spark)
    with pytest.raises(SetupError) as refused:
        check_version(_Old())  # type: ignore[arg-type]
    assert refused.value.code == "SPARK_VERSION"


def test_kinds_of_nodes_and_expressions(spark: Any) -> None:
    plan = analyzed(spark.range(3).where("id > 1").select(F.explode(F.array("id")).alias("x")))
    assert [kind(node) for node in nodes(plan)] == ["Project", "Generate", "Filter", "Range"]
    generate = plan.children().apply(0)
    assert kind(generate.generator()) == "Explode"
    assert not generate.outer()
    assert [a.name() for a in items(generate.generatorOutput())] == ["x"]
    condition = generate.children().apply(0).condition()
    assert kind(condition) == "GreaterThan"
    assert [kind(child) for child in items(condition.children())] == ["AttributeReference", "Cast"]
    assert (condition.deterministic(), condition.foldable(), condition.nullable()) == (True, False, False)


def test_identities_follow_an_attribute_through_a_plan(spark: Any) -> None:
    plan = analyzed(spark.range(3).selectExpr("id AS a", "id + 1 AS b").select("b"))
    below = plan.children().apply(0)
    renamed, added = items(below.projectList())
    assert [identity(a) for a in items(plan.output())] == [identity(added)]
    assert identity(added.toAttribute()) == identity(added)
    assert [identity(a) for a in items(added.child().references().toSeq())] == [identity(renamed.child())]
    assert [identity(a) for a in items(below.projectList().diff(below.child().output()))] == [
        identity(renamed),
        identity(added),
    ]


def test_queries_inside_expressions_are_nodes_too(spark: Any) -> None:
    plan = analyzed(spark.range(3).where("id > (SELECT min(id) FROM range(7))"))
    assert "Aggregate" in [kind(node) for node in nodes(plan)]
    assert plan.subqueries().size() == 1


def test_views_read(spark: Any) -> None:
    spark.range(3).createOrReplaceTempView("looked_at")
    assert views_read(spark.sql("SELECT id FROM looked_at")) == {"looked_at"}
    assert views_read(spark.range(3)) == set()
    spark.catalog.dropTempView("looked_at")


def test_sources_are_told_apart_by_what_they_read(spark: Any, tmp_path: Path) -> None:
    def read(**options: str) -> Any:
        return spark.readStream.schema("a INT").options(**options).json(str(tmp_path))

    def source(frame: Any) -> Any:
        return next(node for node in nodes(analyzed(frame)) if is_source(node))

    assert same_source(source(read())) == same_source(source(read().select("a")))
    assert same_source(source(read())) == same_source(source(read().select("_metadata.file_path")))
    assert same_source(source(read())) != same_source(source(read(maxFilesPerTrigger="1")))
    assert same_source(source(read())) != same_source(source(spark.readStream.schema("a STRING").json(str(tmp_path))))
    assert sources(read().union(read())) == (f"json path={tmp_path}",) * 2
    rate = spark.readStream.format("rate").option("rowsPerSecond", 5).load()
    assert sources(rate) == ("rate rowspersecond=5",)
    assert describe(source(rate)) == "rate rowspersecond=5"
    assert [identity(leaf.output().apply(0)) for leaf in items(analyzed(rate).collectLeaves())] == [
        identity(analyzed(rate).output().apply(0))
    ]


def test_sources_have_the_numbers_that_spark_gives_them(spark: Any, tmp_path: Path) -> None:
    """One that is read in two places is one, or two; its offsets are those of each place, in this order."""
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.json").write_text('{"id": 1}')
    a, b = (spark.readStream.schema("id INT").json(str(tmp_path / name)) for name in "ab")
    rate = spark.readStream.format("rate").load().select(F.col("value").cast("int").alias("id"))
    told = a.select(F.length("_metadata.file_name").alias("id"))
    two = a.union(a).withColumnRenamed("id", "two")
    frames = {
        "united": a.union(b).union(rate).union(a),
        "told": told.union(b).union(a).union(told).union(b),
        "joined": b.union(a).join(two, F.expr("id = two")).union(b.select("id", "id")),
    }
    for name, frame in frames.items():
        checkpoint = tmp_path / name
        writer = frame.writeStream.foreachBatch(lambda rows, _: rows.count() and None)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(once=True).start()
        query.awaitTermination()
        numbers, places = source_numbers(frame), sources(frame)
        assert len((checkpoint / "offsets" / "0").read_text().splitlines()) == 2 + len(places)
        for number, place in zip(numbers, places, strict=True):
            if place.startswith("json"):
                listed = json.loads((checkpoint / "sources" / str(number) / "0").read_text().splitlines()[1])
                assert Path(listed["path"]).parent.name == place[-1], name
        folders = {p.name for p in (checkpoint / "sources").iterdir()}
        assert {str(n) for n, place in zip(numbers, places, strict=True) if place.startswith("json")} <= folders
        assert folders <= set(map(str, numbers)), name
        assert len(query.lastProgress["sources"]) == len(set(numbers)), name


def test_sequences(catalyst: Catalyst) -> None:
    assert items(catalyst.seq(["a", "b"])) == ["a", "b"]
    assert catalyst.nothing.isEmpty()


def test_what_calls_python_or_unites(spark: Any, catalyst: Catalyst) -> None:
    double = F.udf(lambda n: n * 2, "bigint")
    called = analyzed(spark.range(3).select(double("id").alias("x"), F.col("id")).where("x > 1"))
    assert catalyst.calls_python(called)
    assert not catalyst.calls_python(called.condition())
    assert catalyst.calls_python(called.children().apply(0).projectList().apply(0))
    assert not catalyst.unites(called)
    assert catalyst.unites(analyzed(spark.range(3).union(spark.range(2)).where("id > 1")))


def test_meaning(spark: Any) -> None:
    plan = analyzed(
        spark.range(3).selectExpr("id + 1 AS a", "1 + id AS b", "id + 2 AS c", "rand(1) AS r", "rand(1) AS s")
    )
    a, b, c, r, s = (alias.child() for alias in items(plan.projectList()))
    assert a.semanticEquals(b)
    assert a.semanticHash() == b.semanticHash()
    assert not a.semanticEquals(c)
    assert not r.semanticEquals(s)
    assert r.equals(s)


def test_a_meaning_is_told_also_of_what_overflows_while_it_is_optimized(spark: Any) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS INT) AS n")
    first, second = (rows.selectExpr(f"n + {more} AS x").selectExpr("x + 2000000000") for more in (2000000000, 1))
    with pytest.raises(ArithmeticException):
        first._jdf.queryExecution().optimizedPlan()
    assert meaning(first) == meaning(first) != meaning(second)


def test_equal_plans(spark: Any) -> None:
    frame = spark.range(3)
    one, same, other = (analyzed(frame.where(condition)) for condition in ("id > 1", "id > 1", "id > 2"))
    assert one.hashCode() == same.hashCode()
    assert one.fastEquals(same)
    assert not one.fastEquals(other)


def test_making_a_plan(spark: Any, catalyst: Catalyst) -> None:
    base = analyzed(spark.range(2))
    number = items(base.output())[0]
    e, one = catalyst.e, catalyst.integer(1)
    null = catalyst.null(number.dataType())
    isnt = catalyst.alias(e.IsNotNull(number), "isnt")
    plan = catalyst.adding([isnt], base)
    both = e.And(isnt.toAttribute(), e.Or(isnt.toAttribute(), catalyst.false))
    plan = catalyst.adding([catalyst.alias(e.If(both, number, null), "kept")], plan)
    size = e.Size(e.CreateArray(catalyst.seq([number, null])), False)
    last = e.Subtract(e.Greatest(catalyst.seq([one, size])), one)
    position = catalyst.alias(one, "position").toAttribute()
    plan = catalyst.exploded(e.Sequence(catalyst.integer(0), last), position, plan)
    plan = catalyst.filtered(e.LessThan(position, one), plan)
    kept = catalyst.alias(items(plan.output())[2], "kept", like=number)
    assert identity(kept) == identity(number)
    rows = catalyst.frame(catalyst.project([kept, catalyst.alias(position, "p")], plan)).collect()
    assert sorted(rows) == [(0, 0), (1, 0)]


def test_elements_of_arrays_and_maps(spark: Any, catalyst: Catalyst) -> None:
    base = analyzed(spark.sql("SELECT array(5, 6) AS a, map('k', 7) AS m"))
    array, map_ = items(base.output())
    e = catalyst.e
    entry = e.GetArrayItem(e.MapEntries(map_), catalyst.integer(0), False)
    columns = [
        catalyst.alias(e.GetArrayItem(array, catalyst.integer(1), False), "x"),
        catalyst.alias(e.GetArrayItem(array, catalyst.integer(9), False), "none"),
        catalyst.alias(e.GetStructField(entry, 1, catalyst.nothing), "value"),
        catalyst.alias(e.Coalesce(catalyst.seq([e.GreaterThan(array, array), catalyst.false])), "false"),
    ]
    assert catalyst.frame(catalyst.project(columns, base)).collect() == [(6, None, 7, False)]


def test_a_filter_that_stays_where_it_is(spark: Any, catalyst: Catalyst) -> None:
    parsed = analyzed(spark.range(3).selectExpr("from_json(cast(id AS STRING), 'a INT') AS j", "id"))
    json = items(parsed.output())[0]
    frame = catalyst.frame(catalyst.filtered(catalyst.e.IsNotNull(json), parsed))
    assert str(frame._jdf.queryExecution().executedPlan().toString()).count("from_json") == 1
    assert frame.count() == 3


def test_rewriting_attributes(spark: Any, catalyst: Catalyst) -> None:
    plan = analyzed(spark.sql("SELECT id, id * 2 AS twice FROM range(3)").selectExpr("id + 1 AS x"))
    below = plan.children().apply(0)
    number, twice = items(below.output())
    changed = catalyst.rewrite(plan, {identity(number): (number, twice)})
    assert catalyst.rewrite(plan, {}) is plan
    assert [row[0] for row in catalyst.frame(changed).collect()] == [1, 3, 5]
    over = catalyst.with_children(changed, [catalyst.adding([], below)])
    assert [row[0] for row in catalyst.frame(over).collect()] == [1, 3, 5]


def test_inlining_with_clauses(spark: Any, catalyst: Catalyst) -> None:
    plan = analyzed(spark.sql("WITH t AS (SELECT id + 1 AS k FROM range(3)) SELECT k FROM t WHERE k > 1"))
    assert kind(plan) == "WithCTE"
    inlined = catalyst.inlined(plan)
    assert "CTERelationRef" not in {kind(node) for node in nodes(inlined)}
    assert sorted(row[0] for row in catalyst.frame(inlined).collect()) == [2, 3]
    plain = analyzed(spark.range(1))
    assert catalyst.inlined(plain) is plain


def test_options_of_from_json(spark: Any) -> None:
    plan = analyzed(spark.range(1).selectExpr("from_json('{}', 'a INT', map('mode', 'FAILFAST')) AS j"))
    parse = plan.projectList().apply(0).child()
    assert kind(parse) == "JsonToStructs"
    assert "FAILFAST" in parse.options().toString()
    assert parse.dataType().typeName() == "struct"
