"""A job on a cluster whose first task goes wrong in its first attempts, half way through what it stages.

Started by `test_cluster`: `python cluster_job.py '{"master": ..., "troubles": ..., ...}'`; prints the receipts as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.connectors.delta import DeltaSink
from anabranch.connectors.parquet_files import ROW_GROUP_ROWS
from anabranch.core.epoch import EpochKey
from anabranch.engine.rows import OutputColumns
from anabranch.engine.session import open_session
from anabranch.engine.stage import Wanted, stage

KEY, TOKEN = EpochKey("p-1", "main", 1, 0), 1
OUTPUTS = {"every": None, "odd": "is_odd"}  # the mask of each
TASKS = 2
BEFORE_TROUBLE = 5 * ROW_GROUP_ROWS // 2  # rows of a task, enough for each output to have begun a file
ROWS = TASKS * (BEFORE_TROUBLE + ROW_GROUP_ROWS // 2)
SECONDS = 200.0


def sink_at(lake: Path, output: str) -> DeltaSink:
    """One of the job's tables."""
    return DeltaSink(output, str(lake / output), pipeline=KEY.pipeline)


def with_trouble(
    troubles: Sequence[str], lake: str, marks: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A step that lets rows through until it is time for trouble: in the first task, the Nth for attempt N."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        task: Any = TaskContext.get()
        name = f"{task.partitionId()}-{task.attemptNumber()}"
        awaiting = dict(enumerate(troubles)).get(task.attemptNumber()) if task.partitionId() == 0 else None
        own = [f"{output}/ab-*-{TOKEN}-{task.partitionId()}-{task.taskAttemptId()}-*" for output in OUTPUTS]
        passed = 0
        for batch in batches:
            yield batch
            passed += batch.num_rows
            if awaiting and passed >= BEFORE_TROUBLE:
                await_condition(lambda: all(any(Path(lake).glob(pattern)) for pattern in own))
                begun = [str(path.relative_to(lake)) for pattern in own for path in Path(lake).glob(pattern)]
                mark(Path(marks, f"trouble-{name}"), {"begun": begun, "processes": [p.pid for p in processes()]})
                make_trouble(awaiting, Path(marks))
                awaiting = None
        mark(Path(marks, name), {})

    return step


def make_trouble(trouble: str, marks: Path) -> None:
    """What befalls an attempt."""
    if trouble == "raises":
        raise RuntimeError("a row that the flow cannot take")
    if trouble == "dies":
        # None of them gets to tidy up, as on a machine that is switched off; this process is the last.
        for process in sorted(processes(), key=lambda p: p.pid == os.getpid()):
            process.kill()
    if trouble == "slow":
        await_condition((marks / "over").exists)  # not before its copy has won


def processes() -> list[Any]:
    """The Python workers beside this one, the one that forks them, and the executor."""
    import psutil

    daemon = psutil.Process().parent()
    return [*daemon.children(), daemon, daemon.parent()]


def await_condition(holds: Callable[[], bool]) -> None:
    """Wait until something holds; not for ever."""
    end = time.monotonic() + SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come about")
        time.sleep(0.02)


def mark(path: Path, content: Any) -> None:
    """Leave a note for the test, whole or not at all."""
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    aside.write_text(json.dumps(content))
    aside.rename(path)


def main(master: str, troubles: list[str], lake: str, marks: str, settings: dict[str, str]) -> None:
    """Stage one epoch and print the receipts."""
    on_loopback = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    cluster = {
        "spark.master": master,
        "spark.cores.max": str(TASKS),
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # begin when both executors are there
        "spark.task.maxFailures": "4",
    }
    spark = open_session(app_name="staging", log_folder=Path(marks), settings=on_loopback | cluster | settings)
    frame = spark.range(0, ROWS, 1, TASKS).mapInArrow(with_trouble(troubles, lake, marks), "id long")
    wide = frame.selectExpr("id", "id % 2 = 1 AS is_odd")
    sinks = {output: sink_at(Path(lake), output) for output in OUTPUTS}
    for sink in sinks.values():
        sink.prepare(pa.schema([("id", pa.int64())]))
    parts = [OutputColumns(output, mask, (("id", "id"),)) for output, mask in OUTPUTS.items()]
    staged = stage(
        Wanted(parts, {output: sink.staging(KEY, TOKEN) for output, sink in sinks.items()}, KEY), wide, small=False
    ).staged
    mark(Path(marks, "over"), {})
    print(json.dumps({output: sinks[output].receipt(KEY, files).to_json() for output, files in staged.files.items()}))
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
