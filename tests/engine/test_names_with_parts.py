"""Datasets whose names have a database and a catalogue, read in every way that projects for Spark do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch import read
from anabranch.cli.main import main
from anabranch.core import crash
from anabranch.errors import AnabranchError, ProjectErrors

pytestmark = pytest.mark.spark

HOME = {"catalog": "main", "database": "sales"}

PYTHON = """
@dp.temporary_view(name="bronze.raw")
def raw():
    return spark.readStream.schema("id INT, item STRING, amount INT").json(LANDING)

@dp.table(name="silver.orders")
@dp.expect_or_quarantine("has_id", "id IS NOT NULL")
def silver():
    return spark.readStream.table("bronze.raw")

@dp.table(name="main.gold.orders")
def gold():
    return spark.readStream.table("`Silver`.ORDERS").where("amount > 10")

dp.create_streaming_table("items")

@dp.append_flow(target="main.sales.items")
def from_raw():
    return spark.readStream.table("raw").select("item")

@dp.table(name="item_lengths")
def lengths():
    return spark.sql("SELECT sales.items.item, length(items.item) AS n FROM STREAM(main.sales.items)")

@dp.materialized_view(name="gold.archived")
def archived():
    old = spark.read.table("archive.orders")  # a table from outside, whose last part is that of datasets
    return spark.table("main.silver.orders").join(old, "id").select("id", "note")

computed = ".".join(["silver", "orders"])

@dp.materialized_view(name="gold.doubled")
def doubled():
    return spark.read.table(computed).selectExpr("id", "amount * 2 AS amount")
"""

SQL = """
-- FROM silver.orders
CREATE STREAMING TABLE silver.big AS
SELECT silver.orders.id, orders.amount, 'silver.orders' AS text FROM STREAM(Silver.`orders`) WHERE orders.amount > 10;

CREATE FLOW more AS INSERT INTO sales.items BY NAME SELECT concat(o.item, '!') AS item FROM STREAM(silver.orders) o;

CREATE MATERIALIZED VIEW gold.totals AS
WITH orders AS (SELECT item, amount FROM silver.orders)
SELECT orders.item, count(*) AS n, sum(amount) AS amount FROM orders GROUP BY orders.item;

CREATE MATERIALIZED VIEW gold.both AS
SELECT silver.orders.id, gold.orders.amount
FROM silver.orders JOIN main.gold.orders ON silver.orders.id = gold.orders.id;
"""

FIRST = [{"id": n, "item": "abc"[n % 3] * (n % 4 + 1), "amount": n * 3} for n in range(1, 9)]
SECOND = [{"id": None, "item": "lost", "amount": 99}, {"id": 20, "item": "a", "amount": 50}]


@pytest.fixture
def catalogue(spark: Any, tmp_path: Path) -> Iterator[None]:
    """Tables from outside: one that is read, and one that has the name of a dataset."""
    for database, rows in (("archive", [(1, "old"), (20, "older")]), ("silver", [(77, "wrong")])):
        spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path / database}'")
        spark.createDataFrame(rows, "id INT, note STRING").write.saveAsTable(f"{database}.orders")
    yield
    for database in ("archive", "silver"):
        spark.sql(f"DROP DATABASE {database} CASCADE")


def expected(rows: list[dict[str, Any]]) -> dict[str, Counter[tuple[Any, ...]]]:
    orders = [(r["id"], r["item"], r["amount"]) for r in rows if r["id"] is not None]
    items = [r["item"] for r in rows] + [f"{item}!" for _, item, _ in orders]
    big = [o for o in orders if o[2] > 10]
    totals = {item: [a for _, i, a in orders if i == item] for _, item, _ in orders}
    notes = {1: "old", 20: "older"}
    return {
        "silver.orders": Counter(orders),
        "main.gold.orders": Counter(big),
        "items": Counter((item,) for item in items),
        "item_lengths": Counter((item, len(item)) for item in items),
        "silver.big": Counter((i, a, "silver.orders") for i, _, a in big),
        "gold.totals": Counter((item, len(a), sum(a)) for item, a in totals.items()),
        "gold.both": Counter((i, a) for i, _, a in big),
        "gold.archived": Counter((i, notes[i]) for i, _, _ in orders if i in notes),
        "gold.doubled": Counter((i, a * 2) for i, _, a in orders),
    }


def found(made: Any, tables: Any) -> dict[str, Counter[tuple[Any, ...]]]:
    return {name: Counter(tuple(row.values()) for row in made.rows(name)) for name in tables}


def write(made: Any, more: str = "") -> None:
    made.write(PYTHON + more, **HOME)
    (made.root / "transformations" / "more.sql").write_text(SQL)


def test_every_way_to_name_a_dataset_gives_its_rows(made: Any, spark: Any, catalogue: None) -> None:
    write(made)
    made.feed(FIRST)
    before = spark.catalog.listTables()
    made.run()
    want = expected(FIRST)
    assert found(made, want) == want
    made.feed(SECOND)
    made.run()
    want = expected(FIRST + SECOND)
    assert found(made, want) == want
    assert [row["reasons"] for row in made.rows("silver.orders_quarantine")] == [["has_id"]]
    assert (made.root / "lake" / "tables" / "silver.orders").is_dir()
    assert spark.catalog.listTables() == before

    cut = read.cut(made.root)
    for table in ("silver.orders", '"silver.orders"', "Silver.Orders"):
        assert cut.sql(f"SELECT count(*) AS n FROM {table}").to_pylist() == [{"n": 9}]
    for table in ("main.gold.orders", "gold.orders", '"main.gold.orders"'):
        assert cut.sql(f"SELECT max(orders.amount) AS m FROM {table} AS orders").to_pylist() == [{"m": 50}]
    assert cut.sql("SELECT max(main.gold.orders.amount) AS m FROM main.gold.orders").to_pylist() == [{"m": 50}]


SMALL = """
@dp.table(name="silver.orders")
def silver():
    return spark.readStream.schema("id INT").json(LANDING)

