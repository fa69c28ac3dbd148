"""Native flows beside flows that keep state: a batch is computed once, whatever is left to Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.engine.storage import Storage
from native.native_project import land, ran_both_ways

pytestmark = pytest.mark.spark

CODE = """
@dp.temporary_view
def events():
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(IN)
    parsed = lines.select(F.from_json("value", "id BIGINT, name STRING, at TIMESTAMP, text STRING").alias("e"))
    return parsed.select("e.*")

@dp.table
def everything():
    return spark.readStream.table("events").select("id", "name", "at", F.length("text").alias("long"))

@dp.table
def even():
    return spark.readStream.table("events").where("id % 2 = 0").select("id", F.upper("name").alias("name"))

@dp.table
def first_seen():
    return spark.readStream.table("events").withWatermark("at", "9 days").dropDuplicatesWithinWatermark(["name"])

@dp.table
def hours():
    timed = spark.readStream.table("events").withWatermark("at", "1 hour")
    return timed.groupBy(F.window("at", "1 hour")).count().select("window.start", "count")
"""
TABLES = ("everything", "even", "first_seen", "hours")


def _lines(hour: int, text: str = "") -> bytes:
    documents = [
        {"id": i, "name": f"n{(i + hour) % 9}", "at": f"2026-01-01T{hour:02d}:{i:02d}:00Z", "text": text or "x" * i}
        for i in range(40)
    ]
    return "\n".join(map(json.dumps, documents)).encode() + b"\n"


def _twice(lines: bytes) -> bytes:
    """With the first field twice, which is left to Spark."""
    return lines.replace(b'{"id": ', b'{"id": 77, "id": ')


def test_native_beside_flows_that_keep_state(tmp_path: Path, spark: Any) -> None:
    files = {f"{hour}.json": _lines(hour) + _twice(_lines(hour)[:1000].rpartition(b"\n")[0]) for hour in range(2)}
    # More than a task hands back: it goes into a file.
    files["2.json"] = _lines(2) + _twice(_lines(3, "y" * 1_000_000))
    land(tmp_path / "in", files)
    by_spark, ours = ran_both_ways(tmp_path, spark, CODE, tmp_path / "in")
    how = ours.how()
    assert {name: how[name].partition(":")[0] for name in TABLES} == {
        "everything": "native",
        "even": "native",
        "first_seen": "branch",
        "hours": "branch",
    }
    for table in TABLES:
        assert ours.rows(table) == by_spark.rows(table), table
    assert sum(ours.rows("everything").values()) > 160
    (channel,) = {event.channel for event in ours.published}
    records = ours.records(channel)
    assert records["spark"] > 40
    assert records["native"] == 40 * 3
    assert not list(Storage(tmp_path / "true").root.rglob("left_rows/*")), "what was put aside is gone"
