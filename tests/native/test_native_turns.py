"""Epochs that leave records to Spark, one after the other: what it planned for one it computes of the next."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch.engine import native_turns
from anabranch.engine.catalyst_kept import KeptPlan
from native.native_project import land, ran_both_ways

pytestmark = pytest.mark.spark

LEAVING = """
@dp.temporary_view
def events():
    return by_file(IN).text(IN).select(F.from_json("value", FIELDS).alias("e")).select("e.*")

@dp.table
def whole():
    return spark.readStream.table("events")

@dp.table
@dp.expect_or_drop("has_id", "id IS NOT NULL")
def items():
    return spark.readStream.table("events").select("id", "at", F.explode_outer("items").alias("x")).select("*", "x.sku")

@dp.table
def shares():
    rows = spark.readStream.table("events").where("n > 2")
    return rows.select("id", F.expr("100 / n AS share"), F.upper("name").alias("u"))
"""


@pytest.mark.parametrize(("turn", "put_over"), [("tried each time", 4), ("tried, then Spark's", 5), ("Spark's", 6)])
def test_a_plan_that_is_kept_gives_each_epoch_its_own_rows(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, turn: str, put_over: int
) -> None:
    """Each epoch leaves other records, or all of them, to Spark, which plans what it does once."""
    odd = ['{"id":%d,"at":"2026-1-2","n":%d}', '{"id":%d,"n":%d,"name":"x","id":3', '{"id":%d,"d":1e400,"n":%d}']
    files = {}
    for number in range(7):
        plain = [{"id": number * 100 + i, "n": i, "name": f"n{i}", "items": [{"sku": "s", "qty": i}]} for i in range(5)]
        lines = [
            *map(json.dumps, plain),
            *(one % (number * 100 + 50 + i, 7) for i, one in enumerate(odd[: number % 4])),
        ]
        files[f"{number}.json"] = "\n".join(lines).encode()
    land(tmp_path / "in", files)
    over, times = KeptPlan.over, []
    monkeypatch.setattr(KeptPlan, "over", lambda self, rows: times.append(1) or over(self, rows))
    if turn == "Spark's":
        monkeypatch.setattr(native_turns.Turns, "is_sparks", lambda _: True)
    if turn == "tried each time":
        monkeypatch.setattr(native_turns, "_MOST_LOST", 1e9)
    by_spark, natively = ran_both_ways(tmp_path, spark, LEAVING, tmp_path / "in")
    assert set(natively.how().values()) == {"native"}
    for table in ("whole", "items", "shares"):
        assert natively.rows(table) == by_spark.rows(table), table
    assert sum(natively.rows("whole").values()) == 7 * 5 + 0 + 1 + 2 + 3 + 0 + 1 + 2
    assert len(times) == put_over, "all but the first"
