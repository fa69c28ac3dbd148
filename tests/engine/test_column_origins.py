"""What columns are computed from, held against what really changes when an input does; and what runs keep of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from anabranch.cli.main import main
from anabranch.core.column_lineage import DatasetColumns
from anabranch.core.events import Notice
from anabranch.core.events_data import LineageChanged
from anabranch.engine.catalyst import Catalyst
from anabranch.engine.catalyst_columns import (
    Patterns,
    foreign_calls,
    input_name,
    made_by,
    refers,
    subqueries,
    tree,
    view_name,
    window_functions,
)
from anabranch.engine.catalyst_nodes import analyzed, items, kind
from anabranch.engine.column_origins import ColumnWalk
from anabranch.engine.traced import Tracer, fresh_lineage
from anabranch.store.history import History
from anabranch.store.lineage_versions import column_lineage_of, lineage_versions

pytestmark = pytest.mark.spark

ORDERS = [(1, 5, "a", [1, 2]), (2, 7, "b", [3]), (3, 9, "a", []), (4, 11, "c", [4])]
NAMES = [(1, "x"), (2, "y"), (4, "z")]
TYPES = {"orders": "k long, v long, s string, parts array<long>", "names": "k long, name string"}


def shouted(column: str) -> Column:
    def shout(text: str) -> str:  # Spark's workers cannot import this file
        return text.upper()

    return F.udf(shout, StringType())(column)


def summed(frame: DataFrame) -> DataFrame:
    def add(batches: Iterator[Any]) -> Iterator[Any]:
        for rows in batches:
            rows["v"] = rows["v"] * 2 + rows["k"]
            yield rows[["v"]]

    return frame.mapInPandas(add, "v long")


PLANS: dict[str, Callable[[SparkSession], DataFrame]] = {
    "concat over a join": lambda s: (
        s.table("orders")
        .join(s.table("names"), "k")
        .select("k", F.concat("s", "name").alias("both"), F.lit(1).alias("one"))
    ),
    "outer join": lambda s: s.sql("SELECT o.v, n.name FROM orders o LEFT JOIN names n ON o.k = n.k"),
    "filter and rename": lambda s: (
        s.table("orders").where("v > 6").select(F.col("s").alias("t"), F.col("v") + F.col("k"))
    ),
    "aggregate": lambda s: (
        s.table("orders").groupBy("s").agg(F.sum("v").alias("sum"), F.count("*").alias("n"), F.max(F.col("k") * 2))
    ),
    "window": lambda s: s.sql(
        "SELECT k, row_number() OVER (ORDER BY v DESC) AS place, sum(v) OVER (PARTITION BY s) AS total FROM orders"
    ),
    "explode": lambda s: s.table("orders").select("s", F.posexplode_outer("parts").alias("place", "part")),
    "union": lambda s: s.table("orders").select("k", "s").union(s.table("names")),
    "scalar subquery": lambda s: s.sql(
        "SELECT v, (SELECT max(name) FROM names WHERE names.k = orders.k) AS name FROM orders"
    ),
    "exists": lambda s: s.sql("SELECT v FROM orders WHERE k IN (SELECT k FROM names WHERE name <> 'y')"),
    "rollup": lambda s: s.table("orders").rollup("s", "k").agg(F.sum("v").alias("sum")),
    "unpivot": lambda s: s.table("orders").unpivot("s", ["k", "v"], "which", "number"),
    "distinct": lambda s: s.sql(
        "SELECT s, count(*) AS n FROM (SELECT DISTINCT s, v FROM orders) GROUP BY s HAVING s <> 'q'"
    ),
    "newest of each": lambda s: s.sql(
        "WITH o AS (SELECT s, k, rank() OVER (PARTITION BY s ORDER BY v DESC) AS r FROM orders) "
        "SELECT s, k FROM o WHERE r = 1"
    ),
    "first by order": lambda s: s.table("orders").orderBy("v").limit(2).select("s"),
    "except": lambda s: s.table("orders").select("k").exceptAll(s.table("names").select("k")),
    "case": lambda s: s.table("orders").selectExpr(
        "CASE WHEN s = 'a' THEN k ELSE v END AS c", "transform(parts, p -> p + k)"
    ),
    "a Python function": lambda s: s.table("orders").select("k", shouted("s").alias("shouted")).where("shouted > 'A'"),
    "pandas": lambda s: summed(s.table("orders").select("k", "v")),
    "lateral": lambda s: s.sql(
        "SELECT o.k, t.m FROM orders o, LATERAL (SELECT max(name) AS m FROM names n WHERE n.k <= o.k) t"
    ),
}


@pytest.fixture(scope="module")
def walk(spark: Any) -> ColumnWalk:
    return ColumnWalk(Catalyst(spark), Patterns(spark), {"orders": "orders", "names": "names"})


def with_inputs(spark: Any, orders: list[tuple[Any, ...]], names: list[tuple[Any, ...]]) -> None:
    """Rows that the planner itself computes with, as far as it can: no task is started for them."""
    for view, rows in (("orders", orders), ("names", names)):
        values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
        columns = ", ".join(
            f"CAST(c{i} AS {c.split()[1]}) AS {c.split()[0]}" for i, c in enumerate(TYPES[view].split(", "))
        )
        named = ", ".join(f"c{i}" for i in range(len(rows[0])))
        spark.sql(f"SELECT {columns} FROM VALUES {values} AS t({named})").createOrReplaceTempView(view)


def _literal(value: Any) -> str:
    return f"array({', '.join(map(str, value))})" if isinstance(value, list) else repr(value)


@pytest.fixture(scope="module")
def without_compiling(spark: Any) -> Iterator[None]:
    """Compiling code for twenty plans over four rows takes longer than anything else."""
    quick = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
    }
    before = {name: spark.conf.get(name) for name in quick}
    for name, value in quick.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def found(spark: Any, walk: ColumnWalk) -> Iterator[dict[str, DatasetColumns]]:
    with_inputs(spark, ORDERS, NAMES)
    yield {name: walk.columns(name, made(spark)) for name, made in PLANS.items()}
    for view in TYPES:
        spark.catalog.dropTempView(view)


#: Those in which the second table is named at all; the others need not be computed again when it changes.
WITH_NAMES = ("concat over a join", "outer join", "union", "scalar subquery", "exists", "except", "lateral")


def computed(spark: Any, plans: Iterable[str] = PLANS) -> dict[str, dict[str, Counter[str]]]:
    """The values of each column of each plan."""
    frames = {name: PLANS[name](spark) for name in plans}
    rows = {name: frame.collect() for name, frame in frames.items()}
    return {
        name: {column: Counter(str(row[i]) for row in rows[name]) for i, column in enumerate(frame.columns)}
        for name, frame in frames.items()
    }


@pytest.mark.usefixtures("without_compiling")
def test_every_column_that_changes_with_an_input_names_it(spark: Any, found: dict[str, DatasetColumns]) -> None:
    """The check does not look at plans: it changes one value after the other and sees which columns differ."""
    before, seen = computed(spark), Counter[str]()
    tries = [
        ("orders", 0, 1000),
        ("orders", 1, 1000),
        ("orders", 2, "zz"),
        ("orders", 3, [77]),
        ("names", 0, 3),
        ("names", 1, "q"),
    ]
    for table, place, value in tries:
        changed = {"orders": [list(r) for r in ORDERS], "names": [list(r) for r in NAMES]}
        changed[table][1][place] = value
        with_inputs(spark, changed["orders"], changed["names"])  # type: ignore[arg-type]
        column = TYPES[table].split(", ")[place].split()[0]
        for plan, columns in computed(spark, WITH_NAMES if table == "names" else PLANS).items():
            for output, values in columns.items():
                if values != before[plan][output]:
                    origins, rows = found[plan].columns[output], found[plan].rows
                    named = {(i.input, i.column) for i in origins.direct | origins.indirect | rows.indirect}
                    assert (table, column) in named, f"{plan}: {output} changes with {table}.{column}"
                    seen[plan] += 1
    assert set(seen) == set(PLANS)
    assert sum(seen.values()) > 45


def said(found: DatasetColumns, column: str) -> list[str]:
    return [str(i) for i in sorted(found.columns[column].direct)]


def test_values_and_influences_are_kept_apart(found: dict[str, DatasetColumns]) -> None:
    concat = found["concat over a join"]
    assert said(concat, "both") == ["names.name (transformed)", "orders.s (transformed)"]
    assert said(concat, "k") == ["orders.k (identity)"]
    assert concat.columns["one"].is_constant
    assert [str(i) for i in sorted(concat.rows.indirect)] == ["names.k (join)", "orders.k (join)"]
    assert said(found["aggregate"], "sum") == ["orders.v (aggregated)"]
    assert found["aggregate"].columns["n"].made == {"count"}
    assert [str(i) for i in found["aggregate"].rows.indirect] == ["orders.s (group by)"]
    place = found["window"].columns["place"]
    assert (place.made, [str(i) for i in place.indirect]) == ({"row_number"}, ["orders.v (window)"])
    assert said(found["explode"], "part") == ["orders.parts (transformed)"]


def test_code_that_cannot_be_looked_into_is_unknown_and_never_empty(found: dict[str, DatasetColumns]) -> None:
    shout = found["a Python function"]
    assert said(shout, "shouted") == ["orders.s (unknown)"]
    assert shout.columns["shouted"].unknown == {'calls the Python function "shout"'}
    assert shout.columns["k"].unknown == set()
    assert shout.rows.unknown == {'calls the Python function "shout"'}  # it decides which rows there are
    pandas = found["pandas"]
    assert said(pandas, "v") == ["orders.k (unknown)", "orders.v (unknown)"]
    assert pandas.columns["v"].unknown == {"calls a Python function (mapInPandas)"}
    assert "LateralJoin" in next(iter(found["lateral"].columns["m"].unknown))
    for one in found.values():
        for origins in one.columns.values():
            assert origins.direct or origins.made or origins.unknown or origins.is_constant


def test_each_look_inside(spark: Any, tmp_path: Path) -> None:
    with_inputs(spark, ORDERS, NAMES)
    patterns = Patterns(spark)
    project = analyzed(
        spark.sql("SELECT k + v AS a, now() AS b, 1 AS c, uuid() AS d, sum(v) OVER (ORDER BY k) AS e FROM orders")
    )
    assert kind(project) == "Project"
    plan = analyzed(spark.sql("SELECT k + v AS a, now() AS b, 1 AS c, uuid() AS d FROM orders"))
    a, b, c, d = items(plan.projectList())
    assert len(refers(a)) == 2
    assert [kind(n) for n in tree(a)] == ["Alias", "Add", "AttributeReference", "AttributeReference"]
    assert (made_by(b.child()), made_by(c.child()), made_by(d.child())) == ({"now"}, set(), {"uuid"})
    assert foreign_calls(analyzed(spark.table("orders").select(shouted("s"))).projectList().apply(0)) == {
        'the Python function "shout"'
    }
    window = next(n for n in _nodes(project) if kind(n) == "Window").windowExpressions().apply(0)
    assert patterns.has_window(window)
    assert not patterns.has_window(a)
    functions, specs = window_functions(window)
    assert [len(functions), len(specs)] == [1, 1]
    total = analyzed(spark.sql("SELECT sum(v) FROM orders")).aggregateExpressions().apply(0)
    assert patterns.aggregates(total)
    where = analyzed(spark.sql("SELECT v FROM orders WHERE k IN (SELECT k FROM names)")).child().condition()
    assert patterns.has_subquery(where)
    assert len(subqueries(where)) == 1
    assert view_name(plan.child().child()) == "orders"
    assert input_name(analyzed(spark.range(3))) == "a range of numbers"
    spark.range(3).write.parquet(str(tmp_path / "p"))
    assert input_name(analyzed(spark.read.parquet(str(tmp_path / "p")))) == f"file:{tmp_path}/p"
    stream = spark.readStream.schema("id long").parquet(str(tmp_path / "p"))
    assert input_name(analyzed(stream)) == f"parquet path={tmp_path}/p"


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in items(plan.children()):
        yield from _nodes(child)


def test_what_cannot_be_found_is_told_and_stops_nothing(spark: Any, tmp_path: Path) -> None:
    told: list[Any] = []

    class Broken:
        @property
        def pipeline(self) -> Any:
            raise OSError("no\nsuch thing")

    Tracer(spark, Broken(), tmp_path / "history.db", "", told.append).look({"f": None}, {"d": ("c", 0)})  # type: ignore[arg-type, dict-item]
    assert told == [Notice("column lineage could not be found: no")]


PIPELINE = """
@dp.temporary_view
def raw():
    return spark.readStream.schema("id long, status string, lines array<struct<sku:string,price:double>>").json(LANDING)

