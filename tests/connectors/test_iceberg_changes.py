"""Changes by key in Iceberg, against a model that has all changes in memory; the table and its log move as one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.iceberg_catalog import SqlTables
from anabranch.connectors.iceberg_changes import IcebergChanges
from anabranch.connectors.iceberg_versions import read_version
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core import crash
from anabranch.core.changes import DELETES, END_AT, SEQUENCE, START_AT, TRUNCATES, Merge
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import ProjectError, StateError

NEWEST = Merge(("id",))
HISTORY = Merge(("id",), history=True, tracked=("a",))
FILLED = Merge(("id",), keep_when_null=("a", "b"))
SCHEMA = pa.schema(
    [("id", pa.int64()), ("a", pa.string()), ("b", pa.int64()), (SEQUENCE, pa.int64()), (DELETES, pa.bool_())]
)
Change = tuple[int | None, str | None, int | None, int, bool]


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p", "c", generation, epoch)


def sink_at(folder: Path, merge: Merge | None, partition_by: tuple[str, ...] = ()) -> IcebergChanges:
    spec = SinkSpec("people", str(folder / "people"), "p", str(folder), merge=merge, partition_by=partition_by)
    sink = open_sink("iceberg", spec)
    assert isinstance(sink, IcebergChanges)
    return sink


def staged(
    sink: IcebergChanges, epoch: int, rows: list[Any], schema: pa.Schema = SCHEMA, *, replace: bool = False
) -> Receipt:
    writer = StagedWriter(sink.staging(key(epoch), token=1), "0")
    for row in rows:
        writer.write(pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema=schema))
    return Receipt.from_json(sink.receipt(key(epoch), writer.close(), replace=replace).to_json())


def rows_of(sink: IcebergChanges) -> list[tuple[Any, ...]]:
    found = read_version(sink.location, sink.version()).to_table().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def newest(merge: Merge, changes: list[Change]) -> list[tuple[Any, ...]]:
    """The row that each key is left with, whatever the order in which the changes came."""
    rows: list[tuple[Any, ...]] = []
    for k in {c[0] for c in changes}:
        alive: list[Any] | None = None
        for _, a, b, _, deletes in sorted({c[3]: c for c in changes if c[0] == k}.values(), key=lambda c: c[3]):
            kept = alive[1:] if alive and merge.keep_when_null else (None, None)
            new = [n if n is not None else o for n, o in zip((a, b), kept, strict=True)]
            alive = None if deletes else [k, *new]
        rows += [tuple(alive)] if alive else []
    return sorted(rows, key=repr)


#: One change has one content: the same key and sequence always say the same.
def change(k: int | None, at: int) -> Change:
    mixed = hash((k, at, 7)) % 12
    return (k, [None, "x", "y"][mixed % 3], [None, 1][mixed % 2], at, mixed > 9)


CHANGES = st.builds(change, st.sampled_from([None, 1, 2, 3]), st.integers(0, 9))


@pytest.mark.parametrize("merge", [NEWEST, FILLED], ids=["newest", "filled"])
@settings(max_examples=8, deadline=None)
@given(epochs=st.lists(st.lists(CHANGES, max_size=6), max_size=4))
def test_changes_in_any_order_make_the_table_that_all_of_them_make(merge: Merge, epochs: list[list[Change]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sink = sink_at(Path(folder), merge)
        sink.prepare(SCHEMA)
        seen: list[Change] = []
        for number, changes in enumerate(epochs):
            receipt = staged(sink, number, list(changes))
            first = sink.apply(key(number), receipt)
            assert sink.apply(key(number), receipt).version == first.version
            seen += changes
            assert rows_of(sink) == newest(merge, seen)
            sink = sink_at(Path(folder), merge)  # nothing of it is in memory only
            sink.prepare(SCHEMA)
        assert sink.leftovers(frozenset(), token=9) == []


FIRST: list[Change] = [(1, "x", 1, 1, False), (2, "y", 1, 2, False)]
SECOND: list[Change] = [(1, "z", 1, 3, False)]


def test_history_and_a_new_generation(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, HISTORY)
    sink.prepare(SCHEMA)
    assert read_version(sink.location, sink.version()).schema.names == ["id", "a", "b", START_AT, END_AT]
    sink.apply(key(0), staged(sink, 0, FIRST))
    sink.apply(key(1), staged(sink, 1, SECOND))
    assert rows_of(sink) == [(1, "x", 1, 1, 3), (1, "z", 1, 3, None), (2, "y", 1, 2, None)]
    sink.apply(key(0, generation=2), staged(sink, 0, [(9, "n", 1, 1, False)], replace=True))
    assert rows_of(sink) == [(9, "n", 1, 1, None)]


def test_killed_before_the_swap_neither_table_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata and rewritten files of the dead attempt are there, and nothing names them."""
    sink = sink_at(tmp_path, NEWEST)
    sink.prepare(SCHEMA)
    sink.apply(key(0), staged(sink, 0, FIRST))
    receipt = staged(sink, 1, SECOND)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(SqlTables, "swap", killed)
        with pytest.raises(KeyboardInterrupt):
            sink.apply(key(1), receipt)
    again = sink_at(tmp_path, None)  # as recovery opens it, knowing nothing of the project
    assert again.latest(key(1)) == 0
    assert rows_of(again) == newest(NEWEST, FIRST)
    dead = again.leftovers(frozenset(f.path for f in receipt.files), token=2)
    assert len(dead) == 1, dead
    again.discard(path for path, _ in dead)
    again.apply(key(1), receipt)
    assert rows_of(again) == newest(NEWEST, FIRST + SECOND)
    assert again.leftovers(frozenset(), token=2) == []


