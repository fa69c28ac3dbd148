"""The real command with the real Spark: killed at every point, paused, raced, stopped and robbed of its checkpoint."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable

import psutil
import pytest
from crash_children import Child, race, wait_until
from crash_harness import Lake, reading

from anabranch.core.crash import POINTS

pytestmark = [pytest.mark.crash, pytest.mark.spark]

#: Every point, in an order in which each start finds what the one before it left: in an epoch, or in recovery.
CHAIN = (
    "read",
    "staging",  # a worker dies, not the command
    "discarding",
    "staged",
    "deciding",
    "applying",
    "recovering",
    "committed",
    "publishing",
    "published",
    "decided",
    "recovered",
    "applied",
)


@pytest.mark.timeout(900)  # seventeen starts of Spark
def test_killed_at_every_point_one_after_the_other(lake: Lake) -> None:
    """Each start recovers from the crash before it and runs into its own; then the checkpoint loses its ends."""
    assert sorted(CHAIN) == sorted(POINTS)
    with reading(lake, every=0.25):
        for point in CHAIN:
            lake.land()
            ended = lake.run_spark(crash=point)
            assert ended.killed or (point == "staging" and ended.code == 1), f"{point}: {ended}"
        lake.land()
        _finish(lake)
    _checkpoint_without_its_end(lake)


def _checkpoint_without_its_end(lake: Lake) -> None:
    last = lake.inputs - 1
    older = lake.copy(lake.checkpoint, "older")
    (lake.checkpoint / "commits" / str(last)).unlink()  # Spark hands in the last batch again
    lake.land()
    _finish(lake)

    whole = lake.copy(lake.checkpoint, "whole")
    for damage in ("offsets", "older"):
        if damage == "offsets":
            (lake.checkpoint / "offsets" / str(last + 1)).unlink()
        else:
            shutil.rmtree(lake.checkpoint)
            shutil.copytree(older, lake.checkpoint)
        lake.run_spark().refused("CHECKPOINT_OLDER")
        lake.check_finished()
        shutil.rmtree(lake.checkpoint)
        shutil.copytree(whole, lake.checkpoint)


def test_a_sleeper_that_was_replaced(new_lake: Callable[..., Lake]) -> None:
    """Paused with everything staged until its lease has run out; when it wakes, another has done the work."""
    lake = new_lake(lease=2.0)
    with reading(lake, every=0.25):
        sleeper = lake.paused("staged", spark=True)
        _, expires = lake.lease_of()
        wait_until(lambda: expires < time.time())
        _finish(lake)
        sleeper.signal(signal.SIGCONT)
        ended = sleeper.wait()
        ended.refused("LOCK_LOST")
        assert ended.code == 6
    lake.check_finished()


def test_two_starts_at_once(lake: Lake) -> None:
    lake.land(2)
    winner, loser = race(lambda: lake.start_spark(crash="recovered:stop"))
    ended = loser.wait()
    ended.refused("LOCK_HELD")
    assert ended.code == 6
    winner.signal(signal.SIGCONT)
    assert winner.wait().code == 0
    lake.check_finished()


def test_following_until_a_signal_comes(lake: Lake) -> None:
    """SIGTERM in the middle of an epoch, which is finished; then Ctrl-C, which reaches Spark's processes too."""
    lake.land(5)
    with reading(lake, every=0.25):
        child = lake.start_spark("run", "--follow", crash="decided:stop@2")
        child.until_stopped()
        assert lake.published() == 0
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)
        ended = child.wait()
        assert ended.code == 0, ended
        assert lake.published() >= 1
        assert all(record.state == "published" for record in lake.epochs().values())

        child = lake.start_spark("run", "--follow")
        child.until(lambda: lake.published() == lake.inputs - 1)
        os.killpg(child.pid, signal.SIGINT)
        ended = child.wait()
        assert ended.code == 130, ended
        assert ended.error["code"] == "INTERRUPTED"
    lake.check_finished()


FLAKY = '''"""A flow whose first attempt at a task always fails."""

from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import pipelines as dp

spark = SparkSession.active()
LANDING = Path(__file__).parent.parent / "landing"


@F.udf("bigint")
def measured(ms):
    if TaskContext.get().attemptNumber() == 0:
        raise RuntimeError("the first attempt fails")
    return ms


@dp.temporary_view
def events() -> DataFrame:
    schema = "id STRING, ms BIGINT, codes ARRAY<STRING>"
    raw = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(LANDING))
    return raw.withColumn("ms", measured("ms"))


@dp.table
def everything() -> DataFrame:
    return spark.readStream.table("events").select("id", "ms")


@dp.table(partition_cols=["code"])
def errors() -> DataFrame:
    return spark.readStream.table("events").select("id", F.explode("codes").alias("code"))


@dp.table
def slow() -> DataFrame:
    return spark.readStream.table("events").where("ms > 200").select("id", "ms")
'''


def test_a_task_is_tried_again(new_lake: Callable[..., Lake]) -> None:
    """One attempt raises, the next one's worker is killed over a half written file, the third one counts."""
    lake = new_lake(flows=FLAKY, configuration="  spark.master: local[2,4]\n")
    lake.land(events=120_000)  # more than the driver would write itself
    child = lake.start_spark(crash="staging:stop")
    worker = _stopped_worker(child)
    assert lake.leftovers()
    worker.kill()
    while not child.ended():  # however many tasks there are: each new worker pauses once
        wait_until(lambda: child.ended() or bool(_stopped_workers(child)))
        for other in _stopped_workers(child):
            with contextlib.suppress(psutil.NoSuchProcess):  # the one that was killed, on its way out
                other.resume()
    ended = child.wait()
    assert ended.code == 0, ended
    assert lake.eye.look() == 0
    orphans = lake.leftovers()
    assert orphans, "the killed worker's file is still there"
    assert lake.start("recover").wait().code == 0
    lake.check_finished()


def _finish(lake: Lake) -> None:
    ended = lake.run_spark()
    assert ended.code == 0, ended
    lake.check_finished()


def _stopped_worker(child: Child) -> psutil.Process:
    child.until(lambda: bool(_stopped_workers(child)))
    return _stopped_workers(child)[0]


def _stopped_workers(child: Child) -> list[psutil.Process]:
    """Python workers of the child's Spark that have paused themselves."""
    try:
        family = psutil.Process(child.pid).children(recursive=True)
        return [process for process in family if process.status() == psutil.STATUS_STOPPED]
    except psutil.NoSuchProcess:
        return []
