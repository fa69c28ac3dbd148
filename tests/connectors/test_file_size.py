"""How large files get, and that compaction goes by the same size."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from anabranch.connectors.delta import DeltaSink
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.epoch import EpochKey
from anabranch.errors import ProjectError

ROWS = pa.record_batch({"n": pa.array(range(40_000))})


def sink_with(tmp_path: Path, size: str) -> DeltaSink:
    sink = DeltaSink("t", str(tmp_path / "t"), pipeline="p", properties={"delta.targetFileSize": size})
    sink.prepare(ROWS.schema)
    return sink


def take(sink: DeltaSink, epoch: int) -> int:
    """One epoch; how many files it staged."""
    key = EpochKey("p", "main", 1, epoch)
    writer = StagedWriter(sink.staging(key, 1), "0")
    writer.write(ROWS)
    writer.relieve()  # a row group of its own
    writer.write(ROWS)
    files = writer.close()
    sink.apply(key, sink.receipt(key, files))
    return len(files)


@pytest.mark.parametrize(("size", "files"), [("1kb", 2), ("100MB", 1)])
def test_a_table_says_when_a_file_is_full(tmp_path: Path, size: str, files: int) -> None:
    assert take(sink_with(tmp_path, size), 0) == files


@pytest.mark.parametrize(("size", "left"), [("1kb", 52), ("1gb", 1)])
def test_compaction_puts_together_what_is_small_for_the_table(tmp_path: Path, size: str, left: int) -> None:
    sink = sink_with(tmp_path, size)
    epochs = 26 if size == "1kb" else 52
    for epoch in range(epochs):
        take(sink, epoch)
    assert sink.compact() == (0 if size == "1kb" else 52)
    table = DeltaTable(str(tmp_path / "t"))
    assert len(table.file_uris()) == left
    assert table.to_pyarrow_dataset().count_rows() == epochs * 80_000


@pytest.mark.parametrize("size", ["large", "0", "-1", "5 tb"])
def test_what_is_no_size_is_refused_before_anything_is_written(tmp_path: Path, size: str) -> None:
    with pytest.raises(ProjectError, match="no size of a file") as caught:
        sink_with(tmp_path, size)
    assert caught.value.code == "FILE_SIZE_INVALID"
    assert not (tmp_path / "t").exists()