def test_killed_after_the_swap_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(tmp_path, NEWEST)
    sink.prepare(SCHEMA)
    receipt = staged(sink, 0, FIRST)
    monkeypatch.setenv(crash.VARIABLE, "committed(people):raise")
    with pytest.raises(crash.CrashPointError):
        sink.apply(key(0), receipt)
    again = sink_at(tmp_path, None)
    assert again.apply(key(0), receipt).already
    assert rows_of(again) == newest(NEWEST, FIRST)
    assert read_version(f"{again.location}/_changes", again.own[1].version()).count_rows() == 2


def test_partitions_and_new_columns_survive_a_rewrite(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, NEWEST, partition_by=("truncate(1, a)", "bucket(4, id)"))
    sink.prepare(SCHEMA)
    sink.apply(key(0), staged(sink, 0, [(1, "x y", 1, 1, False), (2, None, 2, 1, False), (3, "x y", 3, 1, False)]))
    wider = SCHEMA.append(pa.field("c", pa.float64()))
    sink.prepare(wider)
    sink.apply(key(1), staged(sink, 1, [(1, "é/ü", 4, 2, False, 0.5), (2, None, 0, 2, True, None)], wider))
    found = read_version(sink.location, sink.version()).to_table().to_pylist()
    assert sorted((r["id"], r["a"], r["b"], r["c"]) for r in found) == [(1, "é/ü", 4, 0.5), (3, "x y", 3, None)]


def test_a_truncate_empties_what_came_before_it(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field(TRUNCATES, pa.bool_()))
    sink = sink_at(tmp_path, NEWEST)
    sink.prepare(schema)
    sink.apply(key(0), staged(sink, 0, [(1, "x", 1, 1, False, False), (2, "y", 1, 7, False, False)], schema))
    sink.apply(key(1), staged(sink, 1, [(None, None, None, 5, False, True)], schema))
    assert rows_of(sink) == [(2, "y", 1)]


def test_a_table_that_was_fed_in_another_way_is_refused(tmp_path: Path) -> None:
    plain = open_sink("iceberg", SinkSpec("people", str(tmp_path / "people"), "p", str(tmp_path)))
    schema = pa.schema([f for f in SCHEMA if f.name not in (SEQUENCE, DELETES)])
    plain.prepare(schema)
    writer = StagedWriter(plain.staging(key(0), token=1), "0")
    writer.write(pa.RecordBatch.from_pylist([{"id": 1, "a": "x", "b": 1}], schema=schema))
    plain.apply(key(0), plain.receipt(key(0), writer.close()))
    with pytest.raises(StateError) as caught:
        sink_at(tmp_path, NEWEST).prepare(SCHEMA)
    assert caught.value.code == "CHANGES_WITHOUT_LOG"


def test_changes_need_a_catalogue_that_moves_two_tables_at_once(tmp_path: Path) -> None:
    options = {"catalog": "http://127.0.0.1:1"}
    with pytest.raises(ProjectError) as caught:
        open_sink("iceberg", SinkSpec("people", str(tmp_path), "p", str(tmp_path), options=options, merge=NEWEST))
    assert caught.value.code == "OPTION_INVALID"
