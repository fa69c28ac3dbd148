"""A project that is started in child processes and killed, and readers that look at what is left behind."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import driver
from crash_children import Child, Ended
from crash_model import TABLES, Model, Rows, compare, land, names_of
from crash_project import CHANNEL, FLOWS, NO_RETRIES, make_project

from anabranch import read
from anabranch.connectors.delta import arrow_dataset
from anabranch.errors import StateError
from anabranch.store.ledger import EpochRecord, Ledger

#: A server that has imported everything once, and forks: children start in milliseconds, and are processes like any.
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(
    [
        "anabranch.cli.main",
        "anabranch.engine.run",
        "anabranch.load.python_files",
        *(f"anabranch.connectors.{name}" for name in ("delta", "iceberg_tables", "kafka", "postgres")),
        *("pyiceberg.catalog.sql", "confluent_kafka.admin", "psycopg"),
    ]
)
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads would be there before the fork


@dataclass
class Lake:
    """A project, its input so far and its storage; every look at it is compared with the model."""

    folder: Path
    flows: str = FLOWS
    lease: float = 600.0  # while a child is paused, none runs out and none is being renewed
    configuration: str = NO_RETRIES
    children: list[Child] = field(default_factory=list)

    def __post_init__(self) -> None:
        make_project(self.folder, lease=self.lease, flows=self.flows, configuration=self.configuration)
        self.model = Model(self.folder / "landing")
        self.eye = Eye(self)

    # Its parts

    @property
    def storage(self) -> Path:
        return self.folder / "lake"

    @property
    def ledger_file(self) -> Path:
        return self.storage / "_anabranch" / "ledger.db"

    @property
    def checkpoint(self) -> Path:
        return self.storage / "_anabranch" / "checkpoints" / CHANNEL / "1"

    def table(self, name: str) -> Path:
        return self.storage / "tables" / name

    @property
    def inputs(self) -> int:
        """How many input files there are."""
        return len(self.model.files())

    def land(self, files: int = 1, *, events: int = 12) -> None:
        """More input: each file is an epoch."""
        for _ in range(files):
            land(self.folder / "landing", self.inputs, events)

    @contextlib.contextmanager
    def ledger(self) -> Iterator[tuple[Ledger, str]]:
        """The ledger, for reading only, and the pipeline's id in it."""
        with Ledger.open(str(self.ledger_file), create=False, readonly=True) as ledger:
            pipeline = ledger.pipeline("crash")
            assert pipeline is not None
            yield ledger, pipeline.pipeline_id

    def epochs(self) -> dict[int, EpochRecord]:
        """What the ledger knows of each epoch."""
        with self.ledger() as (ledger, pipeline):
            return {r.key.epoch: r for r in ledger.epochs(pipeline, limit=10_000)}

    def published(self) -> int:
        """The newest epoch readers can see, -1 before the first; none of its rows are read."""
        if not (self.storage / "_anabranch" / "identity.json").exists():
            return -1
        return read.cut(self.folder).epochs.get(CHANNEL, -1)

    # Running it

    def start(self, *verb: str, crash: str = "", file_bytes: int | None = None) -> Child:
        """Start the command, with Spark played by Python, and a crash asked for.

        `file_bytes` is a limit the kernel sets to every file; what the command says comes through a pipe then.
        """
        out = self._out()
        arguments = [*(verb or ("run", "--once")), "--json", "--project", str(self.folder)]
        pipe = out.with_suffix(".pipe") if file_bytes else out
        process = _forking.Process(
            target=driver.child, args=(arguments, {"ANABRANCH_CRASH": crash}, str(pipe), file_bytes)
        )
        drain = threading.Thread(target=lambda: out.write_bytes(pipe.read_bytes()))
        if file_bytes:
            os.mkfifo(pipe)
            drain.start()
        process.start()
        assert process.pid is not None

        def join(seconds: float) -> int | None:
            process.join(seconds)
            if file_bytes and process.exitcode is not None:
                drain.join()
            return process.exitcode

        return self._keep(Child(process.pid, out, join))

    def start_spark(self, *verb: str, crash: str = "") -> Child:
        """Start the command itself, with Spark."""
        arguments = [*(verb or ("run", "--once")), "--json", "--project", str(self.folder)]
        return self.start_program(["-m", "anabranch.cli.main", *arguments], {"ANABRANCH_CRASH": crash})

    def start_program(self, arguments: Sequence[str], settings: Mapping[str, str]) -> Child:
        """Start a Python program, as a shell would: in a process group of its own."""
        out = self._out()
        with out.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **settings},
                cwd=self.folder,
                start_new_session=True,
            )

        def join(seconds: float) -> int | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            return process.returncode

        return self._keep(Child(process.pid, out, join))

    def run(self, *verb: str, crash: str = "", file_bytes: int | None = None) -> Ended:
        """Run the command to its end, and look at the cut."""
        ended = self.start(*verb, crash=crash, file_bytes=file_bytes).wait()
        self.eye.look()
        return ended

    def run_spark(self, *verb: str, crash: str = "") -> Ended:
        """The same with Spark."""
        ended = self.start_spark(*verb, crash=crash).wait()
        self.eye.look()
        return ended

    def paused(self, point: str, *, spark: bool = False) -> Child:
        """Start it and pause it, as a whole, at a point of an epoch that is landed for it; nothing is locked then.

        Other threads go on until the pause comes. Should one have been inside a ledger transaction, everybody would
        wait for it: that one is let go, and the next epoch tried.
        """
        while True:
            self.land(2)
            child = (self.start_spark if spark else self.start)(crash=f"{point}:stop")
            child.until_stopped()
            if self.ledger_is_free():
                return child
            child.signal(signal.SIGCONT)
            assert child.wait().code == 0

    def lease_of(self) -> tuple[int, float]:
        """The token of the channel's last lease, and when it expires."""
        with contextlib.closing(sqlite3.connect(f"file:{self.ledger_file}?mode=ro", uri=True)) as ledger:
            [(token, expires)] = ledger.execute("SELECT token, expires FROM anabranch_channels").fetchall()
            return token, expires

    def ledger_is_free(self) -> bool:
        """Whether nobody is inside a transaction that writes."""
        with contextlib.closing(sqlite3.connect(self.ledger_file, timeout=0, isolation_level=None)) as ledger:
            try:
                ledger.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            ledger.execute("ROLLBACK")
            return True

    def die(self, crash: str) -> Ended:
        """Run it into a crash that must kill it."""
        ended = self.run(crash=crash)
        assert ended.killed, f"{crash} was not passed: {ended}"
        return ended

    def finish(self) -> Ended:
        """Run it undisturbed to the end of its input: then nothing may be missing, double or left over."""
        ended = self.run()
        assert ended.code == 0, ended
        self.check_finished()
        return ended

    def _out(self) -> Path:
        out = self.folder / f"out-{len(self.children):03}.txt"
        out.touch()
        return out

    def _keep(self, child: Child) -> Child:
        self.children.append(child)
        return child

    def end(self) -> None:
        """End every child that is still there."""
        for child in self.children:
            if not child.ended():
                child.kill()

    # Looking at it

    def rows(self, table: str) -> Rows:
        """What a table holds now, for a plain reader."""
        return delta_rows(self.table(table), None)

    def check_finished(self) -> None:
        """Every table holds exactly its rows, for plain readers and for readers of the cut; no file is left over."""
        assert self.eye.look() == self.inputs - 1
        for table in TABLES:
            found = compare(self.rows(table), self.model.expected(table))
            assert not found.wrong, f"{table}: {found}"
            epochs = Counter(txn["version"] for txn in self.actions(table, "txn"))
            assert set(epochs.values()) <= {1}, f"{table} took an epoch again: {epochs}"
        assert self.leftovers() == []

    def leftovers(self) -> list[str]:
        """Data files that no commit of their table ever named."""
        left: list[str] = []
        for table in TABLES:
            root = self.table(table)
            named = {add["path"] for add in self.actions(table, "add")}
            files = {str(p.relative_to(root)) for p in root.rglob("*.parquet") if "_delta_log" not in p.parts}
            left += sorted(f"{table}/{path}" for path in files - named)
        return left

    def actions(self, table: str, kind: str) -> list[dict[str, Any]]:
        """What the commits in a table's log say, without asking anybody who could be wrong about it."""
        commits = sorted((self.table(table) / "_delta_log").glob("*.json"))
        lines = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
        return [line[kind] for line in lines if kind in line]

    def copy(self, what: Path, to: str) -> Path:
        """A copy of a file or folder, beside the project."""
        target = self.folder / to
        if what.is_dir():
            shutil.copytree(what, target)
        else:
            shutil.copy2(what, target)
        return target

    def snapshot(self) -> Mapping[str, bytes]:
        """Every file of the storage that a refused start must leave as it is."""
        return {
            str(path.relative_to(self.storage)): path.read_bytes()
            for path in sorted(self.storage.rglob("*"))
            if path.is_file() and "logs" not in path.parts and not path.name.endswith("-shm")
            if not path.name.startswith("history.db")  # that a run was refused is written down there
        }


