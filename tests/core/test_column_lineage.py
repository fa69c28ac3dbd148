"""Column lineage as records: put together, followed through views, and stored."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.column_lineage import (
    ColumnOrigins,
    DatasetColumns,
    How,
    Influence,
    RowOrigins,
    computed_from,
    in_words,
    merged,
    through,
    together,
)


def direct(*texts: str, how: How = How.IDENTITY) -> ColumnOrigins:
    """Origins written as `dataset.column`."""
    return ColumnOrigins(frozenset(Influence(*text.split("."), how) for text in texts))


def chosen(*texts: str, how: How = How.FILTER, reads: tuple[str, ...] = ()) -> RowOrigins:
    found = frozenset(Influence(*text.split("."), how) for text in texts)
    return RowOrigins(found, reads=frozenset(reads) | {i.input for i in found})


ORDERS = DatasetColumns(
    "orders",
    {"id": direct("files.id"), "total": direct("files.price", "files.count", how=How.TRANSFORMED)},
    chosen("files.status"),
)
VIEW = DatasetColumns(
    "view",
    {
        "key": direct("orders.id"),
        "total": direct("orders.total"),
        "label": ColumnOrigins(unknown=frozenset({"calls f"})),
    },
    chosen("orders.total"),
)
REPORT = DatasetColumns(
    "report",
    {
        "key": direct("view.key"),
        "sum": direct("view.total", how=How.AGGREGATED),
        "label": direct("view.label", how=How.TRANSFORMED),
        "rows": ColumnOrigins(made=frozenset({"count"})),
        "one": ColumnOrigins(),
    },
    chosen("view.key", how=How.GROUP),
)
KNOWN = {one.dataset: one for one in (ORDERS, VIEW, REPORT)}


def texts(origins: ColumnOrigins | RowOrigins) -> list[str]:
    every = origins.direct if isinstance(origins, ColumnOrigins) else origins.indirect
    return [str(each) for each in sorted(every)]


def test_a_view_is_looked_through_and_the_strongest_use_counts() -> None:
    found = through(KNOWN, "report", ["view"])
    assert texts(found.columns["key"]) == ["orders.id (identity)"]
    assert texts(found.columns["sum"]) == ["orders.total (aggregated)"]
    assert texts(found.rows) == ["orders.id (group by)", "orders.total (filter)"]
    assert found.rows.reads == {"orders"}


def test_down_to_the_sources() -> None:
    found = through(KNOWN, "report", KNOWN)
    assert texts(found.columns["sum"]) == ["files.count (aggregated)", "files.price (aggregated)"]
    assert texts(found.rows) == [
        "files.count (filter)",
        "files.id (group by)",
        "files.price (filter)",
        "files.status (filter)",
    ]


def test_what_is_unknown_stays_unknown_through_every_step() -> None:
    found = through(KNOWN, "report", KNOWN).columns["label"]
    assert found.unknown == {"calls f"}
    assert not found.is_constant


def test_who_only_counts_rows_depends_on_what_chose_them() -> None:
    counted = DatasetColumns(
        "n", {"n": ColumnOrigins(made=frozenset({"count"}))}, RowOrigins(reads=frozenset({"view"}))
    )
    found = through({**KNOWN, "n": counted}, "n", ["view"])
    assert texts(found.rows) == ["orders.total (filter)"]
    assert in_words(found.columns["n"]) == [("", "made by count")]


def test_a_column_that_was_not_there_is_told_and_not_left_out() -> None:
    late = DatasetColumns("late", {"x": direct("view.new")})
    (reason,) = through({**KNOWN, "late": late}, "late", ["view"]).columns["x"].unknown
    assert '"new"' in reason


def test_two_that_read_each_other_end() -> None:
    one, other = DatasetColumns("a", {"x": direct("b.x")}), DatasetColumns("b", {"x": direct("a.x")})
    assert through({"a": one, "b": other}, "a", ["a", "b"]).columns["x"].direct


def test_several_flows_feed_one_dataset() -> None:
    more = DatasetColumns("orders", {"id": direct("topic.key"), "extra": ColumnOrigins()})
    found = merged("orders", [ORDERS, more])
    assert texts(found.columns["id"]) == ["files.id (identity)", "topic.key (identity)"]
    assert list(found.columns) == ["id", "total", "extra"]


def test_down_from_a_column() -> None:
    assert computed_from(KNOWN, "files", "price") == [
        ("orders", "total", How.TRANSFORMED),
        ("view", "total", How.TRANSFORMED),
        ("report", "sum", How.AGGREGATED),
    ]
    assert computed_from(KNOWN, "report", "sum") == []


def test_what_differs_is_named() -> None:
    now = DatasetColumns("orders", {"id": ORDERS.columns["id"], "total": direct("files.price"), "new": ColumnOrigins()})
    assert now.differing(ORDERS) == ("total", "new")
    assert now.digest != ORDERS.digest
    assert DatasetColumns("orders", ORDERS.columns, ORDERS.rows, owner="shop").digest != ORDERS.digest


names = st.text(min_size=1, max_size=4)
influences = st.frozensets(st.builds(Influence, names, names, st.sampled_from(How)), max_size=4)
values = st.frozensets(st.builds(Influence, names, names, st.sampled_from([h for h in How if h.is_direct])), max_size=4)
origins = st.builds(
    ColumnOrigins, values, influences, st.frozensets(names, max_size=2), st.frozensets(names, max_size=2)
)
lineages = st.builds(
    DatasetColumns,
    names,
    st.dictionaries(names, origins, max_size=4),
    st.builds(RowOrigins, influences, st.frozensets(names, max_size=2), st.frozensets(names, max_size=2)),
    st.none() | names,
    st.dictionaries(names, names, max_size=2),
)


@given(lineages)
def test_what_is_stored_comes_back(one: DatasetColumns) -> None:
    back = DatasetColumns.from_record(json.loads(json.dumps(one.as_record())))
    assert back == one
    assert back.digest == one.digest


@given(st.lists(origins, max_size=4))
def test_together_loses_no_column_and_names_each_once(parts: list[ColumnOrigins]) -> None:
    found = together(parts)
    assert {(i.input, i.column) for i in found.direct} == {(i.input, i.column) for p in parts for i in p.direct}
    assert len({(i.input, i.column) for i in found.direct}) == len(found.direct)
    assert in_words(found)
