"""What names in code mean, and what views are called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.graph import build, problems
from anabranch.core.names import HOME, is_name, resolve, view_names, whole_name
from anabranch.core.where import Where

pytestmark = pytest.mark.core

part = st.sampled_from(["a", "b", "A", "a__b", "b_2", "a__b_2"])
name = st.lists(part, min_size=1, max_size=3).map(".".join)
home = st.tuples(part, part)


@st.composite
def sound(draw: st.DrawFn) -> tuple[list[str], tuple[str, str]]:
    """The names of datasets that are different tables, and what they leave out."""
    at = draw(home)
    return draw(st.lists(name, min_size=1, max_size=8, unique_by=lambda n: whole_name(n, at))), at


def flow(name: str, *inputs: str) -> Flow:
    return Flow(name, name, lambda: None, Where("p.py", 1), inputs=inputs)


def pipeline(*flows: Flow, home: tuple[str, str] = HOME) -> Pipeline:
    datasets = tuple(Dataset(f.target, Kind.STREAMING_TABLE, f.where) for f in flows)
    return Pipeline("p", datasets, flows, Where("anabranch.yml"), home)


@given(sound())
def test_view_names_are_simple_and_no_two_are_alike(made: tuple[list[str], tuple[str, str]]) -> None:
    names, _ = made
    views = view_names(names)
    assert list(views) == names
    assert len({view.lower() for view in views.values()}) == len(names)
    assert all(view.isidentifier() for view in views.values())
    assert all(views[n] == n for n in names if "." not in n)


@given(sound())
def test_the_view_of_a_dataset_is_never_taken_for_another_one(made: tuple[list[str], tuple[str, str]]) -> None:
    names, home = made
    for dataset, view in view_names(names).items():
        assert resolve(view, names, home) == (dataset if "." not in dataset else None)


@given(sound(), st.data())
def test_a_dataset_is_found_by_its_name_and_by_its_whole_name(
    made: tuple[list[str], tuple[str, str]], data: st.DataObject
) -> None:
    names, home = made
    wanted = data.draw(st.sampled_from(names))
    assert resolve(wanted, names, home) == wanted
    assert resolve(".".join(f"`{p}`" for p in wanted.split(".")), names, home) == wanted
    assert resolve(wanted.swapcase(), names, home) == wanted
    assert resolve(whole_name(wanted, home), names, home) == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", "orders"),
        ("SALES.Orders", "orders"),
        ("main.`sales`.orders", "orders"),
        ("raw.orders", None),  # a table from outside, whatever its last part is
        ("dev.sales.orders", None),
        ("silver.items", "silver.items"),
        ("main.silver.items", "silver.items"),
        ("dev.silver.items", None),
        ("items", "silver.items"),  # short for it: nothing else is meant
        ("gold.people", "dev.gold.people"),
        ("a.main.sales.orders", None),
        ("orders.x", None),
        ("", None),
    ],
)
def test_names_with_the_parts_that_the_project_says(text: str, expected: str | None) -> None:
    assert resolve(text, ["orders", "silver.items", "dev.gold.people"], ("main", "sales")) == expected


def test_without_a_home_it_is_that_of_spark() -> None:
    assert resolve("spark_catalog.default.orders", ["orders"]) == "orders"
    assert resolve("main.sales.orders", ["orders"]) is None


def test_a_short_name_for_two_datasets_is_an_error_that_names_both() -> None:
    found = problems(pipeline(flow("silver.orders"), flow("gold.orders"), flow("last", "orders")))
    assert [p.code for p in found] == ["PROJECT_AMBIGUOUS_INPUT"]
    assert found[0].hint == "write the whole name: silver.orders or gold.orders"


@pytest.mark.parametrize("second", ["sales.orders", "main.sales.ORDERS"])
def test_two_names_for_one_table_are_an_error(second: str) -> None:
    found = problems(pipeline(flow("orders"), flow(second), home=("main", "sales")))
    assert [p.code for p in found] == ["PROJECT_TWO_CREATORS"]


def test_in_the_database_of_the_project_it_is_no_riddle() -> None:
    made = pipeline(flow("silver.orders"), flow("gold.orders"), flow("last", "orders"), home=("main", "gold"))
    graph = build(made)
    assert graph.inputs(made.flows[-1]) == ("gold.orders",)


def test_a_table_that_reads_one_of_the_same_name_elsewhere_does_not_feed_itself() -> None:
    made = pipeline(flow("orders", "raw.orders"))
    assert problems(made) == []
    assert build(made).inputs(made.flows[0]) == ()


@pytest.mark.parametrize("text", ["my-orders", "a.b.c.d", "a..b", ".a", "a.", "1a", "a b", ""])
def test_other_names_are_no_names(text: str) -> None:
    assert not is_name(text)
