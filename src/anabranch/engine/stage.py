"""Stage: one pass over the epoch's rows writes every output's files, durable and invisible."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING
from zipimport import zipimporter

import pyarrow as pa

from anabranch.connectors.contract import Staging
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.epoch import StagedFile
from anabranch.engine.program import OutputColumns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANSWER = pa.schema([("output", pa.string()), ("files", pa.string())])


def stage(
    parts: Sequence[OutputColumns], frame: DataFrame, stagings: Mapping[str, Staging]
) -> dict[str, list[StagedFile]]:
    """Write the rows of one batch for the outputs in `stagings`; the files that the winning task attempts wrote.

    A task that is tried again writes files of its own; only what a winning attempt answered is collected, so the
    others are leftovers, known by no receipt.
    """
    write = writer([p for p in parts if p.output in stagings], stagings)
    tasks = frame.sparkSession.sparkContext.defaultParallelism
    # Never more files per output than there are cores to write them.
    answers = frame.coalesce(tasks).mapInArrow(write, "output string, files string").collect()
    staged: dict[str, list[StagedFile]] = {name: [] for name in stagings}
    for answer in answers:
        staged[answer.output] += [StagedFile(**f) for f in json.loads(answer.files)]
    return staged


def writer(
    parts: Sequence[OutputColumns], stagings: Mapping[str, Staging]
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function that a task runs: Arrow batches of the wide frame in, one row per output with its files out."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writers: dict[str, StagedWriter] = {}
        try:
            for batch in batches:
                for part in parts:
                    rows = take(batch, part)
                    if rows.num_rows:
                        if part.output not in writers:
                            writers[part.output] = StagedWriter(stagings[part.output], _task())
                        writers[part.output].write(rows)
            files = {output: w.close() for output, w in writers.items()}
            _forget_zip_files()
        except BaseException:
            for w in writers.values():
                w.abort()
            raise
        yield _answer(files)

    return write


def _forget_zip_files() -> None:
    """Keep the next task of this worker from reading pyspark's zip files anew.

    A worker calls `importlib.invalidate_caches()` before each task, and every zip importer in this cache then reads its
    archive's directory again: 100 ms of CPU for a task that has nothing to import. One that is needed is made again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def take(batch: pa.RecordBatch, part: OutputColumns) -> pa.RecordBatch:
    """The rows and columns of a wide batch that are for one output."""
    chosen = batch.select([wide for wide, _ in part.columns]).rename_columns([name for _, name in part.columns])
    return chosen.filter(batch.column(part.mask)) if part.mask else chosen


def _answer(files: Mapping[str, Iterable[StagedFile]]) -> pa.RecordBatch:
    rows = [{"output": output, "files": json.dumps([asdict(f) for f in found])} for output, found in files.items()]
    return pa.RecordBatch.from_pylist(rows, schema=_ANSWER)


def _task() -> str:
    """What tells the files of one task attempt from those of all others of its epoch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return f"{context.partitionId()}-{context.taskAttemptId()}" if context else "driver"
