"""Lines of parts of files: against a plain model, and against Spark's text source."""

from __future__ import annotations

import gzip
import random
import re
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.native import lines
from anabranch.native.lines import read_split, unreadable, values_of

PIECES = st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc", b"\xef\xbb\xbf", b"\xff", "ä".encode(), b" ", b"{}"])
FILES = st.lists(PIECES, max_size=30).map(b"".join)


def model(data: bytes) -> list[tuple[int, bytes]]:
    """Each line with the place where it begins, found byte by byte."""
    found = []
    start = 0
    while start < len(data):
        ended = re.compile(rb"[^\r\n]*(\r\n|\r|\n|$)", re.DOTALL).match(data, start)
        assert ended
        found.append((start, data[start : ended.start(1)]))
        start = ended.end()
    if data.startswith(b"\xef\xbb\xbf"):
        found[0] = (0, found[0][1][3:])
        if data == b"\xef\xbb\xbf":
            return []
    return found


def raw(array: pa.Array) -> list[bytes]:
    return array.cast(pa.binary()).to_pylist()


def parts(size: int, each: int) -> list[tuple[int, int]]:
    return [(start, min(each, size - start)) for start in range(0, size, each)]


@settings(deadline=None)
@given(FILES)
def test_all_lines_of_a_file(data: bytes) -> None:
    assert raw(values_of(data)) == [line for _, line in model(data)]


@settings(deadline=None)
@given(FILES, st.integers(1, 12))
def test_the_parts_of_a_file_have_each_line_once(data: bytes, each: int) -> None:
    for start, length in parts(len(data), each):
        end = start + length
        mine = [line for place, line in model(data) if (start < place or place == start == 0) and place <= end]
        assert raw(values_of(data, start, end)) == mine
    together = [
        line for start, length in parts(len(data), each) for line in raw(values_of(data, start, start + length))
    ]
    assert together == raw(values_of(data))


@settings(deadline=None)
@given(FILES, st.integers(1, 12), st.integers(1, 9))
def test_read_from_a_file_in_small_blocks(data: bytes, each: int, block: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(lines, "BLOCK", block)
        patch.setattr(lines, "_NEAR", block)
        path = Path(folder, "x.json")
        path.write_bytes(data)
        packed = Path(folder, "x.json.gz")
        packed.write_bytes(gzip.compress(data))
        for start, length in parts(len(data), each):
            read = [line for array in read_split(str(path), start, length) for line in raw(array)]
            assert read == raw(values_of(data, start, start + length))
        for whole in (path, packed):
            assert [line for array in read_split(str(whole)) for line in raw(array)] == raw(values_of(data))


def test_lines_longer_than_a_block_and_many_of_them(tmp_path: Path) -> None:
    path = tmp_path / "long.json"
    long = b"x" * (lines.BLOCK + 5)
    path.write_bytes(b"\n".join([b"a", long, b"b", b"", b"y" * 100_000] * 3))
    arrays = list(read_split(str(path)))
    assert len(arrays) > 2
    assert [line for array in arrays for line in raw(array)] == path.read_bytes().split(b"\n")


def test_a_packed_file_has_one_part(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"a\n") + gzip.compress(b"b"))
    assert [line for array in read_split(str(path)) for line in raw(array)] == [b"a", b"b"]
    with pytest.raises(ValueError, match="only one part"):
        list(read_split(str(path), 3, 4))


@pytest.mark.parametrize(
    "behind", [b"\0", b"\0" * 64, b"odd", gzip.compress(b"b", mtime=0)[:-1]], ids=["0", "00", "odd", "cut"]
)
def test_a_packed_file_with_something_behind_its_end_is_not_read(tmp_path: Path, behind: bytes) -> None:
    """Hadoop's reader raises of zeros, too."""
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"a\n") + behind)
    with pytest.raises((EOFError, zlib.error)):
        list(read_split(str(path)))


def test_which_files_are_unpacked() -> None:
    assert unreadable("a.json") is None
    assert unreadable("a.JSON.gz") is None
    assert unreadable("a.zst") == "files *.zst are not unpacked natively"
    assert unreadable("a.GZ")  # not unpacked by Spark, and not worth a rule


@pytest.mark.spark
def test_against_sparks_text_source(spark: Any, tmp_path: Path) -> None:
    """With splits of a few bytes: every one of them is compared, through the name of the file and the partition."""
    dice = random.Random(5)
    choices = [b"\n", b"\r", b"\r\n", b"\n\n", b"a", b"bc", "ä".encode(), b"{}", b"\xef\xbb\xbf"]
    for number in range(40):
        data = b"".join(dice.choices(choices, k=dice.randrange(40)))
        (tmp_path / f"{number:03d}.json").write_bytes(data)
    for number, data in enumerate(
        [b"", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b"\r", b"\r\n", b"\n", b"a\r", b"\xef\xbb"]
    ):
        (tmp_path / f"z{number}.json").write_bytes(data)
    settings = {"spark.sql.files.maxPartitionBytes": "7", "spark.sql.files.openCostInBytes": "0"}
    settings["spark.sql.files.minPartitionNum"] = "1"
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        rows = (
            spark.read.text(str(tmp_path))
            .selectExpr("cast(value as binary) v", "_metadata.file_name f", "_metadata.file_block_start s")
            .collect()
        )
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
    there: dict[tuple[str, int], list[bytes]] = {}
    for row in rows:
        there.setdefault((row.f, row.s), []).append(bytes(row.v))
    here = {}
    for path in tmp_path.glob("*.json"):
        data = path.read_bytes()
        for start, length in parts(len(data), 7):
            found = raw(values_of(data, start, start + length))
            if found:
                here[path.name, start] = found
    assert len({start for _, start in there}) > 5
    assert here == there
