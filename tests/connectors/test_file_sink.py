"""Folders of files as sinks, without Spark: what plain readers find, and what the manifests say."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import hashlib
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.connectors.contract import Sink, SinkSpec, Versioned
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.registry import open_sink, read_dataset
from anabranch.core import crash
from anabranch.core.epoch import EpochKey, Receipt
from anabranch.errors import AnabranchError, ProjectError

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def key(epoch: int, generation: int = 1) -> EpochKey:
    return EpochKey("p-1", "main", generation, epoch)


def sink_at(
    folder: Path, form: str = "parquet", schema: pa.Schema = SCHEMA, *, by: tuple[str, ...] = (), **options: str
) -> Sink:
    sink = open_sink(form, SinkSpec("out", f"{folder}/out", "p-1", str(folder), options=options, partition_by=by))
    sink.prepare(schema)
    return sink


def remembered(folder: Path, form: str) -> Sink:
    """As recovery opens it, from the ledger alone."""
    return open_sink(form, SinkSpec("out", f"{folder}/out", "p-1", str(folder), declared=False))


def stage(
    sink: Sink, at: EpochKey, rows: list[dict[str, Any]], *, schema: pa.Schema = SCHEMA, replace: bool = False
) -> Receipt:
    writer = StagedWriter(sink.staging(at, 1), "t")
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
    return Receipt.from_json(sink.receipt(at, writer.close(), replace=replace).to_json())


def shown(folder: Path) -> list[Path]:
    """What a reader may find, however it looks."""
    return sorted(p for p in (folder / "out").rglob("*") if p.suffix in (".parquet", ".gz", ".csv", ".json"))


def data(folder: Path) -> list[Path]:
    return [path for path in shown(folder) if "_manifest" not in path.parts]


ROWS = [{"id": 1, "day": "a"}, {"id": 2, "day": None}, {"id": 3, "day": 'x "y", z\n'}]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_json_lines(tmp_path: Path, compression: str) -> None:
    sink = sink_at(tmp_path, "json", compression=compression)
    receipt = stage(sink, key(0), ROWS)
    remembered(tmp_path, "json").apply(key(0), receipt)
    [file] = data(tmp_path)
    content = gzip.decompress(file.read_bytes()) if compression == "gzip" else file.read_bytes()
    assert [json.loads(line) for line in content.splitlines()] == [
        {"id": 1, "day": "a"},
        {"id": 2},
        {"id": 3, "day": 'x "y", z\n'},
    ]


@pytest.mark.parametrize("header", ["true", "false"])
def test_csv(tmp_path: Path, header: str) -> None:
    sink = sink_at(tmp_path, "csv", header=header)
    sink.apply(key(0), stage(sink, key(0), ROWS))
    [file] = data(tmp_path)
    with file.open(newline="") as text:
        found = list(csv.reader(text))
    assert found == [*([["id", "day"]] if header == "true" else []), ["1", "a"], ["2", ""], ["3", 'x "y", z\n']]


def test_every_type_as_json(tmp_path: Path) -> None:
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 6, dt.UTC)
    row = {
        "t": moment,
        "d": moment.date(),
        "n": Decimal("12345678901234567890.10"),
        "f": float("nan"),
        "b": b"\x00\xff",
        "l": [{"x": 1}, None],
        "m": [("k", 1)],
        "u": "\u00fc",
    }
    kinds = {
        "t": pa.timestamp("us", "UTC"),
        "d": pa.date32(),
        "n": pa.decimal128(38, 2),
        "f": pa.float64(),
        "b": pa.binary(),
        "l": pa.list_(pa.struct([("x", pa.int64())])),
        "m": pa.map_(pa.string(), pa.int64()),
        "u": pa.string(),
    }
    schema = pa.schema(list(kinds.items()))
    sink = sink_at(tmp_path, "json", schema)
    sink.apply(key(0), stage(sink, key(0), [row], schema=schema))
    text = data(tmp_path)[0].read_text()
    assert '"n":12345678901234567890.10' in text
    assert json.loads(text) == {
        "t": "2024-01-02T03:04:05.000006Z",
        "d": "2024-01-02",
        "n": 12345678901234567890.10,
        "f": "NaN",
        "b": "AP8=",
        "l": [{"x": 1}, None],
        "m": {"k": 1},
        "u": "\u00fc",
    }
    with pytest.raises(ProjectError, match="no place for b, l, m"):
        sink_at(tmp_path / "other", "csv", schema)


def test_the_manifest_says_what_is_there(tmp_path: Path) -> None:
    sink = sink_at(tmp_path, by=("day",))
    sink.apply(key(4), stage(sink, key(4), [{"id": 1, "day": "a/b"}, {"id": 2, "day": None}]))
    [file] = [p for p in (tmp_path / "out" / "_manifest").iterdir() if p.name != "about.json"]
    told = json.loads(file.read_text())
    assert (told["pipeline"], told["channel"], told["generation"], told["epoch"]) == ("p-1", "main", 1, 4)
    assert told["rows"] == 2
    for each in told["files"]:
        content = (tmp_path / "out" / each["path"]).read_bytes()
        assert each["size"] == len(content)
        assert each["checksum"] == f"blake2b:{hashlib.blake2b(content, digest_size=16).hexdigest()}"
    plain = ds.dataset(f"{tmp_path}/out", partitioning="hive").to_table().to_pylist()
    assert {row["id"] for row in plain} == {1, 2}
    assert {p.parent.name for p in data(tmp_path)} == {"day=a%2Fb", "day=__HIVE_DEFAULT_PARTITION__"}
    pinned = read_dataset("parquet", f"{tmp_path}/out", "1").to_table().to_pylist()
    assert sorted(pinned, key=lambda row: row["id"]) == [{"id": 1, "day": "a/b"}, {"id": 2, "day": None}]


def test_old_versions_are_read_after_a_full_refresh(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    one = sink.apply(key(0), stage(sink, key(0), ROWS[:1])).version
    two = sink.apply(key(1), stage(sink, key(1), ROWS[1:2])).version
    (tmp_path / "out" / "theirs.parquet").write_bytes(b"not ours")
    three = sink.apply(key(0, 2), stage(sink, key(0, 2), ROWS[2:], replace=True)).version
    ids = [
        sorted(read_dataset("parquet", f"{tmp_path}/out", v).to_table()["id"].to_pylist()) for v in (one, two, three)
    ]
    assert ids == [[1], [1, 2], [3]]
    assert len(data(tmp_path)) == 2  # the new one, and what is not ours
    assert isinstance(sink, Versioned)
    assert len(sink.vacuum({two}, older_than_hours=0, dry_run=False)) == 0
    assert len(sink.vacuum({three}, older_than_hours=-1, dry_run=True)) == 2
    assert len(sink.vacuum({three}, older_than_hours=-1, dry_run=False)) == 2
    with pytest.raises(AnabranchError) as refused:
        read_dataset("parquet", f"{tmp_path}/out", one)
    assert refused.value.code == "VERSION_GONE"
    remembered(tmp_path, "parquet").remove()
    assert [p.name for p in (tmp_path / "out").rglob("*")] == ["theirs.parquet"]


def test_half_way_it_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after some files have their names: no reader counts them twice, and what is not finished is removed."""
    sink = sink_at(tmp_path, by=("day",))
    receipt = stage(sink, key(0), ROWS)
    half = Receipt(receipt.sink, receipt.files[:1], receipt.schema)
    monkeypatch.setattr("anabranch.connectors.file_sink.write_whole", _raise)
    with pytest.raises(OSError, match="no room"):
        sink.apply(key(0), half)
    monkeypatch.undo()
    assert len(data(tmp_path)) == 1
    assert sink.find(key(0)) is None
    assert sink.damaged(receipt) is None
    left = sink.leftovers(frozenset(f.path for f in receipt.files), 2)
    assert [Path(path) for path, _ in left] == data(tmp_path)
    remembered(tmp_path, "parquet").discard(path for path, _ in left)
    assert data(tmp_path) == []
    sink.apply(key(0), receipt)
    assert len(data(tmp_path)) == 3
    assert sink.leftovers(frozenset(), 9) == []


