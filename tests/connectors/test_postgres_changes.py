"""Changes by key in Postgres, against the model that Delta tables are held to."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.postgres_sink import PostgresSink
from anabranch.connectors.registry import open_sink
from anabranch.core.changes import END_AT, SEQUENCE, START_AT, TRUNCATES, Merge
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import DataError, StateError

pytestmark = pytest.mark.postgres

_found = importlib.util.spec_from_file_location("changes_model", Path(__file__).with_name("test_delta_changes.py"))
assert _found is not None
assert _found.loader is not None
delta = importlib.util.module_from_spec(_found)
_found.loader.exec_module(delta)
SCHEMA, NEWEST, FILLED, HISTORY, HISTORY_FILLED = (
    getattr(delta, name) for name in ("SCHEMA", "NEWEST", "FILLED", "HISTORY", "HISTORY_FILLED")
)


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p", "c", generation, epoch)


class Place:
    """A schema and a storage, in which each `sink` is a new process."""

    def __init__(self, url: str, storage: Path) -> None:
        self.url, self.storage = url, storage
        self.database = psycopg.connect(url, autocommit=True)

    def sink(self, merge: Merge | None, table: str = "people", schema: pa.Schema = SCHEMA, **more: str) -> PostgresSink:
        options = {"url": self.url, "table": table, **more}
        sink = open_sink("postgres", SinkSpec("people", "x://", "p", str(self.storage), options=options, merge=merge))
        assert isinstance(sink, PostgresSink)
        sink.prepare(schema)
        return sink

    def rows(self, table: str = "people") -> list[tuple[Any, ...]]:
        return sorted(self.database.execute(f"SELECT * FROM {table}".encode()).fetchall(), key=repr)


@pytest.fixture
def place(postgres_url: str, tmp_path: Path) -> Iterator[Place]:
    found = Place(postgres_url, tmp_path)
    yield found
    found.database.close()


def staged(
    sink: PostgresSink, at: EpochKey, rows: list[Any], schema: pa.Schema = SCHEMA, *, replace: bool = False
) -> Receipt:
    writer = StagedWriter(sink.staging(at, token=1), "0")
    if rows:
        named = [dict(zip(schema.names, row, strict=True)) for row in rows]
        writer.write(pa.RecordBatch.from_pylist(named, schema=schema))
    return Receipt.from_json(sink.receipt(at, writer.close(), replace=replace).to_json())


@pytest.mark.parametrize("merge", [NEWEST, FILLED, HISTORY, HISTORY_FILLED], ids=["newest", "filled", "hist", "both"])
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(epochs=st.lists(st.lists(delta.CHANGES, max_size=6), max_size=4))
def test_changes_in_any_order_make_the_table_that_all_of_them_make(
    place: Place, merge: Merge, epochs: list[list[Any]]
) -> None:
    table, generation = f"t_{uuid4().hex}", uuid4().int % 10**9
    seen: list[Any] = []
    for number, changes in enumerate(epochs):
        sink = place.sink(merge, table)  # nothing of it is in memory only
        receipt = staged(sink, key(number, generation), changes)
        first = sink.apply(key(number, generation), receipt)
        assert sink.apply(key(number, generation), receipt).version == first.version
        seen += changes
        assert place.rows(table) == delta.model(merge, seen)


def test_a_truncate_empties_what_came_before_it(place: Place) -> None:
    schema = SCHEMA.append(pa.field(TRUNCATES, pa.bool_()))
    sink = place.sink(NEWEST, schema=schema)
    first = [(1, "x", 1, 1, False, False), (2, "y", 1, 7, False, False)]
    sink.apply(key(0), staged(sink, key(0), first, schema))
    sink.apply(key(1), staged(sink, key(1), [(None, None, None, 5, False, True)], schema))
    assert place.rows() == [(2, "y", 1)]
    late = [(1, "late", 1, 4, False, False), (3, "new", 1, 6, False, False)]
    sink.apply(key(2), staged(sink, key(2), late, schema))
    assert place.rows() == [(2, "y", 1), (3, "new", 1)]


def test_a_new_generation_takes_the_place_of_all(place: Place) -> None:
    sink = place.sink(HISTORY)
    sink.apply(key(0), staged(sink, key(0), delta.CHANGED[0]))
    sink.apply(key(0, 2), staged(sink, key(0, 2), [(9, "n", 1, 1, False)], replace=True))
    assert place.rows() == [(9, "n", 1, 1, None)]
    assert place.database.execute("SELECT count(*) FROM people__changes").fetchone() == (1,)


def test_recovery_needs_the_receipt_only(place: Place) -> None:
    sink = place.sink(HISTORY)
    receipt = staged(sink, key(0), delta.CHANGED[0])
    bare = open_sink("postgres", replace(sink.spec, merge=None))
    bare.apply(key(0), receipt)
    assert place.rows() == delta.model(HISTORY, delta.CHANGED[0])


def test_sequences_of_several_parts_and_new_columns(place: Place) -> None:
    sequence = pa.struct([("lsn", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema([f if f.name != SEQUENCE else pa.field(SEQUENCE, sequence) for f in SCHEMA])
    sink = place.sink(HISTORY, schema=schema)
    rows = [(1, "a", 1, {"lsn": 9, "at": None}, False), (1, "b", 1, {"lsn": 10, "at": None}, False)]
    sink.apply(key(0), staged(sink, key(0), rows[1:], schema))
    sink.apply(key(1), staged(sink, key(1), rows[:1], schema))
    found = place.database.execute(f'SELECT a, "{START_AT}", "{END_AT}" FROM people ORDER BY a'.encode()).fetchall()
    assert found == [
        ("a", {"lsn": 9, "at": None}, {"lsn": 10, "at": None}),
        ("b", {"lsn": 10, "at": None}, None),
    ]
    wider = schema.append(pa.field("tags", pa.list_(pa.string())))
    sink = place.sink(HISTORY, schema=wider)
    sink.apply(key(2), staged(sink, key(2), [(1, "c", 1, {"lsn": 11, "at": None}, False, ["x"])], wider))
    assert place.database.execute("SELECT a, tags FROM people ORDER BY a").fetchall() == [
        ("a", None), ("b", None), ("c", ["x"])
    ]  # fmt: skip


def test_what_the_table_refuses_is_put_aside_or_stops(place: Place) -> None:
    place.sink(NEWEST)
    place.database.execute("ALTER TABLE people ADD CHECK (b < 10)")
    rows = [(1, "fine", 1, 1, False), (2, "large", 99, 2, False), (3, "zero\0", 1, 3, False)]
    sink = place.sink(NEWEST)
    receipt = staged(sink, key(0), rows)
    with pytest.raises(DataError):
        sink.apply(key(0), receipt)
    assert place.rows("people__changes") == []
    place.sink(NEWEST, on_violation="quarantine").apply(key(0), receipt)
    assert place.rows() == [(1, "fine", 1)]
    assert sorted(r[2] for r in place.rows("people__rejected")) == ["22021", "people_b_check"]


def test_a_table_that_was_fed_in_another_way_is_refused(place: Place) -> None:
    place.database.execute("CREATE TABLE people (id bigint, a text, b bigint)")
    place.sink(NEWEST)
    place.database.execute("DROP TABLE people__changes")
    place.database.execute("INSERT INTO people VALUES (1, 'x', 1)")
    with pytest.raises(StateError) as refused:
        place.sink(NEWEST)
    assert refused.value.code == "CHANGES_WITHOUT_LOG"
