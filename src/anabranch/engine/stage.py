"""Stage: one pass over the epoch's rows writes every output's files, durable and invisible."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

from anabranch.connectors.contract import Staging
from anabranch.core.epoch import EpochKey, StagedFile
from anabranch.core.profile import Observed, all_observed
from anabranch.core.quality import from_json, to_json, total
from anabranch.engine.catalyst import collect_arrow, too_large_for_driver
from anabranch.engine.native_rows import CannotRead, NativeRows, NativeWork, packed, unpacked
from anabranch.engine.rows import OutputColumns, Rows, Staged
from anabranch.engine.worker_errors import marked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a task answers; `rest` are the records of each native pass that are left to Spark.
_ANSWER = pa.schema(
    [
        ("files", pa.string()),
        ("quality", pa.string()),
        ("observed", pa.string()),
        ("records", pa.int64()),
        ("gave_up", pa.bool_()),
        ("rest", pa.list_(pa.binary())),
        ("put_aside", pa.list_(pa.string())),
    ]
)
_ANSWER_DDL = (
    "files string, quality string, observed string, records bigint, gave_up boolean, rest array<binary>, "
    "put_aside array<string>"
)


#: Batches as a task gets them from Spark -> batches of the wide frame.
Reading = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass over a batch gave: what was staged, and of each native pass the records that are left to Spark."""

    staged: Staged
    rest: Sequence[pa.Table | None] = ()
    put_aside: Sequence[Sequence[str]] = ()  # files with what else is left
    records: int = 0  # that came to a native pass, with those that are left
    gave_up: bool = False  # a native pass was left so many that Spark must compute the batch
    aside: bool = False  # workers read the records from files themselves


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows to be staged: what the flows give, for which outputs, in which epoch."""

    parts: Sequence[OutputColumns]
    stagings: Mapping[str, Staging]
    key: EpochKey
    natives: Sequence[NativeWork] = ()

    @property
    def stateful(self) -> bool:
        """Whether the rows come out of an operator that keeps state."""
        return any(part.stateful for part in self.parts)


def stage(wanted: Wanted, frame: DataFrame, *, small: bool, task: str = "driver") -> Pass:
    """Write the rows of one batch for the outputs in `stagings`.

    A batch known to be `small` is collected and written by the driver: starting a task in a Python worker costs more
    than writing some thousand rows. It must be harmless to compute the frame a second time, which is done should the
    batch not be small after all.

    With no output named, a batch is computed only if a flow keeps state.
    """
    if not wanted.stagings and not wanted.stateful:
        return Pass(Staged({}))
    if small:
        try:
            batches = collect_arrow(frame)
        except Exception as error:
            if not too_large_for_driver(error):
                raise
        else:
            return written(wanted, task, batches)
    if not wanted.stateful:
        # Never more files per output than there are cores to write them. Where state is kept, partitions stay apart: a
        # task that computes those of two operators fails in Spark's RocksDB store, which expects the state of one.
        frame = frame.coalesce(frame.sparkSession.sparkContext.defaultParallelism)
    return by_workers(wanted, frame)


def by_workers(wanted: Wanted, frame: DataFrame, reading: Reading = iter) -> Pass:
    """The files that the winning task attempts wrote; `reading` makes batches of the wide frame of the frame's own.

    A task that is tried again writes files of its own; only what a winning attempt answered is collected, so the
    others are leftovers, known by no receipt.
    """
    answers = frame.mapInArrow(writer(wanted, reading), _ANSWER_DDL).collect()
    staged: dict[str, list[StagedFile]] = {name: [] for name in wanted.stagings}
    for answer in answers:
        for output, files in json.loads(answer.files).items():
            staged[output] += [StagedFile(**f) for f in files]
    observed = all_observed(Observed.from_json(answer.observed) for answer in answers)
    quality = total(q for answer in answers for q in from_json(answer.quality))
    rest = [unpacked(answer.rest[i] for answer in answers) for i in range(len(wanted.natives))]
    records, gave_up = sum(answer.records for answer in answers), any(answer.gave_up for answer in answers)
    put_aside = [[a.put_aside[i] for a in answers if a.put_aside[i]] for i in range(len(wanted.natives))]
    return Pass(Staged(staged, quality, observed), rest, put_aside, records, gave_up)


def writer(wanted: Wanted, reading: Reading = iter) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function that a task runs: Arrow batches of the wide frame in, one row with what was staged out."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with marked():
            passed = written(wanted, _task(), reading(batches))
        _forget_zip_files()
        yield _answer(passed)

    return write


def written(wanted: Wanted, task: str, batches: Iterable[pa.RecordBatch]) -> Pass:
    """Write batches of the wide frame."""
    rows = Rows(wanted.parts, wanted.stagings, wanted.key, task)
    natives = [NativeRows(work, rows) for work in wanted.natives]
    given_up = Pass(Staged({}), [None] * len(natives), [[] for _ in natives], gave_up=True)
    try:
        for batch in batches:
            if any(native.gave_up for native in natives):
                continue  # Spark wants its rows to be taken
            rows.take(batch)
            for native in natives:
                native.take(batch)
        for native in natives:
            native.close()
        if any(native.gave_up for native in natives):
            rows.abort()
            return given_up
        staged = rows.close()
    except CannotRead:
        rows.abort()
        return given_up
    except BaseException:
        rows.abort()
        raise
    files = {name: list(staged.files.get(name, ())) for name in wanted.stagings}
    rest = [pa.Table.from_batches(native.rest) if native.rest else None for native in natives]
    put_aside = [[str(native.put_aside)] if native.put_aside else [] for native in natives]
    return Pass(replace(staged, files=files), rest, put_aside, sum(native.records for native in natives))


def _forget_zip_files() -> None:
    """Keep the next task of this worker from reading pyspark's zip files anew.

    A worker calls `importlib.invalidate_caches()` before each task, and every zip importer in this cache then reads its
    archive's directory again: 100 ms of CPU for a task that has nothing to import. One that is needed is made again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


def _answer(passed: Pass) -> pa.RecordBatch:
    staged = passed.staged
    files: dict[str, list[dict[str, Any]]] = {name: [asdict(f) for f in found] for name, found in staged.files.items()}
    quality, observed = to_json(tuple(staged.quality)), staged.observed.to_json()
    row = {"files": json.dumps(files), "quality": quality, "observed": observed, "records": passed.records}
    row["gave_up"] = passed.gave_up
    row["rest"] = [packed(table.to_batches() if table else ()) for table in passed.rest]
    row["put_aside"] = [files[0] if files else None for files in passed.put_aside]
    return pa.RecordBatch.from_pylist([row], schema=_ANSWER)


def _task() -> str:
    """What tells the files of one task attempt from those of all others of its epoch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "runs in a task"
    return f"{context.partitionId()}-{context.taskAttemptId()}"
