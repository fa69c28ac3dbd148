"""Files of an epoch read by the workers themselves: Spark hands out ranges, no record goes through its JVM."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from anabranch.engine.native_rows import CannotRead
from anabranch.engine.source_files_log import entries_of, is_local, local_path, log_offset
from anabranch.native.lines import read_split, unreadable
from anabranch.native.parse_csv_shape import Heading

if TYPE_CHECKING:
    from anabranch.engine.checkpoint import Checkpoint
    from anabranch.native.program import NativeProgram

#: What `_metadata` tells of a file, however it is parted.
_OF_WHOLE = ("file_path", "file_name", "file_size", "file_modification_time")

#: Spark does not part smaller files than this, unless it is told to by these settings.
_NOT_PARTED = 4 << 20
_PARTING = {"spark.sql.files.openCostInBytes": "4194304b", "spark.sql.files.maxPartitionBytes": "134217728b"}

#: A task reads at least this much of a file.
_SMALLEST = 4 << 20
_LARGEST = 128 << 20

#: Bytes of what is told of a file, with all lines together: a block may have millions of them that are empty. Arrow
#: repeats a text beyond what an array can hold, and dies of what it then has.
_MOST_TOLD = 256 << 20


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a file: the lines that begin in it."""

    url: str
    path: str
    start: int
    length: int
    size: int
    modified: int  # milliseconds


@dataclass(frozen=True, slots=True)
class FileFeed:
    """How the lines of files become raw records: the name for a line, and that and the type for Spark's `_metadata`.

    `documents`: the columns that Spark has are in the lines. `heading`: files begin with a line of names; what a line
    begins with that is no record. `whole`: flows ask in which part of a file a record is, as Spark parts it.
    """

    value: str
    metadata: tuple[str, pa.DataType] | None = None
    documents: bool = False
    heading: Heading | None = None
    whole: bool = False

    def batches(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """The lines of some splits."""
        for split in splits:
            if self.documents and "=" in split.path.rpartition("/")[0]:
                raise CannotRead(split.path)  # a folder k=v is a column, for Spark
            if self.whole and split.size > _NOT_PARTED and not split.path.endswith(".gz"):
                raise CannotRead(split.path)
            found = _lines(split)
            if self.heading is not None and split.start == 0:
                found = self._behind_heading(split, found)
            if self.metadata is None:
                yield from (pa.record_batch([lines], names=[self.value]) for lines in found)
                continue
            told = about(split, self.metadata[1])
            most = max(1, _MOST_TOLD // max(1, sum(len(str(value)) for value in told.as_py().values())))
            for lines in found:
                for start in range(0, len(lines), most):
                    some = lines[start : start + most]
                    yield pa.record_batch([some, pa.repeat(told, len(some))], names=[self.value, self.metadata[0]])

    def _behind_heading(self, split: Split, found: Iterator[pa.StringArray]) -> Iterator[pa.StringArray]:
        """Without the first line, which must be the heading: Spark looks for it in its own first part of the file."""
        first = next(found, None)
        if first is not None and len(first):
            if not (self.heading and self.heading.is_first(first[0].as_buffer().to_pybytes())):
                raise CannotRead(split.path)
            yield first[1:]
            yield from found


class Feed(Protocol):
    """How files become raw records."""

    def batches(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """The records of some splits."""


def about(split: Split, kind: pa.DataType) -> pa.Scalar:
    """What Spark's `_metadata` says of a file."""
    known: dict[str, Any] = {
        "file_path": split.url.replace("file:///", "file:/", 1),  # as Hadoop writes it
        "file_name": split.url.rpartition("/")[2],
        "file_size": split.size,
        "file_block_start": split.start,
        "file_block_length": split.length,
        "file_modification_time": split.modified * 1000,
        "row_index": 0,  # of Parquet; flows that ask for it are not native
    }
    return pa.scalar({f.name: known[f.name] for f in kind}, kind)


def asks_for_part(program: NativeProgram, metadata: str) -> bool:
    """Whether a flow asks where in a file a record is; `metadata`: what `_metadata` is called among raw records."""
    places = [one.place for one in (*program.reads, *(taken for flow in program.flows for taken in flow.taken))]
    places += [instant.place for instant in program.instants]
    return any(place[0] == metadata and (not place[1:] or place[1] not in _OF_WHOLE) for place in places)


def parts_as_usual(setting: Callable[[str], str]) -> bool:
    """Whether Spark parts files as it does if nobody told it otherwise."""
    return all(setting(key) == usual for key, usual in _PARTING.items())


def _lines(split: Split) -> Iterator[pa.StringArray]:
    try:
        yield from read_split(split.path, split.start, split.length)
    except (OSError, EOFError, zlib.error) as error:
        raise CannotRead(split.path) from error


def batch_splits(checkpoint: Checkpoint, epoch: int, tasks: int) -> list[Split] | None:
    """The files that a batch of a channel with one source reads, in parts; None where workers cannot read them.

    The offsets of Spark's file source are numbers of batches in a log of its own.
    """
    now, before = _offset(checkpoint, epoch), _offset(checkpoint, epoch - 1) if epoch else -1
    if now is None or before is None:
        return None
    batches = range(before + 1, now + 1)
    found = entries_of(checkpoint.log(0), batches)
    if {entry["batchId"] for entry in found} != set(batches):
        return None
    if not all(is_local(entry) and not unreadable(local_path(entry)) for entry in found):
        return None
    try:
        files = [(entry, os.stat(local_path(entry))) for entry in found]
    except OSError:  # gone or not permitted: Spark says so in its own words
        return None
    size = min(_LARGEST, max(_SMALLEST, -(-sum(stat.st_size for _, stat in files) // max(1, tasks))))
    splits = []
    for entry, stat in files:
        whole = entry["path"].endswith(".gz") or stat.st_size <= size * 1.1
        step = max(1, stat.st_size) if whole else size
        for start in range(0, stat.st_size, step):
            length = min(step, stat.st_size - start)
            modified = stat.st_mtime_ns // 1_000_000
            splits.append(Split(entry["path"], local_path(entry), start, length, stat.st_size, modified))
    return splits


def _offset(checkpoint: Checkpoint, epoch: int) -> int | None:
    """Where the one source of a channel stands; None where that is not known, or is not a source of files."""
    lines = (checkpoint.offsets(epoch) or "").splitlines()
    return log_offset(lines[0]) if len(lines) == 1 else None


def dealt(splits: Sequence[Split], tasks: int) -> list[list[Split]]:
    """Splits for each task, about as many bytes for each; the largest first."""
    found: list[list[Split]] = [[] for _ in range(min(tasks, len(splits)))]
    for split in sorted(splits, key=lambda s: -s.length):
        min(found, key=lambda own: sum(s.length for s in own)).append(split)
    return found


def reading(feed: Feed, tasks: Sequence[Sequence[Split]]) -> Callable[[Iterable[Any]], Iterator[pa.RecordBatch]]:
    """What a task does instead of taking rows from Spark, which gives it nothing but its number."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from feed.batches(tasks[number])

    return read
