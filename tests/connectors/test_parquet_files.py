"""Staged Parquet files: what is read back is what was written, and no statistic could hide a row."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import pickle
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.connectors import parquet_files
from anabranch.connectors.contract import Staging
from anabranch.connectors.folder import Folder
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.parquet_partitions import partition_folder, partition_text
from anabranch.core import crash
from anabranch.core.epoch import StagedFile
from anabranch.errors import DataError

UTC = dt.UTC
SLOW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)

_ints = {
    kind: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for kind, bits in ((pa.int8(), 8), (pa.int64(), 64))
}
_moments = st.datetimes()
LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    **_ints,
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats() | st.sampled_from([0.0, -0.0, math.nan, math.inf]),
    pa.string(): st.text(max_size=6) | st.text("aé\U0010ffff\ud7ff\ue000", min_size=30, max_size=40),
    pa.binary(): st.binary(max_size=4),
    pa.date32(): st.dates(),
    pa.timestamp("us"): _moments,
    pa.timestamp("us", "UTC"): _moments.map(lambda moment: moment.replace(tzinfo=UTC)),
    pa.decimal128(5, 2): st.decimals(-999, 999, places=2),
    pa.decimal128(18, 0): st.integers(-(10**18) + 1, 10**18 - 1).map(Decimal),
    pa.decimal128(38, 10): st.decimals(-(10**28) + 1, 10**28 - 1, places=10),
}


@st.composite
def kinds(draw: st.DrawFn, depth: int = 2) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    """An Arrow type and its values, nulls among them."""
    shape = draw(st.sampled_from(["leaf"] * 5 + (["struct", "list", "map"] if depth else [])))
    if shape == "leaf":
        kind = draw(st.sampled_from(list(LEAVES)))
        return kind, st.none() | LEAVES[kind]
    inner = [draw(kinds(depth=depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    if shape == "struct":
        fields = {f"f{i}": values for i, (_, values) in enumerate(inner)}
        kind = pa.struct([(f"f{i}", k) for i, (k, _) in enumerate(inner)])
        return kind, st.none() | st.fixed_dictionaries(fields)
    if shape == "list":
        return pa.list_(inner[0][0]), st.none() | st.lists(inner[0][1], max_size=3)
    pairs = st.dictionaries(st.text(max_size=2), inner[0][1], max_size=2).map(lambda d: list(d.items()))
    return pa.map_(pa.string(), inner[0][0]), st.none() | pairs


@st.composite
def tables(draw: st.DrawFn) -> tuple[pa.Schema, list[list[dict[str, Any]]]]:
    """A schema and some batches of rows."""
    columns = [draw(kinds()) for _ in range(draw(st.integers(1, 5)))]
    schema = pa.schema([(f"c{i}", kind) for i, (kind, _) in enumerate(columns)])
    row = st.fixed_dictionaries({f"c{i}": values for i, (_, values) in enumerate(columns)})
    return schema, draw(st.lists(st.lists(row, max_size=6), min_size=1, max_size=4))


def staged(folder: Path, schema: pa.Schema, batches: list[Any], partition_by: tuple[str, ...] = ()) -> list[StagedFile]:
    staging = Staging("sink", str(folder), "ab-0-1-1", schema, partition_by)
    writer = StagedWriter(pickle.loads(pickle.dumps(staging)), "7")
    for rows in batches:
        writer.write(rows if isinstance(rows, pa.RecordBatch) else pa.RecordBatch.from_pylist(rows, schema=schema))
    return writer.close()


def at(tree: Any, path: tuple[str, ...]) -> Any:
    """A value deep in nested dictionaries; None where the way ends."""
    for name in path:
        tree = None if tree is None else tree.get(name)
    return tree


def leaf_paths(fields: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], pa.DataType]]:
    found: list[tuple[tuple[str, ...], pa.DataType]] = []
    for field in fields:
        here = (*path, field.name)
        if pa.types.is_struct(field.type):
            found += leaf_paths(field.type, here)
        elif not pa.types.is_nested(field.type):
            found.append((here, field.type))
    return found


def from_stat(value: Any, kind: pa.DataType) -> Any:
    """A bound of the statistics as a Python value that compares with the rows'."""
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if pa.types.is_date(kind):
        return dt.date.fromisoformat(value)
    if pa.types.is_timestamp(kind):
        assert value.endswith("Z") == bool(kind.tz)
        return dt.datetime.fromisoformat(value)
    if pa.types.is_string(kind):
        return value.encode()
    return value


