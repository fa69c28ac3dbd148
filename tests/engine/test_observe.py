"""Columns are profiled as rows are written: as DuckDB would say it, once for each epoch, at no risk for the epoch."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.declarations import Dataset, Kind
from anabranch.core.events import EpochPublished
from anabranch.core.events_data import ColumnsProfiled, ProfileFailed
from anabranch.core.profile import MIXED, UNKNOWN, ColumnProfile, Lengths, TableProfile, Text
from anabranch.core.where import Where
from anabranch.engine import observe
from anabranch.engine.observe import MOST_COLUMNS, SWITCH, Observer, observed_columns, profile_of
from anabranch.engine.value_hashes import hash_texts
from anabranch.store.profiles import profiles_of
from observed_table import Shop

_HOSTILE = {
    "whole": pa.array([1, None, -(2**63), 2**63 - 1, 0, 0], pa.int64()),
    "huge": pa.array([2**64 - 1, None, 0, 1, 1, 1], pa.uint64()),
    "real": pa.array([math.nan, math.inf, -0.0, 0.0, None, 5e-324], pa.float64()),
    "single": pa.array([math.nan, -math.inf, 1e38, 1.5, None, 1.5], pa.float32()),
    "exact": pa.array(
        [Decimal("0.10"), Decimal("-99999999.99"), None, Decimal("0.1"), None, None], pa.decimal128(18, 2)
    ),
    "day": pa.array([0, -719162, 2_932_896, None, 0, 1], pa.int32()).cast(pa.date32()),
    "moment": pa.array([0, None, -(10**15), 10**15, 1, 1], pa.int64()).cast(pa.timestamp("us", "UTC")),
    "text": pa.array(["", "a", None, "ä" * 200, "\x00", "z\nz"], pa.string()),
    "flag": pa.array([True, False, None, None, True, True], pa.bool_()),
    "bytes": pa.array([b"", b"\xff\xfe", None, b"x" * 70_000, b"", b""], pa.binary()),
    "items": pa.array([[1, None], [], None, [3], None, [4, 5, 6]], pa.list_(pa.int64())),
    "pairs": pa.array([[("a", 1)], [], None, [("a", 1), ("b", 2)], None, None], pa.map_(pa.string(), pa.int64())),
    "nested": pa.array(
        [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 2, "y": None}, None, {"x": 2, "y": "a"}],
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
    ),
}


def _asked(rows: pa.Table, column: str, where: str = "true") -> tuple[Any, ...]:
    """What DuckDB knows of a column: rows, nulls, distinct, least, greatest."""
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        query = (
            f"SELECT count(*), count(*) - count({column}), count(DISTINCT {column}) FILTER ({where}), "
            f"min({column}) FILTER ({where}), max({column}) FILTER ({where}) FROM rows"
        )
        found = connection.execute(query).fetchone()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("column", "where"),
    [
        ("whole", "true"),
        ("huge", "true"),
        ("exact", "true"),
        ("real", "NOT isnan(real)"),
        ("single", "NOT isnan(single)"),
        ("nested.x", "true"),
    ],
)
def test_numbers_are_as_duckdb_says(column: str, where: str) -> None:
    rows = pa.table(_HOSTILE)
    found = profile_of(rows).columns[column]
    count, nulls, distinct, low, high = _asked(rows, column, where)
    assert (found.rows, found.nulls, found.low, found.high) == (count, nulls, low, high)
    assert found.distinct is not None
    assert found.distinct.estimate() == distinct + (found.nans > 0)


def test_days_and_moments_are_exact_also_where_python_has_none() -> None:
    found = profile_of(pa.table(_HOSTILE)).columns
    assert found["day"].figures()["min"] == "0001-01-01"
    assert found["day"].figures()["max"] == "9999-12-31"
    assert (found["moment"].low, found["moment"].high) == (-(10**15), 10**15)
    far = pa.table({"t": pa.array([2**62, -(2**62)]).cast(pa.timestamp("us"))})
    assert profile_of(far).columns["t"].figures()["max"] == "day 53375995 after 1970"


def test_texts_are_told_by_their_beginning_and_their_length() -> None:
    found = profile_of(pa.table(_HOSTILE)).columns["text"]
    assert (found.low, found.high) == (Text(""), Text("ä" * 64, cut=True))
    assert found.lengths == Lengths(0, 200, 0 + 1 + 200 + 1 + 3)
    assert found.distinct is not None
    assert found.distinct.estimate() == 5


def test_nested_columns_are_told_by_path_and_size() -> None:
    found = profile_of(pa.table(_HOSTILE)).columns
    assert (found["nested"].kind, found["nested"].nulls) == ("struct", 2)
    assert (found["nested.y"].nulls, found["nested.y"].high) == (3, Text("b"))
    assert (found["items"].nulls, found["items"].lengths) == (2, Lengths(0, 3, 6))
    assert (found["items[]"].rows, found["items[]"].nulls, found["items[]"].high) == (6, 1, 6)
    assert (found["pairs"].nulls, found["pairs"].lengths) == (3, Lengths(0, 2, 3))
    assert (found["bytes"].nulls, found["bytes"].lengths) == (1, Lengths(0, 70_000, 70_002))
    assert (found["flag"].figures()["min"], found["flag"].figures()["max"]) == ("false", "true")


def test_zero_nan_and_infinity_are_kept_apart() -> None:
    found = profile_of(pa.table(_HOSTILE)).columns["real"]
    assert (found.nans, found.infinite, found.nulls) == (1, 1, 1)
    assert found.histogram is not None
    assert (found.histogram.zero, found.histogram.count) == (2, 3)
    assert math.copysign(1, found.low or 0) == 1  # -0.0 is 0.0


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.decimal32(5, 2), pa.decimal64(12, 2)),
        *(pa.null(), pa.bool_(), pa.int8(), pa.float16(), pa.decimal256(50, 3), pa.date32(), pa.date64()),
        *(pa.time32("s"), pa.time64("ns"), pa.timestamp("ns"), pa.timestamp("s"), pa.duration("us")),
        *(
            pa.string(),
            pa.large_string(),
            pa.string_view(),
            pa.binary_view(),
            pa.binary(4),
            pa.month_day_nano_interval(),
        ),
        *(pa.list_(pa.string()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2), pa.map_(pa.string(), pa.string())),
        *(pa.struct([]), pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=str,
)
def test_every_type_empty_null_and_cut_out_of_the_middle(kind: pa.DataType) -> None:
    assert profile_of(pa.table({"c": pa.array([], kind)})).columns["c"].rows == 0
    rows = pa.table({"c": pa.nulls(5, kind)})
    found = profile_of(rows.slice(1, 3)).columns["c"]
    assert (found.rows, found.nulls, found.low) == (3, 3, None)


def test_rows_cut_out_of_the_middle_are_those_alone() -> None:
    rows = pa.table(_HOSTILE)
    again = pa.table(
        {name: pa.array(rows[name].slice(2, 3).to_pylist(), rows[name].type) for name in rows.column_names}
    )
    assert profile_of(rows.slice(2, 3)) == profile_of(again)


_LISTS = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(width=64),
        st.none() | st.text(max_size=20),
        st.none() | st.dates(),
    ),
    max_size=30,
)
_TYPES = {"i": pa.int64(), "f": pa.float64(), "s": pa.string(), "d": pa.date32()}


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.table({name: pa.array([row[i] for row in rows], t) for i, (name, t) in enumerate(_TYPES.items())})


@settings(max_examples=60, deadline=None)
@given(_LISTS, _LISTS)
def test_parts_add_up_to_the_whole(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]]) -> None:
    left, right = _table(one), _table(other)
    assert profile_of(left) + profile_of(right) == profile_of(pa.concat_tables([left, right]))


def test_texts_that_are_no_text_and_moments_that_are_too_far_out() -> None:
    odd = pa.array([b"\xff\xfe", b"a", b"\x80" * 300], pa.binary()).view(pa.string())
    found = profile_of(pa.table({"odd": odd, "far": pa.array([2**62, 0, 1]).cast(pa.timestamp("s"))})).columns
    assert (found["odd"].low, found["odd"].high) == (Text("a"), Text("\ufffd\ufffd"))
    assert found["odd"].distinct is not None
    assert found["odd"].distinct.estimate() == 3
    assert (found["far"].low, (found["far"].high or 0) > 2**62) == (0, True)


def test_narrow_decimals_are_counted_like_wide_ones() -> None:
    values = [Decimal("1.50"), Decimal("-2.00"), None, Decimal("1.50")]
    wide, narrow = (profile_of(pa.table({"d": pa.array(values, t)})) for t in (pa.decimal128(9, 2), pa.decimal64(9, 2)))
    assert wide == narrow


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(alphabet="ab\0", max_size=30), max_size=30, unique=True))
def test_texts_that_differ_have_different_hashes(texts: list[str]) -> None:
    hashes = hash_texts(pa.array(["x", *texts], pa.string()).slice(1))
    assert len(set(hashes.tolist())) == len(texts)
    assert hashes.tolist() == [int(hash_texts(pa.array([text], pa.string()))[0]) for text in texts]


def test_long_texts_differ_by_their_last_byte() -> None:
    long = "x" * 5_000
    hashes = hash_texts(pa.array([long + "a", "short", long + "b", long + "a"]))
    assert hashes[0] == hashes[3]
    assert len(set(hashes.tolist())) == 3


def test_estimates_over_many_rows_keep_to_their_bounds() -> None:
    dice = np.random.default_rng(7)
    size = 300_000
    rows = pa.table(
        {
            "id": dice.integers(0, 80_000, size),
            "name": pa.array(dice.integers(0, 120_000, size)).cast(pa.string()),
            "price": dice.lognormal(3, 2, size),
            "moment": pa.array(dice.integers(1_700_000_000_000_000, 1_760_000_000_000_000, size)).cast(
                pa.timestamp("us")
            ),
        }
    )
    observer = Observer()
    for batch in rows.to_batches(max_chunksize=10_000):
        observer.take(batch)
    found = observer.seen()
    assert isinstance(found, TableProfile)
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        for name in ("id", "name", "price"):
            exact = _asked(rows, name)[2]
            distinct = found.columns[name].distinct
            assert distinct is not None
            assert abs(distinct.estimate() - exact) < 4 * 0.023 * exact
        for share in (0.01, 0.5, 0.99):
            answer = connection.execute(
                f"SELECT quantile_disc(price, {share}), quantile_disc(epoch(moment), {share}) FROM rows"
            )
            price, second = answer.fetchone() or (0, 0)
            told = found.columns["price"].quantile(share)
            assert told == pytest.approx(price, rel=0.05)
            when = found.columns["moment"].quantile(share)
            assert when == pytest.approx(second, abs=60_000_000 / 128)


def test_columns_that_are_too_many_are_named() -> None:
    wide = pa.table({f"c{i:03}": [1] for i in range(MOST_COLUMNS + 2)})
    found = profile_of(wide)
    assert (len(found.columns), found.left_out) == (MOST_COLUMNS, ("c200", "c201"))


def test_a_schema_that_changes_on_the_way() -> None:
    observer = Observer()
    for table in (pa.table({"a": [1]}), pa.table({"a": pa.nulls(2)}), pa.table({"a": ["x"], "b": [2]})):
        observer.take(table.to_batches()[0])
    found = observer.seen()
    assert isinstance(found, TableProfile)
    assert found.columns["a"] == ColumnProfile(MIXED, 4, 2)
    assert (found.rows, found.columns["b"].rows) == (4, 1)
    assert profile_of(pa.table({"a": pa.nulls(2)})).columns["a"].kind == UNKNOWN


_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def _orders(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "name": [f"n{i}" if i % 2 else None for i in ids]}, schema=_SCHEMA)


def test_an_epoch_has_one_profile_of_all_its_tasks(tmp_path: Path) -> None:
    shop = Shop(tmp_path, _SCHEMA)
    shop.epochs([_orders(1, 2), _orders(3)], [_orders(4)])
    first, second = profiles_of(shop.history, "orders")
    assert (first.name, first.profile) == ("orders epoch 0", profile_of(_orders(1, 2, 3)))
    assert (second.name, second.profile.columns["name"].nulls) == ("orders epoch 1", 1)
    kinds = [event.kind for event in shop.heard]
    assert kinds == [ColumnsProfiled.kind, EpochPublished.kind] * 2
    assert shop.history.events(kinds=[ColumnsProfiled.kind]) == []  # kept apart


def test_a_batch_that_comes_again_leaves_one_profile(tmp_path: Path) -> None:
    shop = Shop(tmp_path, _SCHEMA)
    with shop.run() as channel:
        listener = channel.listener

        def stop_once(event: Any) -> None:
            listener(event)
            if isinstance(event, ColumnsProfiled):
                raise RuntimeError("killed before it was decided")

        channel.listener = stop_once
        with pytest.raises(RuntimeError):
            channel.batch([_orders(1, 2, 3)], 0)
    shop.epochs([_orders(1, 2)])
    with shop.run() as channel:
        channel.batch([_orders(1, 2)], 0)  # published: Spark lost its commit
    assert [one.profile.rows for one in profiles_of(shop.history, "orders")] == [2]


def test_a_profile_that_fails_leaves_the_epoch_whole_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> TableProfile:
        raise MemoryError("no room")

    monkeypatch.setattr(observe, "profile_of", broken)
    shop = Shop(tmp_path, _SCHEMA)
    shop.epochs([_orders(1, 2), _orders(3)])
    assert [e.rows for e in shop.heard if isinstance(e, EpochPublished)] == [{"orders": 3}]
    assert [e.reason for e in shop.heard if isinstance(e, ProfileFailed)] == ["MemoryError: no room"]
    assert profiles_of(shop.history, "orders") == []
    assert [e.kind for e in shop.history.events(level="warn")] == [ProfileFailed.kind]


def test_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path, _SCHEMA, observe=("nmae",))
    shop.epochs([_orders(1)])
    assert [e.reason for e in shop.heard if isinstance(e, ProfileFailed)] == ['there is no column "nmae"']
    only = Shop(tmp_path / "only", _SCHEMA, observe=("name",))
    only.epochs([_orders(1)])
    assert list(profiles_of(only.history, "orders")[0].profile.columns) == ["name"]


def test_nothing_is_looked_at_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(tmp_path, _SCHEMA, observe=None)
    shop.epochs([_orders(1)])
    assert [event.kind for event in shop.heard] == [EpochPublished.kind]
    where = Where("pipeline.py", 1)
    declared = [Dataset("a", Kind.STREAMING_TABLE, where, observe=()), Dataset("b", Kind.STREAMING_TABLE, where)]
    assert observed_columns(declared) == {"a": ()}
    monkeypatch.setenv(SWITCH, "off")
    assert observed_columns(declared) == {}


def test_events_tell_counts_and_no_values(tmp_path: Path) -> None:
    shop = Shop(tmp_path, _SCHEMA)
    shop.epochs([_orders(1, 2)])
    record = shop.heard[0].as_record()
    assert record["columns"] == {
        "id": {"nulls": 0, "nans": 0, "distinct": 2},
        "name": {"nulls": 1, "nans": 0, "distinct": 1},
    }
    assert record["rows"] == 2
    assert "n1" not in str(record)


def test_moments_of_any_unit_are_the_same() -> None:
    at = datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)
    found = [profile_of(pa.table({"t": pa.array([at], pa.timestamp(unit, "UTC"))})) for unit in ("s", "ms", "us", "ns")]
    assert len({one.columns["t"].low for one in found}) == 1
    assert found[0] == found[3]
