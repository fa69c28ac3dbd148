"""Changes by key, against a model that has all changes in memory: late ones, repeated ones, deletes, kills."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.delta import DeltaSink, arrow_dataset
from anabranch.connectors.delta_changes import DeltaChanges
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink
from anabranch.core import crash
from anabranch.core.changes import DELETES, END_AT, SEQUENCE, START_AT, TRUNCATES, Merge
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import StateError

NEWEST = Merge(("id",))
FILLED = Merge(("id",), keep_when_null=("a", "b"))
HISTORY = Merge(("id",), history=True, tracked=("a",))
HISTORY_FILLED = Merge(("id",), history=True, tracked=("a", "b"), keep_when_null=("a", "b"))
SCHEMA = pa.schema(
    [("id", pa.int64()), ("a", pa.string()), ("b", pa.int64()), (SEQUENCE, pa.int64()), (DELETES, pa.bool_())]
)

Change = tuple[int | None, str | None, int | None, int, bool]


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p", "c", generation, epoch)


def sink_at(folder: Path, merge: Merge | None, partition_by: tuple[str, ...] = ()) -> DeltaChanges:
    sink = open_sink("delta", SinkSpec("people", str(folder / "people"), "p", merge=merge, partition_by=partition_by))
    assert isinstance(sink, DeltaChanges)
    return sink


def staged(
    sink: DeltaChanges, epoch: int, rows: list[Any], schema: pa.Schema = SCHEMA, *, replace: bool = False
) -> Receipt:
    writer = StagedWriter(sink.staging(key(epoch), token=1), "0")
    for row in rows:  # each its own batch
        writer.write(pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True))], schema=schema))
    return Receipt.from_json(sink.receipt(key(epoch), writer.close(), replace=replace).to_json())


def rows_of(sink: DeltaChanges) -> list[tuple[Any, ...]]:
    found = arrow_dataset(sink.location, int(sink.version())).to_table().to_pylist()
    return sorted((tuple(row.values()) for row in found), key=repr)


def model(merge: Merge, changes: list[Change]) -> list[tuple[Any, ...]]:
    """What the table must hold once all these changes have come, in whatever order."""
    rows: list[tuple[Any, ...]] = []
    for k in {c[0] for c in changes}:
        events = sorted({c[3]: c for c in changes if c[0] == k}.values(), key=lambda c: c[3])
        line: list[list[Any]] = []  # rows with start and end
        alive: list[Any] | None = None
        for _, a, b, at, deletes in events:
            if deletes:
                if alive:
                    alive[-1] = at
                alive = None
                continue
            new = [k, a, b]
            if alive and merge.keep_when_null:
                new = [k, *(n if n is not None else o for n, o in zip((a, b), alive[1:3], strict=True))]
            columns = {"a": 1, "b": 2}
            tracked = [columns[c] for c in merge.tracked] if merge.history else []
            if alive and merge.history and all(alive[i] == new[i] for i in tracked):
                alive[:3] = new
                continue
            if alive:
                alive[-1] = at
            alive = [*new, at, None]
            line.append(alive)
        if merge.history:
            rows += [tuple(row) for row in line]
        elif alive:
            rows.append(tuple(alive[:3]))
    return sorted(rows, key=repr)


#: One change has one content: the same key and sequence always say the same.
def change(k: int | None, at: int) -> Change:
    mixed = hash((k, at, 7)) % 12
    return (k, [None, "x", "y"][mixed % 3], [None, 1][mixed % 2], at, mixed > 9)


CHANGES = st.builds(change, st.sampled_from([None, 1, 2, 3]), st.integers(0, 9))


@pytest.mark.parametrize("merge", [NEWEST, FILLED, HISTORY, HISTORY_FILLED], ids=["newest", "filled", "hist", "both"])
@settings(max_examples=25, deadline=None)
@given(epochs=st.lists(st.lists(CHANGES, max_size=6), max_size=5))
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
            assert rows_of(sink) == model(merge, seen)
            sink = sink_at(Path(folder), merge)  # nothing of it is in memory only
            sink.prepare(SCHEMA)
        assert sink.leftovers(frozenset(), token=9) == []


CHANGED: list[list[Change]] = [[(1, "x", 1, 1, False), (2, "y", 1, 2, False)], [(1, "z", 1, 3, False)]]


@pytest.mark.parametrize("point", ["committed(people/changes)", "committed(people)"])
def test_an_epoch_cut_between_its_two_commits_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    sink = sink_at(tmp_path, HISTORY)
    sink.prepare(SCHEMA)
    sink.apply(key(0), staged(sink, 0, CHANGED[0]))
    receipt = staged(sink, 1, CHANGED[1])
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, f"{point}:raise")
        with pytest.raises(crash.CrashPointError):
            sink.apply(key(1), receipt)
    again = sink_at(tmp_path, None)  # as recovery opens it, knowing nothing of the project
    assert again.damaged(receipt) is None
    again.apply(key(1), receipt)
    assert rows_of(again) == model(HISTORY, [c for epoch in CHANGED for c in epoch])
    assert again.latest(key(1)) == 1


def _killed(*_: Any) -> None:
    raise KeyboardInterrupt("killed")


def test_files_written_by_a_dead_attempt_are_leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_at(tmp_path, NEWEST)
    sink.prepare(SCHEMA)
    sink.apply(key(0), staged(sink, 0, CHANGED[0]))
    receipt = staged(sink, 1, CHANGED[1])
    with monkeypatch.context() as patch:
        sink._log.apply(key(1), receipt)
        patch.setattr(DeltaSink, "_commit", _killed)
        patch.setattr(StagedWriter, "abort", lambda _: None)
        with pytest.raises(BaseException, match="killed"):
            sink.apply(key(1), receipt)
    again = sink_at(tmp_path, None)
    dead = again.leftovers(frozenset(f.path for f in receipt.files), token=2)
    assert len(dead) == 1, dead
    again.discard(path for path, _ in dead)
    again.apply(key(1), receipt)
    assert rows_of(again) == model(NEWEST, [c for epoch in CHANGED for c in epoch])


def test_partitions_and_new_columns_survive_a_rewrite(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, NEWEST, partition_by=("a",))
    sink.prepare(SCHEMA)
    sink.apply(key(0), staged(sink, 0, [(1, "x y", 1, 1, False), (2, None, 2, 1, False), (3, "x y", 3, 1, False)]))
    wider = SCHEMA.append(pa.field("c", pa.float64()))
    sink.prepare(wider)
    sink.apply(key(1), staged(sink, 1, [(1, "é/ü", 4, 2, False, 0.5), (2, None, 0, 2, True, None)], wider))
    found = arrow_dataset(sink.location, int(sink.version())).to_table().to_pylist()
    assert sorted((r["id"], r["a"], r["b"], r["c"]) for r in found) == [(1, "é/ü", 4, 0.5), (3, "x y", 3, None)]


@pytest.mark.parametrize("keep", [(), ("a",)], ids=["newest", "nulls-kept"])
def test_a_truncate_empties_what_came_before_it(tmp_path: Path, keep: tuple[str, ...]) -> None:
    schema = SCHEMA.append(pa.field(TRUNCATES, pa.bool_()))
    sink = sink_at(tmp_path, replace(NEWEST, keep_when_null=keep))
    sink.prepare(schema)
    sink.apply(key(0), staged(sink, 0, [(1, "x", 1, 1, False, False), (2, "y", 1, 7, False, False)], schema))
    sink.apply(key(1), staged(sink, 1, [(None, None, None, 5, False, True)], schema))
    assert rows_of(sink) == [(2, "y", 1)]
    late = [(1, "late", 1, 4, False, False), (3, "new", 1, 6, False, False)]
    sink.apply(key(2), staged(sink, 2, late, schema))
    assert rows_of(sink) == [(2, "y", 1), (3, "new", 1)]


def test_a_new_generation_takes_the_place_of_all(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, HISTORY)
    sink.prepare(SCHEMA)
    sink.apply(key(0), staged(sink, 0, CHANGED[0]))
    receipt = staged(sink, 0, [(9, "n", 1, 1, False)], replace=True)
    sink.apply(key(0, generation=2), receipt)
    assert rows_of(sink) == [(9, "n", 1, 1, None)]


def test_a_table_that_was_fed_in_another_way_is_refused(tmp_path: Path) -> None:
    plain = open_sink("delta", SinkSpec("people", str(tmp_path / "people"), "p"))
    schema = pa.schema([f for f in SCHEMA if f.name not in (SEQUENCE, DELETES)])
    plain.prepare(schema)
    writer = StagedWriter(plain.staging(key(0), token=1), "0")
    writer.write(pa.RecordBatch.from_pylist([{"id": 1, "a": "x", "b": 1}], schema=schema))
    plain.apply(key(0), plain.receipt(key(0), writer.close()))
    with pytest.raises(StateError) as caught:
        sink_at(tmp_path, NEWEST).prepare(SCHEMA)
    assert caught.value.code == "CHANGES_WITHOUT_LOG"


def test_history_has_the_columns_users_know(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, HISTORY)
    sink.prepare(SCHEMA)
    assert arrow_dataset(sink.location, 0).schema.names == ["id", "a", "b", START_AT, END_AT]