@dp.table(name="gold.orders")
def gold():
    return spark.readStream.table("silver.orders").where("id > 1")

@dp.materialized_view(name="gold.count")
def count():
    return spark.sql("SELECT count(orders.id) AS n FROM silver.orders")
"""


def test_a_crash_between_two_such_tables_is_made_good(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made.write(SMALL)
    made.feed([{"id": 1}, {"id": 2}])
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, "committed(silver.orders):raise")
        with pytest.raises(AnabranchError):
            made.run()
    made.run()
    assert [made.rows(name) for name in ("silver.orders", "gold.orders", "gold.count")] == [
        [{"id": 1}, {"id": 2}],
        [{"id": 2}],
        [{"n": 2}],
    ]


def test_the_command_line_takes_such_names(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    made.write(SMALL)
    made.feed([{"id": 1}, {"id": 2}])
    at = ["--spec", str(made.root / "anabranch.yml")]
    assert main(["run", "--once", *at]) == 0
    made.feed([{"id": 3}])
    assert main(["run", "--once", "--refresh", "gold.count", *at]) == 0
    assert made.rows("gold.count") == [{"n": 2}]
    assert main(["run", "--once", "--refresh", "silver.orders", "--full-refresh", "gold.count", *at]) == 0
    assert made.rows("gold.count") == [{"n": 3}]
    capsys.readouterr()
    for command in (["show", "silver.orders"], ["sql", "SELECT * FROM silver.orders"], ["status"], ["epochs"]):
        assert main([*command, *at]) == 0
        said = capsys.readouterr().out
        assert "silver.orders" in said if len(command) == 1 else "3" in said


@pytest.mark.parametrize(
    ("name", "code", "hint"),
    [
        ("'.'.join(['orders'])", "PROJECT_AMBIGUOUS_INPUT", "silver.orders or gold.orders"),
        ("'main.default.count'", "FLOW_FAILED", 'to mean "gold.count", say its catalog and database'),
        ("'elsewhere.count'", "FLOW_FAILED", 'to mean "gold.count", say its catalog and database'),
    ],
)
def test_a_name_that_means_no_single_dataset_is_refused(made: Any, name: str, code: str, hint: str) -> None:
    made.write(SMALL + f"\n@dp.table\ndef last():\n    return spark.readStream.table({name})\n")
    with pytest.raises(ProjectErrors) as raised:
        made.run()
    (problem,) = raised.value.problems
    assert problem.code == code
    assert hint in (problem.hint or "")
    assert problem.where is not None
    assert problem.where.file.endswith("pipeline.py")