def delta_rows(table: Path, version: int | None) -> Rows:
    """The rows of a Delta table, now or at a version."""
    if version is None:
        commits = [int(p.stem) for p in (table / "_delta_log").glob("*.json") if p.stem.isdigit()]
        if not commits:
            return Rows()
        version = max(commits)
    return names_of(arrow_dataset(str(table), version).to_table().to_pylist())


class Torn(AssertionError):
    """Tables at the cut do not hold exactly the rows of the same epochs."""


class WentBack(AssertionError):
    """The cut is older than it was."""


@dataclass
class Eye:
    """A reader of the cut: it must never find it torn, wrong, or older than before."""

    lake: Lake
    seen: int = -1
    looks: int = 0

    def read(self) -> tuple[int, Mapping[str, Rows]]:
        """What there is to see: the epoch, -1 before the first, and every table."""
        try:
            cut = read.cut(self.lake.folder)
        except StateError as error:
            if error.code != "NOTHING_RUN_YET":
                raise
            return -1, {}
        epoch = cut.epochs.get(CHANNEL, -1)
        return epoch, {table: names_of(cut.arrow(table).to_pylist()) for table in (TABLES if epoch >= 0 else ())}

    def look(self) -> int:
        """Read every table at the cut and compare; the epoch that was found."""
        epoch, tables = self.read()
        if epoch < self.seen:
            raise WentBack(f"from epoch {self.seen} to {epoch}")
        self.seen = epoch
        self.looks += 1
        for table, rows in tables.items():
            found = compare(rows, self.lake.model.expected(table, epoch + 1))
            if found.wrong:
                raise Torn(f"epoch {epoch}, {table}: {found}")
        return epoch


@contextlib.contextmanager
def reading(lake: Lake, every: float = 0.02) -> Iterator[Eye]:
    """A reader that looks at the cut again and again, from a thread, while the block runs.

    It rests for so many seconds, or it would take the processor from those that are being tested.
    """
    eye, done = Eye(lake), threading.Event()
    failure: list[BaseException] = []

    def loop() -> None:
        try:
            while not done.wait(every):
                eye.look()
            eye.look()
        except BaseException as error:  # noqa: BLE001 - raised again by whoever started the reader
            failure.append(error)

    thread = threading.Thread(target=loop, name="reader", daemon=True)
    thread.start()
    try:
        yield eye
    finally:
        done.set()
        thread.join()
    if failure:
        raise failure[0]
