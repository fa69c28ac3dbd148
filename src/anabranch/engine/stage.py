"""Stage: one pass over the epoch's rows writes every output's files, durable and invisible."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

from anabranch.connectors.contract import Staging
from anabranch.core.epoch import EpochKey, StagedFile
from anabranch.core.quality import from_json, to_json, total
from anabranch.engine.catalyst import collect_arrow, too_large_for_driver
from anabranch.engine.rows import OutputColumns, Rows, Staged
from anabranch.engine.worker_errors import marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ANSWER = pa.schema([("files", pa.string()), ("quality", pa.string())])


def stage(
    parts: Sequence[OutputColumns], frame: DataFrame, stagings: Mapping[str, Staging], key: EpochKey, *, small: bool
) -> Staged:
    """Write the rows of one batch for the outputs in `stagings`.

    A batch known to be `small` is collected and written by the driver: starting a task in a Python worker costs more
    than writing some thousand rows. It must be harmless to compute the frame a second time, which is done should the
    batch not be small after all.

    With no output named, a batch is computed only if a flow keeps state.
    """
    if not stagings and not any(part.stateful for part in parts):
        return Staged({})
    if small:
        try:
            batches = collect_arrow(frame)
        except Exception as error:
            if not too_large_for_driver(error):
                raise
        else:
            return written(Rows(parts, stagings, key, "driver"), batches)
    return _by_workers(parts, frame, stagings, key)


def _by_workers(
    parts: Sequence[OutputColumns], frame: DataFrame, stagings: Mapping[str, Staging], key: EpochKey
) -> Staged:
    """The files that the winning task attempts wrote.

    A task that is tried again writes files of its own; only what a winning attempt answered is collected, so the
    others are leftovers, known by no receipt.
    """
    if not any(part.stateful for part in parts):
        # Never more files per output than there are cores to write them. Where state is kept, partitions stay apart: a
        # task that computes those of two operators fails in Spark's RocksDB store, which expects the state of one.
        frame = frame.coalesce(frame.sparkSession.sparkContext.defaultParallelism)
    answers = frame.mapInArrow(writer(parts, stagings, key), "files string, quality string").collect()
    staged: dict[str, list[StagedFile]] = {name: [] for name in stagings}
    for answer in answers:
        for output, files in json.loads(answer.files).items():
            staged[output] += [StagedFile(**f) for f in files]
    return Staged(staged, total(q for answer in answers for q in from_json(answer.quality)))


def writer(
    parts: Sequence[OutputColumns], stagings: Mapping[str, Staging], key: EpochKey
) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function that a task runs: Arrow batches of the wide frame in, one row with what was staged out."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked():
            staged = written(Rows(parts, stagings, key, _task()), batches)
        _forget_zip_files()
        yield _answer(staged)

    return write


def written(rows: Rows, batches: Iterable[pa.RecordBatch]) -> Staged:
    try:
        for batch in batches:
            rows.take(batch)
        staged = rows.close()
    except BaseException:
        rows.abort()
        raise
    return Staged({name: list(staged.files.get(name, ())) for name in rows.stagings}, staged.quality)


def _forget_zip_files() -> None:
    """Keep the next task of this worker from reading pyspark's zip files anew.

    A worker calls `importlib.invalidate_caches()` before each task, and every zip importer in this cache then reads its
    archive's directory again: 100 ms of CPU for a task that has nothing to import. One that is needed is made again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _answer(staged: Staged) -> pa.RecordBatch:
    files: dict[str, list[dict[str, Any]]] = {name: [asdict(f) for f in found] for name, found in staged.files.items()}
    row = {"files": json.dumps(files), "quality": to_json(tuple(staged.quality))}
    return pa.RecordBatch.from_pylist([row], schema=_ANSWER)


def _task() -> str:
    """What tells the files of one task attempt from those of all others of its epoch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs in a task"
    return f"{context.partitionId()}-{context.taskAttemptId()}"
