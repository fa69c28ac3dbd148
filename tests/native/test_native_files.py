"""Files of an epoch that workers read themselves: which, in what parts, and what is told of each."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructType

from anabranch.engine import native_files
from anabranch.engine.checkpoint import Checkpoint
from anabranch.engine.native_files import FileFeed, Split, batch_splits, dealt, reading
from anabranch.engine.native_rows import CannotRead
from native.native_project import Ran, land


class Log:
    """A checkpoint as Spark writes it for one source of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "sources/0", "in"):
            (folder / name).mkdir(parents=True)

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / "in" / name
        path.write_bytes(content)
        return path

    def entry(self, path: Path | str, batch: int) -> dict[str, object]:
        url = path if isinstance(path, str) else "file://" + quote(str(path))
        return {"path": url, "timestamp": 1, "batchId": batch}

    def batch(self, number: int, *paths: Path | str, name: str = "") -> None:
        lines = ["v1", *(json.dumps(self.entry(path, number)) for path in paths)]
        (self.folder / "sources" / "0" / (name or str(number))).write_text("\n".join(lines))

    def offset(self, epoch: int, *lines: object) -> None:
        head = ["v1", json.dumps({"batchTimestampMs": 5})]
        (self.folder / "offsets" / str(epoch)).write_text("\n".join([*head, *map(json.dumps, lines)]))

    def splits(self, epoch: int, tasks: int = 2) -> list[Split] | None:
        return batch_splits(Checkpoint(self.folder), epoch, tasks)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "checkpoint")


def test_the_files_of_an_epoch_are_those_behind_the_offset_before(log: Log) -> None:
    paths = [log.file(f"{i}.json", b"x\n" * (i + 1)) for i in range(4)]
    for number, path in enumerate(paths):
        log.batch(number, path)
    log.offset(0, {"logOffset": 0})
    log.offset(1, {"logOffset": 2})  # two batches of the log in one epoch
    log.offset(2, {"logOffset": 2})  # nothing new
    log.offset(3, {"logOffset": 3})
    names = [sorted(Path(s.path).name for s in log.splits(epoch) or []) for epoch in range(4)]
    assert names == [["0.json"], ["1.json", "2.json"], [], ["3.json"]]
    (split,) = log.splits(3) or []
    assert (split.start, split.length, split.size) == (0, 8, 8)
    assert split.modified == os.stat(paths[3]).st_mtime_ns // 1_000_000


def test_files_are_found_in_the_list_of_all_before(log: Log) -> None:
    old, new = log.file("old.json", b"x"), log.file("a b%ü#?.json", b"y")
    lines = ["v1", json.dumps(log.entry(old, 8)), json.dumps(log.entry(new, 9))]
    (log.folder / "sources" / "0" / "9.compact").write_text("\n".join(lines))
    log.offset(8, {"logOffset": 8})
    log.offset(9, {"logOffset": 9})
    (split,) = log.splits(9) or []
    assert Path(split.path) == new
    assert split.url == "file://" + quote(str(new))


def test_what_was_read_before_is_not_looked_at(log: Log) -> None:
    (log.folder / "sources" / "0" / "9.compact").write_text("v1\nthis is not looked at")
    log.batch(10, log.file("a.json", b"x"))
    log.offset(9, {"logOffset": 9})
    log.offset(10, {"logOffset": 10})
    assert [split.path for split in log.splits(10) or []] == [str(log.folder / "in" / "a.json")]


def test_a_log_with_a_gap_is_left_to_spark(log: Log) -> None:
    log.batch(1, log.file("a.json", b"x"))
    log.offset(0, {"logOffset": 1})
    assert log.splits(0) is None


@pytest.mark.parametrize("name", ["a.json.bz2", "a.zst", "a.json.GZ", "a.gzip", "a.lz4", "a.snappy", "a.deflate"])
def test_packed_files_that_are_not_read_here(log: Log, name: str) -> None:
    log.batch(0, log.file(name, b"x"), log.file("plain.json", b"x"))
    log.offset(0, {"logOffset": 0})
    assert log.splits(0) is None


def test_epochs_that_workers_cannot_read(log: Log) -> None:
    assert log.splits(0) is None  # no offsets
    log.batch(0, log.file("a.json", b"x"))
    log.batch(1, log.folder / "in" / "gone.json")
    log.batch(2, "s3a://bucket/a.json")
    log.offset(0, {"logOffset": 0}, {"logOffset": 0})
    assert log.splits(0) is None  # two sources
    for offset in ({"topic": {"0": 5}}, 7, None, {"logOffset": "0"}):
        log.offset(0, offset)
        assert log.splits(0) is None
    for epoch in range(3):
        log.offset(epoch, {"logOffset": epoch})
    assert log.splits(0)
    assert log.splits(1) is None
    assert log.splits(2) is None
    (log.folder / "offsets" / "0").unlink()
    assert log.splits(1) is None  # where the epoch before stood is not known


