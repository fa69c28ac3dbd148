"""What workers left to Spark, in files: lines as its own reader of such files takes them, and too many records.

What a line means to that reader, it does not to any other part of Spark: it has arrays of records, guesses encodings,
and keeps what is no text as it is written. So the lines become a file again, or one for each of the files that they
come from where a flow asks for that, and the reader is given these, with the options of the source.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from anabranch.engine.catalyst import METADATA_COLUMN, frame_of
from anabranch.engine.native_documents import LINE, Documents

#: Below the checkpoint of a channel, which one process has at a time.
_FOLDER = "left"

#: Whether the characters of a path mean others.
_NO_PATTERN = ("__globPaths__", "false")

#: The same for records.
_ROWS = "left_rows"

_NAME, _ABOUT = "file_of_lines", "about_file"


@contextmanager
def left_lines(
    session: SparkSession,
    documents: Documents,
    fields: Mapping[str, str],
    lines: pa.Table,
    about: tuple[str, DataType] | None,
    checkpoint: Path,
) -> Iterator[DataFrame]:
    """The rows of lines: the columns of the files by their names, each as it is to be called.

    With `about`, the lines have what Spark's `_metadata` is in the files that they come from, and so have the rows.
    """
    place = checkpoint / _FOLDER
    shutil.rmtree(place, ignore_errors=True)
    folder = place / uuid.uuid4().hex  # another one each time: Spark may keep what it knows of one
    folder.mkdir(parents=True)
    try:
        known = _by_file(lines, about[0]) if about else None
        for number, rows in enumerate(known[1] if known else [None]):
            _write(folder / f"{number}.{documents.format}", lines.column(LINE), rows)
        rows = _read(session, documents, folder)
        columns = [F.col(f"`{name.replace('`', '``')}`").alias(called) for name, called in fields.items()]
        if about is None or known is None:
            yield rows.select(columns)
            return
        kept = rows.select(*columns, F.col(f"{METADATA_COLUMN}.file_name").alias(_NAME))
        files = pa.table({_NAME: [f"{n}.{documents.format}" for n in range(len(known[0]))], _ABOUT: known[0]})
        told = frame_of(session, files, StructType().add(_NAME, "string").add(_ABOUT, about[1]))
        joined = kept.join(
            F.broadcast(told.withColumnRenamed(_NAME, _ABOUT + _NAME)), F.col(_NAME) == F.col(_ABOUT + _NAME)
        )
        yield joined.select(*fields.values(), F.col(_ABOUT).alias(about[0]))
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _read(session: SparkSession, documents: Documents, folder: Path) -> DataFrame:
    reader = session.read.format(documents.format).schema(StructType.fromJson(json.loads(documents.schema)))
    return reader.options(**documents.options).option(*_NO_PATTERN).load(f"file://{folder.absolute()}")


def _by_file(lines: pa.Table, about: str) -> tuple[pa.Array, list[pa.Array]]:
    """What is known of each file that some of the lines are of, and which of the lines."""
    told = lines.column(about).combine_chunks()
    names = [f"f{i}" for i in range(told.type.num_fields)]
    numbered = pa.table([*told.flatten(), pa.array(range(len(told)))], names=[*names, "row"])
    rows = numbered.group_by(names, use_threads=False).aggregate([("row", "list")]).column("row_list").combine_chunks()
    found = [each.values for each in rows]
    return told.take(pa.array([each[0].as_py() for each in found])), found


def _write(path: Path, lines: pa.ChunkedArray, rows: pa.Array | None) -> None:
    """Lines as a file. It begins with an empty one, which is no record: what begins a file may be a mark."""
    chosen = lines if rows is None else lines.take(rows)
    texts = chosen.cast(pa.large_binary()).combine_chunks()
    together = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    with path.open("wb") as file:
        file.write(b"\n")
        file.write(pc.binary_join(together, pa.scalar(b"\n", texts.type))[0].as_buffer())
        file.write(b"\n")


def forget_left(checkpoint: Path) -> None:
    """Remove what a process that was killed left behind."""
    for name in (_FOLDER, _ROWS):
        shutil.rmtree(checkpoint / name, ignore_errors=True)


def folder_aside(checkpoint: Path) -> Path:
    """An empty folder for records of the batch that is under way."""
    folder = checkpoint / _ROWS
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@contextmanager
def rows_aside(session: SparkSession, types: StructType, files: Sequence[str]) -> Iterator[list[DataFrame]]:
    """Records that were put aside, if any were; their files are then removed."""

    def read(file: str) -> DataFrame:
        return session.read.format("parquet").schema(types).option(*_NO_PATTERN).load(f"file://{file}")

    try:
        # One by one: of several that look like patterns, Spark reads all for each.
        yield [read(file) for file in files]
    finally:
        for file in files:
            Path(file).unlink(missing_ok=True)


def count_rows(files: Sequence[str]) -> int:
    """How many records were put aside."""
    return sum(pq.read_metadata(file).num_rows for file in files)
