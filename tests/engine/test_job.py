"""The job file: the same project by `spark-submit` in one process and on a cluster of two workers."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from anabranch import job, read
from anabranch.engine.profile import PROFILE, profile

_spec = importlib.util.spec_from_file_location("a_cluster", Path(__file__).with_name("test_cluster.py"))
assert _spec is not None
assert _spec.loader is not None
cluster = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = cluster
_spec.loader.exec_module(cluster)

PROJECT = """
name: orders
configuration:
  spark.sql.adaptive.enabled: "false"
  anabranch.test: from the project
"""
FLOWS = """
import importlib.util

from pyspark.sql import functions as F

from anabranch import pipelines as dp

# Beside the job file there are modules of these names, which must not be found.
assert importlib.util.find_spec("sources") is None


@dp.table
def orders():
    settings = ["spark.master", "spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions", "anabranch.test"]
    rows = spark.readStream.schema("id int, amount double").json({landing!r})
    return rows.select("*", *(F.lit(spark.conf.get(key)).alias(key.split(".")[-1]) for key in settings))


@dp.table
def large():
    return spark.readStream.table("orders").where("amount > 50").withColumn("twice", F.col("amount") * 2)
"""
Amounts = Mapping[int, float]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A master with two workers, as other tests have it, at another address."""
    folder = tmp_path_factory.mktemp("job-cluster")
    with ExitStack() as servers:
        start = servers.enter_context
        log = start(cluster.server(folder / "master", "master.Master", "--host", "127.0.0.1", "--port", "0"))
        address = cluster.said(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        workers = [start(cluster.worker(folder / f"worker-{n}", "127.0.0.1", address)) for n in (1, 2)]
        for log in workers:
            cluster.said(log, r"(Successfully registered) with master")
        yield address


def submit(project: Path, master: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = shlex.split(job.submit_command(["--project", str(project), "--master", master, "--json"]))
    place = words.index("--master")
    command = [*words[:place], *options, *words[place:]]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1"}
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=280)


def new_project(folder: Path) -> Path:
    (folder / "transformations").mkdir(parents=True)
    (folder / "landing").mkdir()
    (folder / "anabranch.yml").write_text(PROJECT)
    (folder / "transformations" / "flows.py").write_text(FLOWS.replace("{landing!r}", repr(str(folder / "landing"))))
    return folder


def land(project: Path, name: str, ids: range) -> dict[int, float]:
    rows = {n: n * 1.5 for n in ids}
    text = "".join(json.dumps({"id": n, "amount": amount}) + "\n" for n, amount in rows.items())
    (project / "landing" / f"{name}.json").write_text(text)
    return rows


def check(project: Path, runs: Mapping[str, Amounts], cores: int) -> None:
    """Both tables, at one cut, against what plain Python makes of the rows that came by each master."""
    cut = read.cut(project)
    orders = sorted(cut.arrow("orders").to_pylist(), key=lambda row: row["id"])
    said = {"enabled": "false", "partitions": str(cores), "test": "from the project"}
    rows = [(n, amount, master) for master, amounts in runs.items() for n, amount in amounts.items()]
    assert orders == [{"id": n, "amount": amount, "master": master, **said} for n, amount, master in rows]
    large = sorted((row["id"], row["twice"]) for row in cut.arrow("large").to_pylist())
    assert large == [(n, amount * 2) for n, amount, _ in rows if amount > 50]


def finished(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-5000:]
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return next(record for record in records if record["event"] == "run_finished")


@pytest.mark.spark
def test_on_a_cluster_and_then_in_one_process_with_what_is_new(master: str, tmp_path: Path) -> None:
    project = new_project(tmp_path / "orders")
    old = land(project, "first", range(20_000))  # more than the driver would write itself
    on_loopback = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
    size = ["--total-executor-cores", "2", "--executor-cores", "1", "--executor-memory", "512m"]
    first = finished(submit(project, master, *on_loopback, *size))
    check(project, {master: old}, 2)
    new = land(project, "second", range(20_000, 20_050))
    second = finished(submit(project, "local[2]"))
    check(project, {master: old, "local[2]": new}, 2)
    rows = [len(part) + sum(amount > 50 for amount in part.values()) for part in (old, new)]
    assert [first["rows"], second["rows"]] == rows, "only new files were read"


@pytest.mark.spark
def test_without_the_jars_it_says_what_to_do(tmp_path: Path) -> None:
    project = new_project(tmp_path / "orders")
    words = shlex.split(job.submit_command(["--project", str(project)]))
    place = words.index("--jars")
    done = subprocess.run([*words[:place], *words[place + 2 :]], capture_output=True, text=True, timeout=280)
    assert done.returncode == 2, done.stderr
    said = done.stdout + done.stderr  # spark-submit may put what Python says on stderr among its own output
    assert "DELTA_MISSING" in said
    assert "python -m anabranch.job --print" in " ".join(said.split())


def test_a_python_without_anabranch_is_told_where_to_find_one(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-I", job.__file__, "--project", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "spark.pyspark.python" in done.stderr


def test_the_command_has_the_master_once_and_the_rest_behind_the_file() -> None:
    words = shlex.split(job.submit_command(["--project", "a b", "--master", "spark://m:7077", "--follow"]))
    assert [w for w in words if w.startswith("spark://")] == ["spark://m:7077"]
    assert words[words.index(job.__file__) + 1 :] == ["--project", "a b", "--follow"]
    assert re.search(r"delta-spark[^,]*\.jar", words[words.index("--jars") + 1])


def test_the_profile_fits_where_spark_runs() -> None:
    here = profile({"spark.master": "local[3]"}, own_jvm=True)
    there = profile({"spark.master": "spark://m:7077", "spark.cores.max": "6"}, own_jvm=False)
    unknown = profile({"spark.master": "spark://m:7077"}, own_jvm=False)
    assert (here["spark.sql.shuffle.partitions"], there["spark.sql.shuffle.partitions"]) == ("3", "6")
    assert here["spark.driver.host"] == "127.0.0.1"
    assert there.keys().isdisjoint({"spark.driver.host", "spark.ui.enabled"})
    assert there.keys() - unknown.keys() == {
        "spark.sql.shuffle.partitions",
        "spark.databricks.delta.snapshotPartitions",
    }
    assert all(len(setting.why) > 20 and setting.why.endswith(".") for setting in PROFILE)