def test_empty_files_and_no_files_are_no_work(log: Log) -> None:
    log.batch(0, log.file("empty.json", b""))
    log.offset(0, {"logOffset": 0})
    log.offset(1, {"logOffset": 0})
    assert log.splits(0) == []
    assert log.splits(1) == []
    assert dealt([], 2) == []


def test_large_files_are_parted_and_packed_ones_are_not(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_files, "_SMALLEST", 100)
    log.batch(0, log.file("a.json", b"x" * 1000), log.file("b.json.gz", b"x" * 1000), log.file("c.json", b"x" * 105))
    log.offset(0, {"logOffset": 0})
    for tasks in (1, 2, 50):
        splits = log.splits(0, tasks) or []
        for name, size in (("a.json", 1000), ("b.json.gz", 1000), ("c.json", 105)):
            own = [s for s in splits if s.path.endswith(name)]
            assert [s.start for s in own] == [sum(s.length for s in own[:i]) for i in range(len(own))]
            assert sum(s.length for s in own) == size
        assert sum(s.path.endswith(".gz") for s in splits) == 1
    assert sum(s.path.endswith("a.json") for s in splits) == 10
    assert sum(s.path.endswith("c.json") for s in splits) == 1  # a little more is not worth a part


@given(st.lists(st.integers(1, 500), max_size=40), st.integers(1, 8))
def test_splits_are_dealt_evenly_and_each_once(lengths: list[int], tasks: int) -> None:
    splits = [Split("u", str(i), 0, length, length, 0) for i, length in enumerate(lengths)]
    hands = dealt(splits, tasks)
    assert sorted((s.path for hand in hands for s in hand), key=int) == [s.path for s in splits]
    assert len(hands) == min(tasks, len(splits))
    sums = [sum(s.length for s in hand) for hand in hands]
    assert max(sums, default=0) - min(sums, default=0) <= max(lengths, default=0)


def test_each_line_once_whatever_the_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    content = "".join(f"line {i}" + ("\r\n", "\n", "\r")[i % 3] for i in range(200)).encode() + b"last"
    path.write_bytes(content)
    for step in (1, 7, 64, 1000, 10_000):
        splits = [
            Split("u", str(path), at, min(step, len(content) - at), len(content), 0)
            for at in range(0, len(content), step)
        ]
        tasks = dealt(splits, 3)
        read = reading(FileFeed("line"), tasks)
        numbers = [pa.record_batch({"id": [number]}) for number in range(len(tasks))]
        found = [line for number in numbers for batch in read([number]) for line in batch.column("line").to_pylist()]
        assert sorted(found) == sorted([*(f"line {i}" for i in range(200)), "last"])


def test_what_is_told_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"x\ny\n")
    kind = pa.struct(
        [
            ("file_name", pa.string()),
            ("file_path", pa.string()),
            ("file_size", pa.int64()),
            ("file_block_start", pa.int64()),
            ("file_block_length", pa.int64()),
            ("file_modification_time", pa.timestamp("us", "UTC")),
        ]
    )
    split = Split("file:///in/a%20b.json", str(path), 0, 4, 4, 1_700_000_000_123)
    (batch,) = FileFeed("line", ("about", kind)).batches([split])
    assert batch.schema.names == ["line", "about"]
    assert batch.column("about").type == kind
    first, second = batch.column("about").to_pylist()
    assert first == second
    assert first["file_modification_time"].timestamp() == 1_700_000_000.123
    del first["file_modification_time"]
    assert list(first.values()) == ["a%20b.json", "file:/in/a%20b.json", 4, 0, 4]
    large = replace(split, size=5 << 20)  # Spark may part it in another way than we do
    with pytest.raises(CannotRead):
        list(FileFeed("line", ("about", kind), whole=True).batches([large]))
    assert list(FileFeed("line", ("about", kind)).batches([large]))


