"""Columns observed by a real run: what its workers saw, put together, is what a job finds in the tables afterwards."""

from __future__ import annotations

import json
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from anabranch import read
from anabranch.core.events import Event
from anabranch.core.events_data import ProfileFailed
from anabranch.core.profile import TableProfile
from anabranch.engine import epoch
from anabranch.engine.observe_offline import Asked, profile_table
from anabranch.engine.run import run
from anabranch.load.project import read_project
from anabranch.store.history import History
from anabranch.store.profiles import profiles_of

pytestmark = pytest.mark.spark

PIPELINE = """
from anabranch import pipelines as dp

@dp.table(observe=True)
@dp.expect_or_quarantine("positive", "amount > 0")
def orders():
    columns = "id BIGINT, amount DECIMAL(9,2), at TIMESTAMP, tags ARRAY<STRING>, who STRUCT<name STRING>"
    rows = spark.readStream.schema(columns)
    return rows.option("maxFilesPerTrigger", 2).json("{landing}")

@dp.table(observe=["amount"])
def large():
    return spark.readStream.table("orders").where("amount > 50")

@dp.materialized_view(observe=True)
def totals():
    return spark.read.table("orders").groupBy("who.name").count()
"""


def test_what_workers_saw_is_what_a_job_finds(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "SMALL_BYTES", -1)  # by the workers
    landing = tmp_path / "landing"
    landing.mkdir()
    for number in range(4):
        rows = [_order(number * 100 + i) for i in range(100)]
        (landing / f"{number}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "shop.py").write_text(PIPELINE.replace("{landing}", str(landing)))
    (tmp_path / "anabranch.yml").write_text("name: shop\nstorage: lake\n")
    heard: list[Event] = []
    run(read_project(tmp_path), once=True, listener=heard.append)
    assert not [event for event in heard if isinstance(event, ProfileFailed)]

    history, cut = History.of(tmp_path / "lake"), read.cut(tmp_path)
    for table, epochs in (("orders", 2), ("large", 2), ("totals", 1)):
        seen = profiles_of(history, table, origin="epoch")
        assert len(seen) == epochs
        total = reduce(TableProfile.__add__, (one.profile for one in seen))
        found = profile_table(tmp_path, table, Asked(columns=tuple(total.columns) if table == "large" else ()), print)
        assert found is not None
        assert total == found.profile
        assert total.rows == cut.arrow(table).num_rows
    orders = reduce(TableProfile.__add__, (one.profile for one in profiles_of(history, "orders", origin="epoch")))
    assert orders.columns["amount"].low == pc.min(cut.arrow("orders")["amount"]).as_py()
    assert set(orders.columns) == {"id", "amount", "at", "tags", "tags[]", "who", "who.name"}


def _order(number: int) -> dict[str, Any]:
    return {
        "id": None if number % 7 == 0 else number,
        "amount": number % 100 - 5,
        "at": f"2024-01-{1 + number % 28:02}T00:00:00Z",
        "tags": ["a", None][: number % 3],
        "who": {"name": f"n{number % 5}"} if number % 2 else None,
    }