@dp.table(table_properties={{"anabranch.owner": "orders team", "anabranch.tags.tier": "1", "anabranch.origin": "true"}})
@dp.expect_or_drop("open", "status <> 'void'")
def lines():
    rows = spark.readStream.table("raw").where("id > 0")
    return rows.select("id", "status", F.explode("lines").alias("line")).select("id", "status", "line.sku", {price})

@dp.table(table_properties={{"anabranch.origin": "true"}})
def copies():
    return spark.readStream.table("lines").select("sku", "price")

@dp.materialized_view
def totals():
    return spark.read.table("copies").groupBy("sku").agg(F.sum("price").alias("total"))
"""


def test_a_run_keeps_versions_and_rows_say_where_they_came_from(
    made: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made.write(PIPELINE.format(price="'line.price'"), defaults={"owner": "everybody"})
    made.feed([{"id": 1, "status": "ok", "lines": [{"sku": "a", "price": 1.0}, {"sku": "b", "price": 2.0}]}])
    made.run()
    assert not [e for e in made.events if isinstance(e, LineageChanged)]  # the first time is no news
    assert not [e for e in made.events if isinstance(e, Notice) and "lineage" in e.message]
    history = History.of(made.project.storage)
    lines = column_lineage_of(history, "lines")
    assert lines is not None
    assert (lines.version, lines.epoch, lines.lineage.owner, lines.lineage.tags) == (1, 0, "orders team", {"tier": "1"})
    assert [str(i) for i in lines.lineage.columns["price"].direct] == ["raw.lines (transformed)"]
    assert {str(i) for i in lines.lineage.rows.indirect} == {
        "raw.id (filter)",
        "raw.lines (explode)",
        "raw.status (filter)",
    }
    totals = column_lineage_of(history, "totals")
    assert totals is not None
    assert [str(i) for i in totals.lineage.columns["total"].direct] == ["copies.price (aggregated)"]
    assert totals.lineage.owner == "everybody"

    made.run()
    assert [v.version for name in ("raw", "lines", "totals") for v in lineage_versions(history, name)] == [1, 1, 1]

    price = "F.when(F.col('status') == 'ok', F.col('line.price')).alias('price')"
    made.write(PIPELINE.format(price=price), defaults={"owner": "everybody"})
    made.feed([{"id": 2, "status": "ok", "lines": [{"sku": "c", "price": 3.0}]}])
    made.run()
    told = [(e.dataset, e.changed, e.epoch) for e in made.events if isinstance(e, LineageChanged)]
    assert told == [("lines", ("price",), 1)]
    newest, old = column_lineage_of(history, "lines"), column_lineage_of(history, "lines", 1)
    assert newest is not None
    assert old == lines
    assert (newest.version, newest.epoch) == (2, 1)
    assert said(newest.lineage, "price") == ["raw.lines (transformed)", "raw.status (transformed)"]

    assert fresh_lineage(made.project, made.events.append)["lines"] == newest.lineage

    rows = made.rows("lines")
    origins = {row["sku"]: row["_origin"] for row in rows}
    assert [Path(origins[sku]["file"]).name for sku in "abc"] == ["0000.json", "0000.json", "0001.json"]
    assert {(o["flow"], o["parent"], o["topic"]) for o in origins.values()} == {("lines", None, None)}
    assert {row["sku"]: row["_epoch"] for row in rows} == {"a": 0, "b": 0, "c": 1}
    second = {row["sku"]: row["_origin"] for row in made.rows("copies")}
    assert {sku: (o["file"], o["flow"], o["parent"]) for sku, o in second.items()} == {
        sku: (o["file"], "copies", "lines") for sku, o in origins.items()
    }

    monkeypatch.chdir(made.root)
    capsys.readouterr()
    assert main(["lineage", "up", "totals.total"]) == 0
    assert capsys.readouterr().out.splitlines()[:5] == [
        "totals.total",
        "└─ copies.price  aggregated",
        "   └─ lines.price  identity",
        "      ├─ raw.lines  transformed",
        "      │  └─ json path=landing.lines  identity",
    ]
