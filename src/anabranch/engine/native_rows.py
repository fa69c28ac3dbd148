"""The records of one task on their way through the native pass. Runs in Spark's Python workers, and in the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.engine.rows import OutputColumns, Rows, take
from anabranch.native.program import NativeProgram
from anabranch.native.run import NativeRun, one_batch

#: Records that are parsed and projected together: a query of DuckDB costs about a millisecond, whatever it reads.
#: Blocks of files come larger than this, and are not joined to larger ones still.
_TOGETHER = 65_536
_TOGETHER_BYTES = 8 << 20
#: Records that may be too large to be one array with others: Arrow's have 2 GB.
_ALONE_BYTES = 1 << 30

#: Records left to Spark go through the driver. Where they are more than this, they go into a file, or Spark computes
#: the whole epoch.
_MOST_REST_BYTES = 16 << 20


class CannotRead(Exception):
    """A file that is missing, damaged or not permitted. Spark, which then reads it, says so in its own words."""


@dataclass(frozen=True, slots=True)
class NativeWork:
    """What a worker needs: where the raw records are in the wide frame, what to do, and what each flow gives.

    `aside` is a folder for files of records that are left to Spark, if the epoch must not be computed a second time.
    """

    feed: OutputColumns
    program: NativeProgram
    parts: tuple[OutputColumns, ...]
    now: datetime | None = None
    aside: str | None = None


@dataclass
class NativeRows:
    """Takes raw records; the rows of its flows go to `rows`, and what is left to Spark stays in `rest`."""

    work: NativeWork
    rows: Rows
    records: int = 0
    rest: list[pa.RecordBatch] = field(default_factory=list)
    gave_up: bool = False  # so many records are Spark's that the native pass is not worth it
    put_aside: Path | None = None  # a file with all that is left
    _waiting: list[pa.RecordBatch] = field(default_factory=list)
    _writer: pq.ParquetWriter | None = None
    _run: NativeRun | None = None

    def take(self, batch: pa.RecordBatch) -> None:
        """The raw records of a batch of the wide frame."""
        self.add(take(batch, self.work.feed))

    def add(self, raw: pa.RecordBatch) -> None:
        """Raw records; they wait until there are enough of them."""
        if not raw.num_rows:
            return
        if raw.nbytes >= _ALONE_BYTES:
            self.pass_on()
        self._waiting.append(raw)
        waiting = sum(b.num_rows for b in self._waiting)
        if waiting >= _TOGETHER or sum(b.nbytes for b in self._waiting) >= _TOGETHER_BYTES:
            self.pass_on()

    def pass_on(self) -> None:
        """Parse and project what waits."""
        if not self._waiting or self.gave_up:
            return
        self._run = self._run or NativeRun(self.work.program, self.work.now)
        raw = one_batch(self._waiting)
        self._waiting = []
        passed = self._run.take(raw)
        self.records += raw.num_rows
        if passed.rest is not None and passed.rest.num_rows:
            self.rest.append(passed.rest)
            if sum(b.nbytes for b in self.rest) > _MOST_REST_BYTES:
                self._put_aside()
        for part, table in zip(self.work.parts, passed.rows, strict=True):
            for rows in table.to_batches():
                self.rows.give(part, rows)

    def _put_aside(self) -> None:
        if self.work.aside is None:
            self.gave_up = True
            return
        if self._writer is None:
            self.put_aside = Path(self.work.aside) / f"{uuid4().hex}.parquet"
            self._writer = pq.ParquetWriter(self.put_aside, self.rest[0].schema)
        for batch in self.rest:
            self._writer.write_batch(batch)
        self.rest = []

    def close(self) -> None:
        """There are no more records."""
        self.pass_on()
        if self._writer is not None:
            self._put_aside()
            self._writer.close()


def packed(batches: Iterable[pa.RecordBatch]) -> bytes | None:
    """Batches as bytes for the driver; None if there is no row."""
    found = list(batches)
    if not found:
        return None
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, found[0].schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        for batch in found:
            stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpacked(packs: Iterable[bytes | None]) -> pa.Table | None:
    """The rows of all, as `packed` made them."""
    tables = [pa.ipc.open_stream(pack).read_all() for pack in packs if pack]
    return pa.concat_tables(tables) if tables else None