def _raise(*_: object) -> None:
    raise OSError("no room")


def test_what_is_refused(tmp_path: Path) -> None:
    sink = sink_at(tmp_path)
    sink.apply(key(0), stage(sink, key(0), ROWS))
    codes = []
    for schema, options, pipeline in (
        (pa.schema([("id", pa.string())]), {}, "p-1"),
        (SCHEMA, {"compression": "lzma"}, "p-1"),
        (SCHEMA, {}, "p-2"),
    ):
        other = open_sink("parquet", SinkSpec("out", f"{tmp_path}/out", pipeline, str(tmp_path), options=options))
        with pytest.raises(ProjectError) as refused:
            other.prepare(schema)
        codes.append(refused.value.code)
        assert refused.value.hint
    assert codes == ["FILES_SCHEMA", "FILES_SINK_OPTION", "FILES_FOLDER_TAKEN"]
    with pytest.raises(AnabranchError) as gone:
        sink_at(tmp_path).discard(["theirs.parquet"])
    assert gone.value.code == "NOT_A_STAGED_FILE"


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(["parquet", "json", "csv"]),
    st.lists(st.tuples(st.lists(st.integers(0, 9), max_size=4), st.booleans(), st.booleans()), max_size=6),
)
def test_any_course_of_events(
    tmp_path_factory: pytest.TempPathFactory, form: str, epochs: list[tuple[list[int], bool, bool]]
) -> None:
    """Each epoch: its rows, whether the answer is lost, whether it replaces all before."""
    folder, expected, generation = tmp_path_factory.mktemp("out"), list[int](), 1
    for number, (ids, lost, replaces) in enumerate(epochs):
        generation += replaces
        at = key(number, generation)
        sink = sink_at(folder, form)
        receipt = stage(sink, at, [{"id": i, "day": "d"} for i in ids], replace=replaces)
        with pytest.MonkeyPatch.context() as patch:
            if lost and (ids or replaces):
                patch.setenv(crash.VARIABLE, "committed(out):raise")
                patch.setattr(crash, "_hits", Counter())
                with pytest.raises(crash.CrashPointError):
                    sink.apply(at, receipt)
        applied = remembered(folder, form).apply(at, receipt)
        assert applied.already == (lost and bool(ids or replaces))
        expected = [*([] if replaces else expected), *ids]
        assert sorted(ids_in(folder, form)) == sorted(expected)
        assert not [p for p in (folder / "staged").rglob("*") if p.is_file()]


def ids_in(folder: Path, form: str) -> list[int]:
    found: list[int] = []
    for path in data(folder):
        if form == "parquet":
            found += pq.ParquetFile(path).read()["id"].to_pylist()
        elif form == "json":
            found += [json.loads(line)["id"] for line in path.read_text().splitlines()]
        else:
            found += [int(row["id"]) for row in csv.DictReader(path.read_text().splitlines())]
    return found
