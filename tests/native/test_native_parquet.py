"""Files of Parquet that workers read: which, in what parts, and what is left to Spark."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.engine.native_files import Split
from anabranch.engine.native_parquet import ParquetFeed
from anabranch.engine.native_rows import CannotRead
from anabranch.native import parquet
from anabranch.native.parquet import OddFile, Wanted, known, read_part
from native.parquet_files import VALUES, odd, packed, table, usual

WANTED = [Wanted("id", pa.int64()), *(Wanted(name, kind) for name, (kind, _) in VALUES.items())]
FEED = ParquetFeed(tuple((f"raw_{number}", one) for number, one in enumerate(WANTED)))


def split(path: Path, start: int = 0, length: int | None = None) -> Split:
    """A part of a file, or all of it."""
    size = path.stat().st_size
    whole = size if length is None else length
    return Split("file://" + quote(str(path)), str(path), start, whole, size, 1_700_000_000_123)


def read(path: Path) -> pa.Table:
    found = list(FEED.batches([split(path)]))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.types == [one.type for one in WANTED]
    return pa.Table.from_batches(found) if found else pa.table({})


def _numbers(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values


def test_files_in_every_form_have_the_values_that_were_written(tmp_path: Path) -> None:
    for name, content in usual().items():
        (tmp_path / name).write_bytes(content)
    found = {name: read(tmp_path / name) for name in usual() if (tmp_path / name).stat().st_size}
    whole = table()
    names = [one.name for one in WANTED]
    for name, values in zip(names, found["000.parquet"].columns, strict=True):
        assert repr(_numbers(values).to_pylist()) == repr(_numbers(whole.column(name)).to_pylist()), name
    at, n, inner = (f"raw_{names.index(name)}" for name in ("at", "n", "inner"))
    assert found["001.parquet"].column(at).cast(pa.int64()).to_pylist()[2:4] == [-1000, -62_135_596_800_000_000]
    assert found["001.parquet"].column(n).to_pylist()[1:3] == [5, -(2**31)]
    assert found["002.parquet"].column(at).null_count == 120
    assert found["003.parquet"].column(at).equals(found["000.parquet"].column(at))
    assert found["003.parquet"].column(inner).to_pylist()[0]["b.c"] == "x"
    assert found["007.parquet"].num_rows == 3
    assert found["006.parquet"].num_rows == 0


@pytest.mark.parametrize("name", sorted(odd()))
def test_files_in_other_forms_are_left_to_spark(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(odd()[name])
    with pytest.raises(CannotRead):
        list(FEED.batches([split(path)]))


@pytest.mark.parametrize("name", ["unsigned", "two names", "map", "half"])
def test_columns_that_are_not_wanted_do_not_matter(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(odd()[name])
    (batch,) = ParquetFeed((("raw_0", Wanted("id", pa.int64())),)).batches([split(path)])
    assert batch.column("raw_0").to_pylist() == [0, 1, 2]


def test_each_row_once_whatever_the_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(packed(table(100).select(["id", "name"]), row_group_size=9))
    size = path.stat().st_size
    feed = ParquetFeed((("raw_0", Wanted("ID", pa.int64())),))
    for step in (size // 50, size // 3, size - 1, size):
        parts = [split(path, start, min(step, size - start)) for start in range(0, size, step)]
        found = [each for part in parts for b in feed.batches([part]) for each in b.column(0).to_pylist()]
        assert found == list(range(100))
    few = [sum(b.num_rows for b in feed.batches([split(path, 0, size // 2)]))]
    assert 0 < few[0] < 100


def test_rows_come_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "ROWS", 10)
    path = tmp_path / "a.parquet"
    path.write_bytes(packed(table(25)))
    for wanted in (WANTED, [Wanted("missing", pa.string())]):
        batches = list(read_part(str(path), wanted, 0, path.stat().st_size, path.stat().st_size))
        assert [batch.num_rows for batch in batches] == [10, 10, 5]
    assert batches[0].column(0).null_count == 10


def test_lists_that_are_not_the_usual_ones(tmp_path: Path) -> None:
    """Of an old form, as Spark wrote it for Hive, and as other writers did: a list without its own group."""
    path = tmp_path / "a.parquet"
    path.write_bytes(packed(pa.table({"id": [[1, 2], []]}), use_compliant_nested_type=False))
    feed = ParquetFeed((("raw_0", Wanted("id", pa.list_(pa.int64()))),))
    (batch,) = feed.batches([split(path)])
    assert batch.column(0).to_pylist() == [[1, 2], []]
    strange = pa.table({"id": pa.array([{"list": [{"element": 1}]}])})
    for one in (strange, pa.table({"id": pa.array([[[1]]])}), pa.table({"id": pa.array([[{"element": 1}]])})):
        path.write_bytes(packed(one))
        with pytest.raises(CannotRead):
            list(feed.batches([split(path)]))


def test_what_is_told_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a b.parquet"
    path.write_bytes(packed(table(2)))
    kind = pa.struct([("file_name", pa.string()), ("file_size", pa.int64()), ("row_index", pa.int64())])
    feed = ParquetFeed((("raw_0", Wanted("id", pa.int64())),), ("raw_1", kind))
    (batch,) = feed.batches([split(path)])
    assert batch.schema.names == ["raw_0", "raw_1"]
    assert batch.column(1).to_pylist()[1]["file_name"] == "a%20b.parquet"
    assert batch.column(1).to_pylist()[1]["file_size"] == path.stat().st_size


def test_files_that_are_gone_changed_or_in_folders_that_are_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(packed(table(2)))
    whole = split(path)
    path.write_bytes(packed(table(3)) + b"\0")
    with pytest.raises(CannotRead):
        list(FEED.batches([whole]))
    os.unlink(path)
    with pytest.raises(CannotRead):
        list(FEED.batches([whole]))
    below = tmp_path / "k=1" / "a.parquet"
    below.parent.mkdir()
    below.write_bytes(packed(table(2)))
    with pytest.raises(CannotRead):
        list(FEED.batches([split(below)]))


def test_encrypted_columns_are_left_to_spark(tmp_path: Path) -> None:
    encryption = pytest.importorskip("pyarrow.parquet.encryption")

    class Kms(encryption.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
            return key_bytes.hex().encode()

        def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
            return bytes.fromhex(wrapped_key.decode())

    factory = encryption.CryptoFactory(lambda _: Kms())
    for plain in (True, False):
        config = encryption.EncryptionConfiguration(footer_key="f", column_keys={"c": ["id"]}, plaintext_footer=plain)
        properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), config)
        path = tmp_path / "a.parquet"
        with pq.ParquetWriter(path, table(2).schema, encryption_properties=properties) as writer:
            writer.write_table(table(2))
        with pytest.raises(CannotRead):
            list(FEED.batches([split(path)]))


def test_values_with_more_digits_than_they_may_have() -> None:
    """A file may hold them; no writer known to us writes them."""
    within = pa.array([Decimal("12345.67")], pa.decimal128(7, 2))
    assert parquet._typed(within, pa.decimal128(7, 2)).equals(within)
    raw = pa.array([(10**7).to_bytes(16, "little")], pa.binary(16))
    beyond = pa.Array.from_buffers(pa.decimal128(7, 2), 1, raw.buffers())
    with pytest.raises(OddFile):
        parquet._typed(beyond, pa.decimal128(7, 2))


def test_damaged_files_never_end_the_process(tmp_path: Path) -> None:
    """What is damaged is read, or left to Spark; Arrow's Python dies of some looks at damaged footers."""
    dice, path = random.Random(7), tmp_path / "a.parquet"
    whole = packed(table(8), row_group_size=4)
    for _ in range(400):
        content = bytearray(whole)
        for _ in range(dice.choice([1, 1, 3])):
            content[dice.randrange(len(content) // 2, len(content))] = dice.randrange(256)
        path.write_bytes(content)
        with suppress(CannotRead):
            list(FEED.batches([split(path)]))


def test_types_that_are_known() -> None:
    assert all(known(one.type) for one in WANTED)
    for kind in (
        pa.map_(pa.string(), pa.int32()),
        pa.struct([]),
        pa.null(),
        pa.duration("us"),
        pa.uint8(),
        pa.time64("us"),
    ):
        assert not known(kind)
        assert not known(pa.list_(kind))
        assert not known(pa.struct([("x", kind)]))
