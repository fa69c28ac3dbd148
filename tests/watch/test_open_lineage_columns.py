"""The column lineage of outputs, as OpenLineage has it: from the history, and from what the run itself finds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from watched_lake import Lake, conforms

from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence, RowOrigins
from anabranch.core.events import EpochPublished, Event, NotSent, RunStarted
from anabranch.core.events_data import LineageChanged
from anabranch.core.places import ChannelParts, Place, Written
from anabranch.watch.attached import attached
from anabranch.watch.open_lineage_columns import of_columns

TOPIC, USERS, TABLE = Place("kafka://broker:9092", "events"), Place("file", "/in/users"), Place("file", "/lake/orders")
PART = ChannelParts(
    "requests",
    (TOPIC, USERS),
    (Written("orders", "delta", TABLE), Written("totals", "delta", Place("file", "/lake/totals"))),
    named={"kafka events": (TOPIC,), "users": (USERS,)},
)
STARTED = RunStarted("shop", ("requests",), (PART,))
PUBLISHED = EpochPublished("requests", 1, 0, {"orders": 9, "totals": 1})


def of(*influences: tuple[str, str, How], **more: frozenset[str]) -> ColumnOrigins:
    found = [Influence(*one) for one in influences]
    direct = frozenset(i for i in found if i.how.is_direct)
    return ColumnOrigins(direct, frozenset(found) - direct, **more)


def changed(one: DatasetColumns, *, first: bool = True) -> LineageChanged:
    return LineageChanged("requests", one.dataset, 0, tuple(one.columns), json.dumps(one.as_record()), first)


ORDERS = DatasetColumns(
    "orders",
    {
        "id": of(("kafka events", "key", How.IDENTITY)),
        "price": of(("kafka events", "value", How.TRANSFORMED), ("users", "tier", How.WINDOW)),
        "name": of(("users", "name", How.UNKNOWN), unknown=frozenset({'the Python function "clean"'})),
        "at": of(made=frozenset({"current_timestamp"})),
        "currency": ColumnOrigins(),
        "region": of(("csv regions", "region", How.IDENTITY)),
        "lost": of(unknown=frozenset({"a script"})),
    },
    RowOrigins(
        frozenset(
            {
                Influence("kafka events", "kind", How.FILTER),
                Influence("kafka events", "user", How.JOIN),
                Influence("users", "id", How.JOIN),
                Influence("kafka events", "key", How.MERGE),
            }
        ),
        frozenset({"a Python function (mapInPandas)"}),
    ),
)
TOTALS = DatasetColumns(
    "totals",
    {"day": of(("orders", "at", How.TRANSFORMED)), "sum": of(("orders", "price", How.AGGREGATED))},
    RowOrigins(frozenset({Influence("orders", "id", How.GROUP)}), reads=frozenset({"orders"})),
)


def fields(facet: Mapping[str, Any]) -> dict[str, list[tuple[str, str, str, str]]]:
    """Each column with what it comes from: the name, the field, and how."""
    said: dict[str, list[dict[str, Any]]] = {name: f["inputFields"] for name, f in facet["fields"].items()}
    said["*"] = facet["dataset"]
    return {
        name: [(r["name"], r["field"], t["type"], t["subtype"]) for r in reads for t in r["transformations"]]
        for name, reads in said.items()
    }


def test_every_way_in_the_words_of_the_specification() -> None:
    facet = of_columns({"orders": ORDERS}, "orders", PART)["columnLineage"]
    assert fields(facet) == {
        "id": [("events", "key", "DIRECT", "IDENTITY")],
        "price": [
            ("events", "value", "DIRECT", "TRANSFORMATION"),
            ("/in/users", "tier", "INDIRECT", "WINDOW"),
        ],
        "name": [("/in/users", "name", "DIRECT", "TRANSFORMATION")],
        **{key: [] for key in ("at", "currency", "region", "lost")},
        "*": [
            ("events", "key", "INDIRECT", "JOIN"),
            ("events", "kind", "INDIRECT", "FILTER"),
            ("events", "user", "INDIRECT", "JOIN"),
            ("/in/users", "id", "INDIRECT", "JOIN"),
        ],
    }
    assert facet["fields"]["id"]["inputFields"][0]["namespace"] == "kafka://broker:9092"
    assert facet["dataset"][0]["transformations"][0]["description"] == "merge key"
    name = facet["fields"]["name"]["inputFields"][0]["transformations"][0]
    assert name["description"] == "unknown: handed to code that cannot be looked into"
    assert facet["anabranch_unknown"] == ["a Python function (mapInPandas)"]


def test_what_has_no_origin_that_others_know_is_said_in_words() -> None:
    said = of_columns({"orders": ORDERS}, "orders", PART)["columnLineage"]["fields"]
    assert {name: f["transformationDescription"] for name, f in said.items() if "transformationDescription" in f} == {
        "name": 'unknown: the Python function "clean"',
        "at": "made by current_timestamp",
        "currency": "constant",
        "region": "csv regions.region (identity)",  # no place that others know
        "lost": "unknown: a script",
    }


def test_tables_of_the_same_channel_are_looked_through() -> None:
    facet = of_columns({"orders": ORDERS, "totals": TOTALS}, "totals", PART)["columnLineage"]
    assert fields(facet)["sum"] == [
        ("events", "value", "DIRECT", "AGGREGATION"),
        ("/in/users", "tier", "INDIRECT", "WINDOW"),
    ]
    assert facet["fields"]["day"] == {"inputFields": [], "transformationDescription": "made by current_timestamp"}
    assert ("events", "key", "INDIRECT", "GROUP_BY") in fields(facet)["*"]
    assert ("events", "kind", "INDIRECT", "FILTER") in fields(facet)["*"]
    apart = ChannelParts("totals", (TABLE,), PART.writes[1:], named={"orders": (TABLE,)})
    found = fields(of_columns({"orders": ORDERS, "totals": TOTALS}, "totals", apart)["columnLineage"])
    assert found["sum"] == [("/lake/orders", "price", "DIRECT", "AGGREGATION")]


def test_how_covers_every_word_there_is() -> None:
    for how in How:
        one = DatasetColumns("orders", {"x": of(("users", "y", how))})
        assert fields(of_columns({"orders": one}, "orders", PART)["columnLineage"])["x"]


def test_nobody_has_looked_at_it() -> None:
    assert of_columns({}, "orders", PART) == {}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path, "open_lineage: {file: lineage.jsonl}\n")


def run(lake: Lake, *events: Event) -> list[dict[str, Any]]:
    """What a run with these events tells of orders: the facets of its events, by the order of these."""
    heard: list[Event] = []
    file = lake.root / "lineage.jsonl"
    file.unlink(missing_ok=True)
    with attached(lake.project, heard.append) as listen:
        for event in events:
            listen(event)
    assert not [e for e in heard if isinstance(e, NotSent)]
    told = [json.loads(line) for line in file.read_text().splitlines()]
    for event in told:
        conforms(event)
    return [event["outputs"][0]["facets"] for event in told if event["outputs"]]


def test_the_first_run_tells_what_it_has_just_found(lake: Lake) -> None:
    start, running, complete = run(lake, STARTED, changed(ORDERS), PUBLISHED)
    assert "columnLineage" not in start  # not found yet
    assert [*running["columnLineage"]["fields"]] == [*ORDERS.columns]
    assert complete["columnLineage"] == running["columnLineage"]


def test_a_run_that_finds_nothing_new_tells_what_the_history_has(lake: Lake) -> None:
    lake.tell(changed(ORDERS))
    start, running, _ = run(lake, STARTED, PUBLISHED)
    assert [*start["columnLineage"]["fields"]] == [*running["columnLineage"]["fields"]] == [*ORDERS.columns]


def test_a_run_that_finds_something_else_tells_that(lake: Lake) -> None:
    lake.tell(changed(ORDERS))
    other = DatasetColumns("orders", {"id": of(("users", "id", How.IDENTITY))})
    start, running, _ = run(lake, STARTED, changed(other, first=False), PUBLISHED)
    assert (len(start["columnLineage"]["fields"]), len(running["columnLineage"]["fields"])) == (7, 1)


def test_a_damaged_history_leaves_the_lineage_of_tables(lake: Lake) -> None:
    lake.tell(changed(ORDERS))
    for file in lake.history.path.parent.glob("history.db*"):
        file.write_bytes(b"this is no database" * 500)
    heard: list[Event] = []
    with attached(lake.project, heard.append) as listen:
        listen(STARTED)
    [complaint] = [e for e in heard if isinstance(e, NotSent) and e.to == "open_lineage"]
    assert "damaged" in complaint.message
    told = [json.loads(line) for line in (lake.root / "lineage.jsonl").read_text().splitlines()]
    assert [e["eventType"] for e in told] == ["START", "START", "COMPLETE", "COMPLETE"]