def test_many_lines_of_a_file_with_a_long_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines may be empty, and millions in a block: the path of their file for each is more than an array can hold."""
    monkeypatch.setattr(native_files, "_MOST_TOLD", 10_000)
    path = tmp_path / "a.json"
    path.write_bytes(b"\n" * 999 + b"last")
    kind = pa.struct([("file_name", pa.string()), ("file_path", pa.string())])
    split = Split("file:///in/" + "x" * 100, str(path), 0, 1003, 1003, 0)
    batches = list(FileFeed("line", ("about", kind)).batches([split]))
    assert max(batch.num_rows for batch in batches) < 100
    assert [line for batch in batches for line in batch.column("line").to_pylist()] == [""] * 999 + ["last"]
    assert {one["file_name"] for batch in batches for one in batch.column("about").to_pylist()} == {"x" * 100}


@pytest.mark.parametrize("content", [b"not packed", b"\x1f\x8b\x08\x00", b""])
def test_a_file_that_cannot_be_read_is_left_to_spark(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(content)
    split = Split("u", str(path), 0, 10, 10, 0)
    if content:
        with pytest.raises(CannotRead):
            list(FileFeed("line").batches([split]))
    else:
        assert not list(FileFeed("line").batches([split]))
    path.unlink()
    with pytest.raises(CannotRead):
        list(FileFeed("line").batches([split]))


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    from anabranch.engine.native_left import folder_aside, forget_left

    (folder_aside(tmp_path) / "x.parquet").write_bytes(b"x")
    (tmp_path / "left" / "1").mkdir(parents=True)
    (tmp_path / "offsets").mkdir()
    forget_left(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


@pytest.mark.spark
def test_records_put_aside_come_once_wherever_their_files_are(tmp_path: Path, spark: Any) -> None:
    """Of several files in a folder whose name looks like a pattern, Spark reads all for each."""
    from anabranch.engine.native_left import folder_aside, rows_aside

    (tmp_path / "a [1] {2}").mkdir()
    files = [folder_aside(tmp_path / "a [1] {2}") / f"{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({"raw_1": [f"v{number}"]}), file)
    with rows_aside(spark, StructType().add("raw_1", "string"), [str(file) for file in files]) as found:
        assert sorted(row.raw_1 for frame in found for row in frame.collect()) == ["v0", "v1", "v2"]
    assert not any(file.exists() for file in files)


@pytest.mark.spark
def test_lines_that_hadoop_may_leave_out_are_not_read_by_workers(tmp_path: Path, spark: Any) -> None:
    from anabranch.engine.catalyst_nodes import analyzed
    from anabranch.engine.native_documents import is_lines

    longest = "mapreduce.input.linerecordreader.line.maxlength"

    def read(**options: str) -> bool:
        return is_lines(analyzed(spark.readStream.format("text").options(**options).load(str(tmp_path))))

    assert read(maxFilesPerTrigger="5", wholeText="false")
    assert not read(wholeText="true")
    assert not read(**{longest: "12"})
    spark.conf.set(longest, "12")
    try:
        assert not read()
    finally:
        spark.conf.unset(longest)


TWO = """
@dp.temporary_view
def a():
    return sources.files(IN + "/a", schema="id BIGINT, at TIMESTAMP", clean="archive", archive=IN + "/old", max_files=1)

@dp.temporary_view
def b():
    return sources.files(IN + "/b", schema="id BIGINT, at TIMESTAMP", max_files=1)

@dp.table
def both():
    return spark.readStream.table("a").union(spark.readStream.table("b"))

@dp.table
def known():
    return spark.readStream.table("a").join(spark.range(5), "id")
"""
JOINING = """
@dp.table
def late():
    return spark.readStream.table("both").select("id")

@dp.table
def late_too():
    return spark.readStream.table("a").select("id")
"""


@pytest.mark.spark
def test_two_sources_one_of_which_had_nothing_new_for_a_while(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches in the log of a source are then fewer than epochs; a source in two branches has offsets for each."""
    folder = tmp_path / "in"
    land(folder / "a", {"0.json": b'{"id":0}\n'})
    land(folder / "b", {f"{n}.json": b'{"id":1%d}\n' % n for n in range(3)})
    ran = Ran(tmp_path / "lake", spark, "true")
    ran.write(TWO, folder)
    beside = "fused, spark: reads files of JSON in a channel that reads more than these once"
    assert ran.how() == {"both": beside, "known": "branch: joins"}
    assert ran.run() is None
    land(folder / "a", {"1.json": b'{"id":1}\n'})
    monkeypatch.setenv("ANABRANCH_CRASH", "read:raise")
    assert ran.run() is not None
    monkeypatch.delenv("ANABRANCH_CRASH")
    ran.write(TWO + JOINING, folder)
    assert ran.run() is None
    assert ran.rows("both") == Counter(f"({n}, None)" for n in (0, 1, 10, 11, 12))
    assert ran.rows("known") == Counter(["(0, None)", "(1, None)"])
    assert ran.rows("late") == Counter(f"({n},)" for n in (0, 1, 10, 11, 12))
    assert ran.rows("late_too") == Counter(["(0,)", "(1,)"])
    assert sorted(p.name for p in (folder / "old").rglob("*") if p.is_file()) == ["0.json", "1.json"]
    assert len(list((folder / "b").iterdir())) == 3


FOLDERS = """
@dp.table
def named():
    return spark.readStream.schema("id BIGINT").json(IN + "/named")

@dp.table
def declared():
    return spark.readStream.schema("id BIGINT, day INT").json(IN + "/named")

@dp.table
def inside():
    return spark.readStream.schema("id BIGINT").csv(IN + "/named/day=1")
"""


@pytest.mark.spark
def test_folders_whose_names_are_columns_are_sparks(tmp_path: Path, spark: Any) -> None:
    land(tmp_path / "in" / "named" / "day=1", {"a.json": b'{"id":0}\n'})
    ran = Ran(tmp_path / "lake", spark, "true")
    ran.write(FOLDERS, tmp_path / "in")
    why = "fused, spark: reads columns that are in the names of folders"
    inside = "fused, spark: reads a folder with = in its name, which may be a column"
    assert ran.how() == {"named": why, "declared": why, "inside": inside}
