"""`anabranch lineage` for columns: from what runs have found, without Spark; owners and tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.main import main
from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence, RowOrigins
from anabranch.core.events_data import LineageChanged
from anabranch.store.history_writer import HistoryWriter

FILE = """
from anabranch import pipelines as dp

@dp.table(name="silver.orders", table_properties={"anabranch.owner": "orders team", "anabranch.tags.tier": "1"})
def orders():
    return spark.readStream.table("lake.raw.orders")

@dp.table(name="gold.totals")
def totals():
    return spark.readStream.table("silver.orders")
"""


def direct(how: How, *names: str, **more: Any) -> ColumnOrigins:
    return ColumnOrigins(frozenset(Influence(*name.rsplit(".", 1), how) for name in names), **more)


ORDERS = DatasetColumns(
    "silver.orders",
    {
        "id": direct(How.IDENTITY, "raw.id"),
        "price": direct(How.UNKNOWN, "raw.price", unknown=frozenset({'calls the Python function "price"'})),
    },
    RowOrigins(frozenset({Influence("raw", "status", How.FILTER)})),
    "orders team",
    {"tier": "1"},
)
OLD = DatasetColumns("silver.orders", {"id": direct(How.IDENTITY, "raw.key")}, owner="orders team", tags={"tier": "1"})
TOTALS = DatasetColumns(
    "gold.totals",
    {"sum": direct(How.AGGREGATED, "silver.orders.price"), "n": ColumnOrigins(made=frozenset({"count"}))},
)


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "anabranch.yml").write_text("name: shop\ndefaults:\n  owner: everybody\n  tags: {area: sales}\n")
    (tmp_path / "pipeline.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def known(shop: Path) -> None:
    writer = HistoryWriter(shop / "lake/_anabranch/history.db", "shop", keep_seconds=60, tell=pytest.fail)
    for epoch, one in ((0, OLD), (7, ORDERS), (7, TOTALS)):
        document = json.dumps(one.as_record())
        writer.put(LineageChanged("orders", one.dataset, epoch, tuple(one.columns), document))
    writer.close("done")


def out(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main(["lineage", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("known")
def test_the_columns_of_a_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "columns", "orders"]) == 0
    shown = capsys.readouterr().out
    assert "silver.orders  version 2, since epoch 7 of channel orders" in shown
    assert "owner: orders team  tier: 1" in shown
    assert 'unknown: calls the Python function "price"' in shown
    assert "which rows there are depends on: raw.status (filter)" in shown
    (column,) = out(capsys, "columns", "silver.orders.price")["columns"]
    assert column["direct"] == [{"input": "raw", "column": "price", "how": "unknown"}]
    assert column["unknown"] == ['calls the Python function "price"']


@pytest.mark.usefixtures("known")
def test_versions_and_one_of_before(capsys: pytest.CaptureFixture[str]) -> None:
    versions = out(capsys, "columns", "silver.orders", "--versions")
    assert [(v["version"], v["epoch"], v["changed"]) for v in versions] == [(1, 0, "id"), (2, 7, "id, price")]
    assert [v["version"] for v in out(capsys, "columns", "silver.orders.price", "--versions")] == [2]
    old = out(capsys, "columns", "silver.orders", "--at", "1")
    assert [c["direct"][0]["column"] for c in old["columns"]] == ["key"]
    assert main(["lineage", "columns", "silver.orders", "--at", "9"]) != 0
    assert "(LINEAGE_NO_VERSION)" in capsys.readouterr().err
    assert main(["lineage", "columns", "silver.orders.price", "--at", "1"]) != 0
    assert "(LINEAGE_NO_COLUMN)" in capsys.readouterr().err


@pytest.mark.usefixtures("known")
def test_a_column_up_and_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "up", "gold.totals.sum"]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [
        "gold.totals.sum",
        '└─ silver.orders.price  aggregated  (unknown: calls the Python function "price")',
        "   └─ raw.price  unknown",
    ]
    whole = out(capsys, "up", "gold.totals.sum")["columns"][0]
    assert whole["direct"] == [{"input": "raw", "column": "price", "how": "unknown"}]
    assert whole["unknown"] == ['calls the Python function "price"']
    assert main(["lineage", "up", "gold.totals.n"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "gold.totals.n  (made by count)"
    down = out(capsys, "down", "silver.orders.price")
    assert down["columns"] == [{"dataset": "gold.totals", "column": "sum", "how": "aggregated"}]


def test_nothing_is_known_before_the_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "columns", "silver.orders"]) != 0
    said = capsys.readouterr().err
    assert "(LINEAGE_NOT_FOUND)" in said
    assert "--fresh" in said
    assert main(["lineage", "up", "gold.totals.sum"]) != 0
    assert "(LINEAGE_NOT_FOUND)" in capsys.readouterr().err
    assert main(["lineage", "columns"]) == 2
    assert main(["lineage", "up", "silver.orders", "--versions"]) == 2


@pytest.mark.usefixtures("known")
def test_a_column_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "columns", "gold.totals.sun"]) != 0
    said = capsys.readouterr().err
    assert "(LINEAGE_NO_COLUMN)" in said
    assert '"sum"' in said


def test_owners_and_tags_are_shown_wherever_datasets_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "up", "gold.totals"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "gold.totals  streaming table  pipeline.py:9  owner: everybody",
        "└─ silver.orders  streaming table  pipeline.py:5  owner: orders team",
    ]
    (mine,) = out(capsys, "list", "--owner", "Orders Team")
    assert (mine["name"], mine["tags"]) == ("silver.orders", {"area": "sales", "tier": "1"})
    assert len(out(capsys, "list")) == 2
    assert main(["plan", "--static"]) == 0
    assert "owner: orders team, area: sales, tier: 1" in capsys.readouterr().out


def test_exact_edges_and_owners_across_systems(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a topic by way of a table and a join into another database."""
    (shop / "pipeline.py").write_text(
        """
from anabranch import pipelines as dp

@dp.temporary_view
def topic():
    return spark.readStream.format("kafka").option("subscribe", "orders").load()

@dp.table(table_properties={"anabranch.owner": "orders team"})
def orders():
    return spark.readStream.table("topic")

dp.create_sink("customers_db", "postgres", {"url": "postgresql://localhost/x", "table": "t"})

@dp.append_flow(target="customers_db")
def joined():
    return spark.readStream.table("orders").join(spark.read.table("lake.crm.customers"), "id")
"""
    )
    document = out(capsys, "up", "customers_db")
    assert {(e["from"], e["to"], e["flow"]) for e in document["edges"]} == {
        ("topic", "orders", "orders"),
        ("orders", "customers_db", "joined"),
        ("lake.crm.customers", "customers_db", "joined"),
    }
    assert {n["name"]: n["owner"] for n in document["nodes"]} == {
        "topic": "everybody",
        "orders": "orders team",
        "customers_db": "everybody",
        "lake.crm.customers": None,
    }
