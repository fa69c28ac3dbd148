"""The command `anabranch` with Spark played by a few lines of Python: everything else is the real thing.

    ANABRANCH_CRASH=decided python tests/crash/driver.py run --once --project FOLDER

It starts in no time, so that hundreds of crashes can be tried. Spark's part is `Query`: it writes the offset log before
a batch and the commit log after it, and hands a batch in again when its commit is missing. The flows of
`crash_project.FLOWS` are computed with pyarrow and handed to the writer that a Spark task would run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql.types import StructType

from anabranch.cli.main import main as anabranch
from anabranch.connectors.contract import Staging
from anabranch.core.epoch import EpochKey
from anabranch.core.graph import build
from anabranch.core.plan import ChannelPlan, make_plan
from anabranch.engine import channel, run
from anabranch.engine.checkpoint import Checkpoint
from anabranch.engine.epoch import ChannelRun
from anabranch.engine.rows import OutputColumns, Staged
from anabranch.engine.stage import Wanted, written
from anabranch.load.project import Project
from anabranch.load.python_files import load_pipeline

SLOW_MS = 200

#: The outputs, and what Spark would have found their columns to be.
SCHEMAS = {
    "errors": StructType().add("id", "string").add("code", "string"),
    "everything": StructType().add("id", "string").add("ms", "long"),
    "slow": StructType().add("id", "string").add("ms", "long"),
    "copies": StructType().add("id", "string").add("ms", "long"),  # of `everything`, in projects that have it
}
PARTS = tuple(
    OutputColumns(name, f"b{i}", tuple((f"b{i}_{j}", column) for j, column in enumerate(schema.names)))
    for i, (name, schema) in enumerate(SCHEMAS.items())
)
WIDE = pa.schema(
    [(part.mask, pa.bool_()) for part in PARTS]
    + [(wide, pa.int64() if name == "ms" else pa.string()) for part in PARTS for wide, name in part.columns]
)

Batch = Callable[[Any, int], None]


def rows_for(output: str, events: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """The rows that a flow makes of a batch."""
    if output == "errors":
        return [(event["id"], code) for event in events for code in event["codes"]]
    if output == "slow":
        return [(event["id"], event["ms"]) for event in events if event["ms"] > SLOW_MS]
    return [(event["id"], event["ms"]) for event in events]


def wide_batches(events: Sequence[Mapping[str, Any]], parts: Sequence[OutputColumns]) -> Iterator[pa.RecordBatch]:
    """A batch as the union of the branches, each with its mask set."""
    for own in parts:
        rows = rows_for(own.output, events)
        columns = {part.mask: [part is own] * len(rows) for part in PARTS}
        for part in PARTS:
            for j, (wide, _) in enumerate(part.columns):
                columns[wide] = [row[j] if part is own else None for row in rows]
        yield pa.RecordBatch.from_pydict(columns, schema=WIDE)


def stage(frame: list[Mapping[str, Any]], stagings: Mapping[str, Staging], key: EpochKey, *, small: bool) -> Staged:
    """What `engine.stage` does, with the one task of the batch run here."""
    parts = [part for part in PARTS if part.output in stagings]
    return written(Wanted(parts, stagings, key), "driver", wide_batches(frame, parts)).staged


class Query(threading.Thread):
    """A streaming query over the files of a folder, one file for each micro-batch."""

    lastProgress = None  # as of a query that has made none yet

    def __init__(self, landing: Path, checkpoint: Path, batch: Batch, *, once: bool, seconds: float) -> None:
        super().__init__(name="query", daemon=True)
        self._landing, self._checkpoint, self._batch = landing, checkpoint, batch
        self._once, self._seconds = once, seconds
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        for log in ("offsets", "commits"):
            (checkpoint / log).mkdir(parents=True, exist_ok=True)

    @property
    def isActive(self) -> bool:
        return self.is_alive()

    def awaitTermination(self, seconds: float | None = None) -> None:
        self.join(seconds)
        if self._error is not None:
            raise StreamingQueryException(str(self._error))

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def run(self) -> None:
        try:
            self._batches(len(self._files()))
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for the query
            self._error = error

    def _batches(self, there_at_start: int) -> None:
        newest, committed = self._newest("offsets"), self._newest("commits")
        number = newest if newest is not None and newest != committed else (-1 if newest is None else newest) + 1
        while not self._stopped.is_set():
            if not self._log("offsets", number).exists():
                done = self._end(number - 1)
                if done >= (there_at_start if self._once else len(self._files())):
                    if self._once:
                        return
                    self._stopped.wait(self._seconds)
                    continue
                self._write("offsets", number, json.dumps({"files": done + 1}))
            files = self._files()[self._end(number - 1) : self._end(number)]
            self._batch([json.loads(line) for file in files for line in file.read_text().splitlines()], number)
            self._write("commits", number, "")
            number += 1

    def _files(self) -> list[Path]:
        return sorted(self._landing.glob("events-*.json"))

    def _newest(self, log: str) -> int | None:
        return max((int(p.name) for p in (self._checkpoint / log).iterdir() if p.name.isdigit()), default=None)

    def _log(self, log: str, number: int) -> Path:
        return self._checkpoint / log / str(number)

    def _end(self, number: int) -> int:
        """How many files have been read when a batch is over."""
        return 0 if number < 0 else int(json.loads(self._log("offsets", number).read_text().splitlines()[2])["files"])

    def _write(self, log: str, number: int, line: str) -> None:
        """As Spark does: whole or not at all, and refused when another process has written it."""
        aside = self._checkpoint / log / f".{number}.{uuid.uuid4().hex}.tmp"
        aside.write_text(f"v1\n{{}}\n{line}")
        os.link(aside, self._log(log, number))
        aside.unlink()


def plan(project: Project, _spark: None, known: Mapping[str, str]) -> SimpleNamespace:
    """The plan of a project whose flows are not called; the only frame there is, is the folder of files."""
    graph = build(load_pipeline(project, with_spark=False).pipeline)
    frames = {"landing": project.root / "landing"}
    return SimpleNamespace(plan=make_plan(graph, known), frames=frames, graph=graph, calling=nullcontext)


def program(_plan: ChannelPlan, frames: Mapping[str, Any]) -> SimpleNamespace:
    """The program of the one channel."""
    return SimpleNamespace(frame=frames["landing"], parts=PARTS, sources=("json",), repeatable=True)


def start(program: SimpleNamespace, work: ChannelRun, checkpoint: Checkpoint, trigger: Mapping[str, Any]) -> Query:
    """Start the query of the one channel."""
    seconds = float(str(trigger.get("processingTime", "0")).split()[0])
    query = Query(program.frame, checkpoint.folder, work.batch, once="processingTime" not in trigger, seconds=seconds)
    query.start()
    return query


def without_spark() -> None:
    """Put the stand-ins in the places where the engine would turn to Spark; a place that has moved is an error."""
    for module, name, instead in (
        (run, "open_spark", lambda *_: None),
        (run, "plan_with_spark", plan),
        (channel, "output_schemas", lambda _plan, _frames: SCHEMAS),
        (channel, "make_program", program),
        (channel, "tell_changes", lambda *_: None),
        (channel, "options_of_sources", lambda _frame: []),
        (channel, "source_numbers", lambda _frame: (0,)),
        (channel, "stager", lambda *_: stage),
        (channel, "_start", start),
    ):
        assert hasattr(module, name), f"{module.__name__} has no {name} any more"
        setattr(module, name, instead)


def main(arguments: Sequence[str]) -> int:
    """The command, without Spark."""
    without_spark()
    return anabranch(arguments)


def child(arguments: Sequence[str], settings: Mapping[str, str], out: str, file_bytes: int | None) -> None:
    """The body of a child process: the command with its output in a file, and a largest file size if one is given."""
    with open(out, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.environ.update(settings)
    if file_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    sys.exit(main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
