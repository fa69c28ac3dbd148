"""The writer that puts Arrow batches into staged Parquet files.

It runs in Spark's Python workers, and in the driver for small batches; it needs pyarrow and nothing else. Rows wait in
memory until a row group is worth writing; how much waits is bounded, whatever the number of partitions.
"""

from __future__ import annotations

import io
import os
import re
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.connectors.folder import Folder, checksum_text, new_checksum
from anabranch.connectors.parquet_partitions import Values, partition_folder, split
from anabranch.connectors.parquet_stats import FloatStats, Leaf, delta_stats, indexed_columns, leaves, skippable_columns
from anabranch.connectors.parquet_transforms import split_by
from anabranch.core import crash
from anabranch.core.epoch import StagedFile
from anabranch.errors import DataError, ProjectError

if TYPE_CHECKING:
    from anabranch.connectors.contract import Staging

ROW_GROUP_ROWS = 262_144
ROW_GROUP_BYTES = 32 << 20
WAITING_BYTES = 64 << 20  # over all partitions of one writer
OPEN_FILES = 32
FILE_BYTES = 128 << 20
TARGET_FILE_SIZE = "delta.targetFileSize"  # a table's property that says otherwise
COMPRESSION, COMPRESSION_LEVEL = "zstd", 1


def file_bytes(sink: str, properties: Mapping[str, str]) -> int:
    """From which size on a file of a table is full.

    >>> file_bytes("t", {}) >> 20, file_bytes("t", {"delta.targetFileSize": "64mb"}) >> 20
    (128, 64)
    """
    said = properties.get(TARGET_FILE_SIZE)
    if said is None:
        return FILE_BYTES
    match = re.fullmatch(r"\s*(\d+)\s*(b|kb?|mb?|gb?)?\s*", said.lower())
    if match is None or int(match[1]) == 0:
        raise ProjectError(
            "FILE_SIZE_INVALID",
            f'"{sink}" has {TARGET_FILE_SIZE} = {said}, which is no size of a file',
            hint="write a number of bytes, or one with kb, mb or gb, such as 128mb",
        )
    return int(match[1]) << {"b": 0, "k": 10, "m": 20, "g": 30}[(match[2] or "b")[0]]