def check_stats(stats: Any, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    """Every value lies within the bounds, independently of how they were made."""
    assert json.loads(json.dumps(stats)) == stats
    assert stats["numRecords"] == len(rows)
    for path, kind in leaf_paths(schema):
        values = [at(row, path) for row in rows]
        there = [v.encode() if isinstance(v, str) else v for v in values if v is not None]
        assert at(stats["nullCount"], path) == len(values) - len(there), path
        low, high = at(stats["minValues"], path), at(stats["maxValues"], path)
        assert (low is None) == (high is None)
        unbounded = pa.types.is_binary(kind) or pa.types.is_boolean(kind)
        if unbounded or not there or any(isinstance(v, float) and math.isnan(v) for v in there):
            assert low is None, path
        elif low is not None:
            assert all(from_stat(low, kind) <= v <= from_stat(high, kind) for v in there), (path, low, high)
            if pa.types.is_integer(kind) or pa.types.is_date(kind):
                assert (from_stat(low, kind), from_stat(high, kind)) == (min(there), max(there))
        else:
            always = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_date)
            assert not any(is_kind(kind) for is_kind in always), path


def same(left: Any, right: Any) -> bool:
    """Equal, with NaN equal to itself."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@given(tables())
@SLOW
def test_rows_come_back_and_statistics_hide_none(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[pa.Schema, list[list[dict[str, Any]]]]
) -> None:
    schema, batches = table
    folder = tmp_path_factory.mktemp("table")
    files = staged(folder, schema, batches)
    rows = [row for batch in batches for row in pa.RecordBatch.from_pylist(batch, schema=schema).to_pylist()]
    assert len(files) == (1 if rows else 0)
    for file in files:
        read = pq.read_table(folder / file.path).cast(schema)
        assert same(read.to_pylist(), rows)
        assert file.rows == len(rows)
        check_stats(file.stats, schema, rows)


@given(tables(), st.sampled_from([1, 2]))
@SLOW
def test_row_groups_do_not_change_anything(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[pa.Schema, list[list[dict[str, Any]]]], group: int
) -> None:
    schema, batches = table
    folder = tmp_path_factory.mktemp("table")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_files, "ROW_GROUP_ROWS", group)
        files = staged(folder, schema, batches)
    for file in files:
        rows = [row for batch in batches for row in pa.RecordBatch.from_pylist(batch, schema=schema).to_pylist()]
        assert pq.read_metadata(folder / file.path).num_row_groups >= len(rows) / group / 2
        check_stats(file.stats, schema, rows)


PARTITION_KINDS = [kind for kind in LEAVES if not pa.types.is_binary(kind)]


@given(st.data())
@SLOW
def test_partitions_keep_every_row(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    kinds_ = data.draw(st.lists(st.sampled_from(PARTITION_KINDS), min_size=1, max_size=3))
    names = tuple(f"p{i}" for i in range(len(kinds_)))
    schema = pa.schema([("n", pa.int64()), *zip(names, kinds_, strict=True)])
    some = {
        n: data.draw(st.lists(st.none() | LEAVES[k], min_size=1, max_size=3))
        for n, k in zip(names, kinds_, strict=True)
    }
    rows = [
        {"n": n, **{name: data.draw(st.sampled_from(some[name])) for name in names}}
        for n in range(data.draw(st.integers(1, 12)))
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    folder = tmp_path_factory.mktemp("table")
    files = staged(folder, schema, [batch.slice(0, 5), batch.slice(5)], names)
    assert len({tuple(f.partition.values()) for f in files}) == len(files)
    expected = {n: tuple(partition_text(batch.column(name)[n]) for name in names) for n in range(len(rows))}
    found = {}
    for file in files:
        read = pq.read_table(folder / file.path, partitioning=None)
        assert read.column_names == ["n"]
        numbers = read["n"].to_pylist()
        assert numbers == sorted(numbers)
        found |= dict.fromkeys(numbers, tuple(file.partition.values()))
    assert found == expected


def test_checksum_and_size_are_those_of_the_file(tmp_path: Path) -> None:
    [file] = staged(tmp_path, pa.schema([("a", pa.int64())]), [[{"a": 1}]])
    assert Folder(str(tmp_path)).checksum(file.path) == (file.size, file.checksum)
    assert (tmp_path / file.path).stat().st_size == file.size
    assert file.path.startswith("ab-0-1-1-7-0-")


def test_small_batches_share_row_groups_and_large_files_roll_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("a", pa.int64())])
    batch = pa.record_batch([pa.array(range(100))], schema=schema)
    [file] = staged(tmp_path, schema, [batch] * 4000)
    assert pq.read_metadata(tmp_path / file.path).num_row_groups == 2
    monkeypatch.setattr(parquet_files, "FILE_BYTES", 1000)
    monkeypatch.setattr(parquet_files, "ROW_GROUP_ROWS", 1000)
    files = staged(tmp_path, schema, [batch] * 50)
    assert [f.rows for f in files] == [3000, 2000]


def test_open_files_and_waiting_rows_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "OPEN_FILES", 3)
    monkeypatch.setattr(parquet_files, "ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(parquet_files, "WAITING_BYTES", 200)
    schema = pa.schema([("p", pa.int64()), ("n", pa.int64())])
    writer = StagedWriter(Staging("s", str(tmp_path), "ab", schema, ("p",)), "0")
    for n in range(300):
        writer.write(pa.RecordBatch.from_pylist([{"p": (n * i) % 11, "n": n} for i in range(1, 6)], schema=schema))
        assert len(writer._open) <= 3
        assert writer._waiting_bytes <= 200
    files = writer.close()
    assert sum(f.rows for f in files) == 1500
    read = [n for f in files for n in pq.read_table(tmp_path / f.path, partitioning=None)["n"].to_pylist()]
    assert sorted(read) == sorted(n for n in range(300) for _ in range(5))


def test_folders_are_named_as_spark_names_them() -> None:
    assert (
        partition_folder(["a b", "c"], ('x/y:z="%é ', None)) == "a b=x%2Fy%3Az%3D%22%25é /c=__HIVE_DEFAULT_PARTITION__/"
    )
    long = partition_folder(["c"], ("é" * 500,))
    assert len(long.encode()) < 255
    assert long != partition_folder(["c"], ("é" * 501,))


def test_partition_values_beyond_the_calendar_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([("p", pa.date32()), ("n", pa.int64())])
    batch = pa.record_batch([pa.array([5_000_000], pa.int32()).cast(pa.date32()), pa.array([1])], schema=schema)
    writer = StagedWriter(Staging("s", str(tmp_path), "ab", schema, ("p",)), "0")
    writer.write(batch)
    with pytest.raises(DataError) as raised:
        writer.close()
    assert raised.value.code == "PARTITION_VALUE_UNSUPPORTED"


def test_bounds_beyond_the_calendar_are_left_out(tmp_path: Path) -> None:
    schema = pa.schema([("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("s", pa.string())])
    batch = pa.record_batch(
        [
            pa.array([0, 5_000_000], pa.int32()).cast(pa.date32()),
            pa.array([2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us", "UTC")),
            pa.array(["x" * 9000, "y"]),
        ],
        schema=schema,
    )
    [file] = staged(tmp_path, schema, [batch])
    assert file.stats["minValues"] == file.stats["maxValues"] == {}
    assert file.stats["nullCount"] == {"d": 0, "t": 0, "s": 0}


def test_only_the_first_columns_have_statistics(tmp_path: Path) -> None:
    schema = pa.schema([(f"c{i}", pa.int64()) for i in range(40)])
    row = {f"c{i}": i for i in range(40)}
    assert len(staged(tmp_path, schema, [[row]])[0].stats["minValues"]) == 32
    staging = Staging("s", str(tmp_path), "ab", schema, (), {"delta.dataSkippingNumIndexedCols": "2"})
    writer = StagedWriter(staging, "0")
    writer.write(pa.RecordBatch.from_pylist([row], schema=schema))
    assert writer.close()[0].stats["minValues"] == {"c0": 0, "c1": 1}


def test_rows_are_cast_or_refused(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int8()), ("t", pa.timestamp("us", "UTC"))])
    wide = pa.schema([("t", pa.timestamp("ns", "Etc/UTC")), ("a", pa.int64()), ("other", pa.string())])
    [file] = staged(
        tmp_path, schema, [pa.RecordBatch.from_pylist([{"a": 5, "t": dt.datetime(2024, 1, 1, tzinfo=UTC)}], wide)]
    )
    assert file.stats["minValues"] == {"a": 5, "t": "2024-01-01T00:00:00.000Z"}
    with pytest.raises(DataError) as raised:
        staged(tmp_path, schema, [pa.RecordBatch.from_pylist([{"a": 500}], wide)])
    assert raised.value.code == "ROWS_DO_NOT_FIT"


@pytest.mark.parametrize("action", ["raise", "enospc", "eio"])
def test_a_failed_write_leaves_nothing_after_abort(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    schema = pa.schema([("p", pa.string()), ("a", pa.int64())])
    crash._hits.clear()
    monkeypatch.setenv(crash.VARIABLE, f"staging:{action}")
    writer = StagedWriter(Staging("s", str(tmp_path), "ab", schema, ("p",)), "0")
    writer.write(pa.RecordBatch.from_pylist([{"p": "x", "a": 1}, {"p": "y", "a": 1}], schema=schema))
    with pytest.raises((crash.CrashPointError, OSError)):
        writer.close()
    writer.abort()
    assert [f for _, _, names in os.walk(tmp_path) for f in names] == []


def test_a_kill_while_staging_leaves_half_a_file(tmp_path: Path) -> None:
    code = (
        "import sys, pyarrow as pa\n"
        "from anabranch.connectors.contract import Staging\n"
        "from anabranch.connectors.parquet_files import StagedWriter\n"
        "schema = pa.schema([('a', pa.int64())])\n"
        "writer = StagedWriter(Staging('s', sys.argv[1], 'ab', schema), '0')\n"
        "writer.write(pa.record_batch([pa.array(range(5000))], schema=schema))\n"
        "writer.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, crash.VARIABLE: "staging"}, check=False
    )
    assert done.returncode == -9
    [half] = tmp_path.iterdir()
    assert half.stat().st_size > 4
    with pytest.raises(pa.ArrowInvalid):
        pq.read_table(half)


def test_files_go_to_urls_too(tmp_path: Path) -> None:
    staging = Staging("s", tmp_path.as_uri(), "ab", pa.schema([("a", pa.int64())]))
    writer = StagedWriter(staging, "0")
    writer.write(pa.record_batch({"a": [1, 2]}))
    [file] = writer.close()
    assert pq.read_table(tmp_path / file.path)["a"].to_pylist() == [1, 2]


def test_floats_cannot_mislead_spark(tmp_path: Path) -> None:
    inner = pa.struct([("x", pa.int64()), ("f", pa.float64())])
    kinds_ = {"s": inner, "l": pa.list_(inner), "m": pa.map_(pa.string(), pa.float32()), "t": pa.string()}
    schema = pa.schema(list(kinds_.items()))
    [file] = staged(
        tmp_path, schema, [[{"s": {"x": 1, "f": 2.0}, "l": [{"x": 1, "f": 2.0}], "m": [("a", 1.0)], "t": "x"}]]
    )
    group = pq.read_metadata(tmp_path / file.path).row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        floating = column.physical_type in ("FLOAT", "DOUBLE")
        assert column.is_stats_set != floating
        assert column.has_dictionary_page != floating
