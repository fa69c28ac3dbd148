"""Other names for the tables of a query, and nothing else changed in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.graph import build
from anabranch.core.names import resolve, view_names
from anabranch.load.project import Project
from anabranch.load.python_files import load_pipeline
from anabranch.load.sql_names import sql_names
from anabranch.load.sql_tables import with_tables

MakeProject = Callable[..., Project]
DATASETS = ("silver.orders", "gold.orders", "items", "bronze.raw")
VIEWS = view_names(DATASETS)


def view(name: str) -> str | None:
    found = resolve(name, DATASETS, ("main", "sales"))
    return VIEWS[found] if found and VIEWS[found] != name else None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT * FROM silver.orders", "SELECT * FROM silver__orders"),
        ("SELECT * FROM `Silver`.`ORDERS` WHERE x", "SELECT * FROM silver__orders WHERE x"),
        ("SELECT * FROM main . silver /* m */ . orders -- x", "SELECT * FROM silver__orders -- x"),
        ("SELECT * FROM a, silver.orders o, sales.items", "SELECT * FROM a, silver__orders o, items"),
        ("SELECT * FROM STREAM(main.sales.items) AS i", "SELECT * FROM STREAM(items) AS i"),
        ("SELECT * FROM STREAM main.sales.items", "SELECT * FROM STREAM items"),
        ("SELECT items.id FROM main.sales.items", "SELECT items.id FROM items"),
        ("SELECT main.sales.items.id FROM main.sales.items", "SELECT items.id FROM items"),
        ("SELECT sales.items.* FROM main.sales.items", "SELECT items.* FROM items"),
        ("SELECT raw.id FROM raw", "SELECT raw.id FROM bronze__raw AS raw"),
        ("SELECT raw.id FROM raw r JOIN raw", "SELECT raw.id FROM bronze__raw r JOIN bronze__raw AS raw"),
        (
            "SELECT silver.orders.id FROM STREAM(silver.orders) WHERE orders.x > 1",
            "SELECT orders.id FROM STREAM(silver__orders) AS orders WHERE orders.x > 1",
        ),
        (
            "SELECT silver.orders.id, gold.orders.id FROM silver.orders JOIN gold.orders USING (id)",
            "SELECT silver__orders.id, gold__orders.id FROM silver__orders JOIN gold__orders USING (id)",
        ),
        (
            "SELECT orders.id FROM silver.orders UNION SELECT orders.id FROM gold.orders",
            "SELECT orders.id FROM silver__orders AS orders UNION SELECT orders.id FROM gold__orders AS orders",
        ),
        (
            "SELECT orders.id FROM silver.orders TABLESAMPLE (10 PERCENT) WHERE x",
            "SELECT orders.id FROM silver__orders TABLESAMPLE (10 PERCENT) AS orders WHERE x",
        ),
        ("SELECT orders.id FROM silver.orders AS o", "SELECT orders.id FROM silver__orders AS o"),
        (
            "WITH orders AS (SELECT * FROM gold.orders) SELECT orders.id FROM orders",
            "WITH orders AS (SELECT * FROM gold__orders AS orders) SELECT orders.id FROM orders",
        ),
        ("SELECT (SELECT max(x) FROM gold.orders) FROM items", "SELECT (SELECT max(x) FROM gold__orders) FROM items"),
        ("SELECT * FROM IDENTIFIER('silver.orders')", "SELECT * FROM silver__orders"),
        ("TABLE silver.orders", "TABLE silver__orders"),
        ("FROM silver.orders |> WHERE orders.x", "FROM silver__orders AS orders |> WHERE orders.x"),
        (
            "INSERT INTO silver.orders SELECT * FROM silver.orders",
            "INSERT INTO silver.orders SELECT * FROM silver__orders",
        ),
    ],
)
def test_tables_get_their_views_names(query: str, expected: str) -> None:
    assert with_tables(query, view) == expected


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'FROM silver.orders', \"FROM silver.orders\" FROM items -- FROM silver.orders",
        "SELECT silver.orders.id /* FROM silver.orders */ FROM raw.orders",
        "SELECT * FROM other.silver.orders JOIN archive.orders",
        "SELECT * FROM delta.`/lake/silver.orders`",
        "SELECT extract(YEAR FROM silver.orders) FROM items",
        "SELECT * FROM silver.orders(1)",
        "SELECT * FROM {silver.orders}",
        "",
    ],
)
def test_what_is_no_dataset_is_left_alone(query: str) -> None:
    assert with_tables(query, view) == query


def test_a_column_that_may_be_of_either_table_is_given_to_neither() -> None:
    query = "SELECT s.orders.id FROM a.s.orders JOIN b.s.orders"
    changed = with_tables(query, {"a.s.orders": "x", "b.s.orders": "y"}.get)
    assert changed.startswith("SELECT s.orders.id FROM x")


pieces = st.sampled_from(
    [
        *(
            "SELECT ",
            " FROM ",
            " JOIN ",
            ", ",
            "(",
            ")",
            " STREAM(",
            " AS ",
            " o ",
            ".",
            "`",
            "'",
            '"',
            "--",
            "\n",
            "/*",
        ),
        *(
            "*/",
            " silver.orders ",
            "silver.orders.id",
            "orders",
            "items",
            "gold",
            "main.sales.items",
            " WHERE ",
            ";",
            "\\",
        ),
    ]
)


@given(st.lists(pieces | st.text(max_size=5), max_size=25).map("".join))
def test_a_query_that_reads_no_dataset_is_not_changed_by_a_byte(query: str) -> None:
    if not any(view(name) for name in sql_names(query).names):
        assert with_tables(query, view) == query


@given(st.lists(pieces, max_size=25).map("".join))
def test_texts_and_comments_are_never_changed(query: str) -> None:
    changed = with_tables(query, view)
    closed = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|--[^\n]*"
    if not re.search(r"/\*|`", query):
        # A name with a comment between its parts loses it; nothing else does.
        kept = [text for text in re.findall(closed, query) if not text.startswith("--")]
        assert [text for text in re.findall(closed, changed) if not text.startswith("--")] == kept


@given(st.lists(pieces, max_size=25).map("".join))
def test_what_is_read_afterwards_are_the_views(query: str) -> None:
    tables = [(view(name) or name).lower() for name in sql_names(query).names]
    assert {n.lower() for n in sql_names(with_tables(query, view)).names} == set(tables)


FLOWS = """
from anabranch import pipelines as dp

dp.create_streaming_table("`orders`")
dp.create_streaming_table("silver.items")

@dp.append_flow(target="main.sales.orders")
@dp.expect("has_id", "id IS NOT NULL")
def into_orders():
    return spark.readStream.table("SILVER.items")

@dp.append_flow(target="items")
def into_items():
    return spark.readStream.table("raw.items")
"""

MORE = "CREATE FLOW more AS INSERT INTO main.`silver`.items BY NAME SELECT * FROM STREAM(raw.orders);"


def test_flows_and_rules_mean_the_dataset_however_it_is_written(make_project: MakeProject) -> None:
    project = make_project({"pipelines/a.py": FLOWS, "pipelines/b.sql": MORE})
    pipeline = load_pipeline(replace(project, catalog="main", database="sales"), with_spark=False).pipeline
    graph = build(pipeline)
    assert {f.name: (f.target, graph.inputs(f)) for f in pipeline.flows} == {
        "into_orders": ("orders", ("silver.items",)),
        "into_items": ("silver.items", ()),
        "more": ("silver.items", ()),
    }
    assert [rule.name for rule in graph.datasets["orders"].expectations] == ["has_id"]
