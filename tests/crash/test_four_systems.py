"""One epoch over four systems: a Delta table, an Iceberg table, a Kafka topic and a Postgres table, real ones.

Killed at every named point, those passed once per sink for each of the four: after the next start all
of them hold what the model says, each row once, and stand at one epoch.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from crash_harness import Lake
from crash_model import Rows

from anabranch import read
from anabranch.core.crash import POINTS

pytestmark = [pytest.mark.crash, pytest.mark.postgres, pytest.mark.timeout(900)]  # sixty starts in one

FLOWS = '''"""Every event, its errors, the slow ones, and a copy, each to another system."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import pipelines as dp

spark = SparkSession.active()
LANDING = Path(__file__).parent.parent / "landing"


@dp.temporary_view
def events() -> DataFrame:
    schema = "id STRING, ms BIGINT, codes ARRAY<STRING>"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(LANDING))


@dp.table
def everything() -> DataFrame:
    return spark.readStream.table("events").select("id", "ms")


@dp.table(format="iceberg", partition_cols=["code"])
def errors() -> DataFrame:
    return spark.readStream.table("events").select("id", F.explode("codes").alias("code"))


dp.create_sink("slow", "kafka", KAFKA)


@dp.append_flow(target="slow")
def slow_ones() -> DataFrame:
    return spark.readStream.table("events").where("ms > 200").select("id", "ms")


dp.create_sink("copies", "postgres", POSTGRES)


@dp.append_flow(target="copies")
def copied() -> DataFrame:
    return spark.readStream.table("events").select("id", "ms")
'''

SINKS = ("everything", "errors", "slow", "copies")
ONCE_PER_SINK = ("applying", "committed", "applied")

#: What must have happened before, for a start to pass the point at all.
BEFORE = {"recovering": "decided", "discarding": "staged"}


@dataclass
class FourSystems:
    """The project, and what a plain reader of each system sees."""

    lake: Lake
    bootstrap: str
    topic: str
    postgres: str

    def rows(self) -> dict[str, Rows]:
        from kafka_reader import messages

        cut = read.cut(self.lake.folder)
        errors = cut.arrow("errors").to_pylist()
        with psycopg.connect(self.postgres) as database:
            copies = database.execute("SELECT id FROM copies").fetchall()
        sent = [json.loads(message.value())["id"] for message in messages(self.bootstrap, self.topic)]
        return {
            "everything": Counter(cut.arrow("everything")["id"].to_pylist()),
            "errors": Counter(f"{row['id']}/{row['code']}" for row in errors),
            "slow": Counter(sent),
            "copies": Counter(id_ for (id_,) in copies),
        }

    def check(self) -> None:
        """All four agree with the model, and none waits for anything."""
        model = self.lake.model
        expected = {name: model.expected(name) for name in ("everything", "errors", "slow")}
        assert self.rows() == expected | {"copies": expected["everything"]}
        record = self.lake.epochs()[self.lake.inputs - 1]
        assert record.state == "published"
        assert set(record.applied) == set(SINKS)
        assert not list((self.lake.storage / "staged").rglob("*.parquet")), "rows that nobody waits for"


@pytest.fixture
def four(new_lake: Callable[..., Lake], kafka: Any, postgres_url: str) -> FourSystems:
    topic = f"slow-{uuid.uuid4().hex[:8]}"
    to_kafka = {"topic": topic, "kafka.bootstrap.servers": kafka.bootstrap, "create": "2", "key": "id"}
    flows = FLOWS.replace("KAFKA", repr(to_kafka)).replace("POSTGRES", repr({"url": postgres_url}))
    return FourSystems(new_lake(flows=flows), kafka.bootstrap, topic, postgres_url)


def _points() -> list[str]:
    """Every point; those that are passed once per sink, for each of the four."""
    return [
        f"{point}({sink})" if sink else point
        for point in POINTS
        for sink in (SINKS if point in ONCE_PER_SINK else ("",))
    ]


def test_killed_at_every_point(four: FourSystems) -> None:
    lake = four.lake
    lake.land()
    assert lake.start().wait().code == 0
    four.check()
    for point in _points():
        lake.land()
        if point in BEFORE:
            assert lake.start(crash=BEFORE[point]).wait().killed
        assert lake.start(crash=point).wait().killed, f"{point} was not passed"
        ended = lake.start().wait()
        assert ended.code == 0, f"after a kill at {point}: {ended}"
        four.check()


def test_finished_without_a_run(four: FourSystems) -> None:
    """`recover` needs no Spark, and finds how to reach each system in the project."""
    lake = four.lake
    lake.land()
    assert lake.start(crash="decided").wait().killed
    ended = lake.start("recover").wait()
    assert ended.code == 0, ended
    four.check()


def test_one_system_is_down(four: FourSystems, kafka: Any) -> None:
    """Three have taken the epoch and the broker is gone: readers of the cut see none of it, and all of it later."""
    lake = four.lake
    lake.land()
    assert lake.start().wait().code == 0
    lake.land()
    kafka.stop()
    try:
        ended = lake.start().wait()
    finally:
        kafka.start()
    assert ended.code != 0
    assert ended.error["retryable"]
    assert lake.published() == 0
    assert lake.start().wait().code == 0
    four.check()