class StagedWriter:
    """Stages the rows of one sink in one task: `write` any number of times, then `close` or `abort`."""

    def __init__(self, staging: Staging, task: str) -> None:
        self._staging = staging
        self._task = task
        self._folder = Folder(staging.folder)
        self._parts = staging.partition_by or tuple(part.name for part in staging.transforms)
        inner = [field for field in staging.schema if field.name not in staging.partition_by]
        self._file_schema = pa.schema(inner)
        self._file_bytes = file_bytes(staging.sink, staging.properties)
        self._indexed = leaves(self._file_schema, indexed_columns(staging.properties))
        self._unsplit = _Waiting()
        self._waiting: dict[Values, _Waiting] = {}
        self._waiting_bytes = 0
        self._open: OrderedDict[Values, _File] = OrderedDict()  # least recently written first
        self._created: list[str] = []
        self._done: list[StagedFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows that have the sink's columns; they are cast to its types."""
        if batch.num_rows == 0:
            return
        rows = self._fit(batch)
        if not self._parts:
            self._wait((), rows)
            return
        self._unsplit.add(rows)
        if self._unsplit.is_group:
            self._split()

    @property
    def waiting_bytes(self) -> int:
        """The size of the rows that are in memory."""
        return self._waiting_bytes + self._unsplit.bytes

    def relieve(self) -> None:
        """Write the rows that wait, however few they are."""
        self._split()
        for values in list(self._waiting):
            self._flush(values)

    def close(self) -> list[StagedFile]:
        """Finish every file and return them, when they are durable."""
        self._split()
        for values in list(self._waiting):
            self._flush(values)
            self._finish(values)
        for values in list(self._open):
            self._finish(values)
        self._folder.sync(self._created)
        return list(self._done)

    def abort(self) -> None:
        """Remove every file begun here."""
        self._waiting.clear()
        for file in self._open.values():
            file.abandon()
        self._open.clear()
        self._done.clear()
        for path in self._created:
            self._folder.remove(path)

    def _fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._staging.schema
        try:
            return batch.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                "ROWS_DO_NOT_FIT",
                f'rows for "{self._staging.sink}" do not fit its columns: {error}',
                hint="cast the column in the flow, or leave out rows that do not fit with a filter",
            ) from error

    def _split(self) -> None:
        """Share out gathered rows; many at once, because cutting small batches into many partitions is slow."""
        gathered, self._unsplit = self._unsplit, _Waiting()
        if gathered.rows:
            table = pa.Table.from_batches(gathered.batches).combine_chunks()
            by, transforms = self._staging.partition_by, self._staging.transforms
            for batch in table.to_batches():
                for values, part in split_by(batch, transforms) if transforms else split(batch, by):
                    self._wait(values, part)

    def _wait(self, values: Values, rows: pa.RecordBatch) -> None:
        waiting = self._waiting.setdefault(values, _Waiting())
        waiting.add(rows)
        self._waiting_bytes += rows.nbytes
        if waiting.is_group:
            self._flush(values)
        while self._waiting_bytes > WAITING_BYTES:
            self._flush(max(self._waiting, key=lambda v: self._waiting[v].bytes))

    def _flush(self, values: Values) -> None:
        """Write what waits for a partition; the file is opened only now, so few rows of many partitions stay cheap."""
        waiting = self._waiting.pop(values)
        self._waiting_bytes -= waiting.bytes
        table = pa.Table.from_batches(waiting.batches, self._file_schema)
        groups = max(1, table.num_rows // ROW_GROUP_ROWS)
        step = -(-table.num_rows // groups)  # even groups, no small one at the end
        for start in range(0, table.num_rows, step):
            file = self._open.get(values) or self._begin(values)
            self._open.move_to_end(values)
            with self._folder.asked():
                file.write(table.slice(start, step))
            if file.out.size >= self._file_bytes:
                self._finish(values)

    def _begin(self, values: Values) -> _File:
        if len(self._open) >= OPEN_FILES:
            self._finish(next(iter(self._open)))
        number = len(self._created)
        name = f"{self._staging.prefix}-{self._task}-{number}-{uuid.uuid4().hex}.parquet"
        path = (partition_folder(self._staging.partition_by, values) if self._staging.partition_by else "") + name
        out = _HashedFile(self._folder.create(path), halfway=number == 0)
        self._created.append(path)
        file = self._open[values] = _File(path, out, self._file_schema, self._indexed)
        return file

    def _finish(self, values: Values) -> None:
        file = self._open.pop(values, None)
        if file is None:
            return
        try:
            with self._folder.asked():
                stats = file.finish()
                if self._folder.is_local:
                    file.out.sync()
                file.out.close()
        except BaseException:
            file.abandon()
            raise
        partition = dict(zip(self._parts, values, strict=True))
        self._done.append(
            StagedFile(file.path, stats["numRecords"], file.out.size, file.out.checksum(), partition, stats)
        )


class _Waiting:
    """Rows that are not in a file yet."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0
        self.bytes = 0

    @property
    def is_group(self) -> bool:
        """Whether these rows are worth a row group."""
        return self.rows >= ROW_GROUP_ROWS or self.bytes >= ROW_GROUP_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)
        self.rows += rows.num_rows
        self.bytes += rows.nbytes


class _File:
    """One Parquet file being written."""

    def __init__(self, path: str, out: _HashedFile, schema: pa.Schema, indexed: tuple[Leaf, ...]) -> None:
        self.path = path
        self.out = out
        self._indexed = indexed
        self._floats = FloatStats(indexed)
        skippable = skippable_columns(schema)
        self._writer = pq.ParquetWriter(
            out,
            schema,
            compression=COMPRESSION,
            compression_level=COMPRESSION_LEVEL,
            write_statistics=skippable,
            use_dictionary=skippable,
            store_schema=False,
            store_decimal_as_integer=True,
        )

    def write(self, table: pa.Table) -> None:
        self._floats.add(table)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def finish(self) -> dict[str, Any]:
        self._writer.close()
        return delta_stats(self._writer.writer.metadata, self._indexed, self._floats)

    def abandon(self) -> None:
        """Let go of the file without writing more; safe after a write that failed."""
        self.out.discard()
        # A Parquet writer closes itself when collected: done here, where its footer goes nowhere.
        self._writer.close()
        self.out.close()


class _HashedFile(io.RawIOBase):
    """Counts and hashes bytes on their way to a file, so that nothing is read back."""

    def __init__(self, target: BinaryIO, *, halfway: bool) -> None:
        self._target = target
        self._digest = new_checksum()
        self._halfway = halfway  # pass the crash point with this file half written
        self._discarding = False
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._discarding:
            return len(view)
        if self._halfway and self.size > 0:  # the first write is only the format's magic number
            self._halfway = False
            middle = len(view) // 2
            self._target.write(view[:middle])
            self._target.flush()
            crash.point("staging")
            self._target.write(view[middle:])
        else:
            self._target.write(view)
        self._digest.update(view)
        self.size += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size

    def sync(self) -> None:
        self._target.flush()
        os.fsync(self._target.fileno())

    def checksum(self) -> str:
        return checksum_text(self._digest)

    def discard(self) -> None:
        self._discarding = True

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._target.close()
