"""Staging on a cluster of two workers, where tasks are tried again, executors die and slow tasks get a copy."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from anabranch.core.epoch import EpochKey, Receipt

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("cluster_job.py")
_spec = importlib.util.spec_from_file_location("cluster_job", JOB)
assert _spec is not None
assert _spec.loader is not None
job = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(job)

KEY: EpochKey = job.KEY
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.task.maxFailures": "1",  # a second attempt can only be a copy
}


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    folder = tmp_path_factory.mktemp("cluster")
    with ExitStack() as servers:
        start = servers.enter_context
        log = start(server(folder / "master", "master.Master", "--host", "127.0.0.1", "--port", "0"))
        address = said(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        # Two names for one machine: Spark does not run the copy of a slow task on the host of the original.
        workers = [start(worker(folder / f"worker-{host}", host, address)) for host in ("127.0.0.1", "localhost")]
        for log in workers:
            said(log, r"(Successfully registered) with master")
        yield address


def worker(folder: Path, host: str, master: str) -> AbstractContextManager[Path]:
    offered = ["--host", host, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
    return server(folder, "worker.Worker", *offered, master)


@contextmanager
def server(folder: Path, name: str, *arguments: str) -> Iterator[Path]:
    """One of Spark's own servers; the file that it logs to."""
    folder.mkdir()
    log = folder / "log"
    home = importlib.util.find_spec("pyspark")
    assert home is not None
    assert home.origin is not None
    program = Path(home.origin).parent / "bin" / "spark-class"
    command = [str(program), f"org.apache.spark.deploy.{name}", "--webui-port", "0", *arguments]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder, env=environment)
    try:
        yield log
    finally:
        family = [process, *psutil.Process(process.pid).children(recursive=True)]
        for one in family:
            one.kill()
        process.wait(30)


def said(log: Path, pattern: str) -> str:
    """What a server said, waited for."""
    end = time.monotonic() + 200
    while not (found := re.search(pattern, log.read_text())):
        assert time.monotonic() < end, f"not said in time: {pattern}\n{log.read_text()}"
        time.sleep(0.05)
    return found[1]


@dataclass(frozen=True)
class Staged:
    """What a job left behind once all its processes are gone."""

    lake: Path
    receipts: Mapping[str, Receipt]
    begun: Mapping[str, Mapping[str, set[str]]]  # by attempt that lost, and output: the files it had begun
    finished: set[str]  # PARTITION-ATTEMPT of those whose flow came to its end

    def files(self, output: str) -> set[str]:
        return {path.name for path in (self.lake / output).glob("*.parquet")}


def stage(master: str, tmp_path: Path, troubles: list[str], settings: Mapping[str, str]) -> Staged:
    lake, marks = tmp_path / "lake", tmp_path / "marks"
    lake.mkdir()
    marks.mkdir()
    said = {"master": master, "troubles": troubles, "lake": str(lake), "marks": str(marks), "settings": settings}
    done = subprocess.run([sys.executable, str(JOB), json.dumps(said)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr + (marks / "spark.log").read_text()[-5000:]
    receipts = {name: Receipt.from_json(text) for name, text in json.loads(done.stdout).items()}
    begun: dict[str, dict[str, set[str]]] = {}
    for path in marks.glob("trouble-*"):
        told: dict[str, Any] = json.loads(path.read_text())
        await_end(told["processes"])
        files = [Path(file) for file in told["begun"]]
        attempt = begun[path.name.removeprefix("trouble-")] = {output: set() for output in job.OUTPUTS}
        for file in files:
            attempt[file.parent.name].add(file.name)
    return Staged(lake, receipts, begun, {path.name for path in marks.glob("[0-9]-[0-9]")})


def await_end(processes: list[int]) -> None:
    there = [psutil.Process(pid) for pid in processes if psutil.pid_exists(pid)]
    _, alive = psutil.wait_procs(there, timeout=120)
    assert not alive, "the cluster did not end the job's processes"


def check(staged: Staged) -> dict[str, set[str]]:
    """Every row once, and only the winner's files known; the leftovers of each output, which are then removed."""
    left: dict[str, set[str]] = {}
    for output, step in (("every", 1), ("odd", 2)):
        sink, receipt = job.sink_at(staged.lake, output), staged.receipts[output]
        known = {f.path for f in receipt.files}
        for begun in staged.begun.values():
            assert begun[output], "an attempt that lost had begun a file"
            assert not known & begun[output], "an attempt that lost is in no receipt"
        assert sink.damaged(receipt) is None
        before = sink.leftovers(frozenset(known), job.TOKEN + 1)
        sink.apply(KEY, receipt)
        ids = DeltaTable(sink.location).to_pyarrow_table()["id"]
        expected = pa.array(range(step - 1, job.ROWS, step))
        assert ids.combine_chunks().sort().equals(expected)
        leftovers = sink.leftovers(frozenset(), job.TOKEN + 1)
        assert leftovers == before
        left[output] = {path for path, _ in leftovers}
        assert left[output] == staged.files(output) - known
        sink.discard(left[output])
        assert staged.files(output) == known
        again = DeltaTable(sink.location).to_pyarrow_table()["id"]
        assert again.combine_chunks().sort().equals(expected), "and no row is gone with them"
    return left


def test_attempts_that_raise_or_die_are_known_to_no_receipt(master: str, tmp_path: Path) -> None:
    staged = stage(master, tmp_path, ["raises", "dies"], {})
    left = check(staged)
    assert staged.begun.keys() == {"0-0", "0-1"}
    assert staged.finished == {"0-2", "1-0"}
    for output in job.OUTPUTS:
        assert left[output] >= staged.begun["0-1"][output], "an executor that died could not tidy up"


def test_the_copy_of_a_slow_task_wins(master: str, tmp_path: Path) -> None:
    staged = stage(master, tmp_path, ["slow"], SPECULATION)
    check(staged)
    assert staged.begun.keys() == {"0-0"}
    assert staged.finished >= {"0-1", "1-0"}
