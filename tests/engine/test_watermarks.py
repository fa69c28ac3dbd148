"""Flows that share one watermark are told so, in the plan and at the start of a run; others are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from anabranch.cli.main import main
from anabranch.core.events_data import WatermarkShared

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

HEAD = """
@dp.temporary_view
def events():
    return spark.readStream.schema("id INT, at TIMESTAMP, sent TIMESTAMP").json(LANDING)

def per_window(column, delay):
    events = spark.readStream.table("events").withWatermark(column, delay)
    return events.groupBy(F.window(column, "5 minutes")).count().select("window.start", "count")

@dp.table
def quick():
    return per_window("at", "10 minutes")

@dp.table
def row_by_row():
    return spark.readStream.table("events").withWatermark("at", "1 day")
"""
ALIKE = """
@dp.table
def fresh():
    return spark.readStream.table("events").withWatermark("at", "10 minutes").dropDuplicatesWithinWatermark(["id"])
"""
SLOW = """
@dp.table
def slow():
    return per_window("at", "2 hours")
"""
SENT = """
@dp.table
def by_sending():
    return per_window("sent", "10 minutes")
"""
OF_DELAYS = (
    "flows quick (10 minutes) and slow (2 hours) share one watermark, the one with the longest delay: rows of quick "
    "come out later than alone; put slow in a pipeline of its own to avoid it"
)
OF_CLOCKS = (
    "flows quick (at) and by_sending (sent) take the time from different columns or sources and share one watermark, "
    "the one that is furthest behind: rows of quick and by_sending wait for it; put the flows in pipelines of their "
    "own to avoid it"
)


@pytest.mark.parametrize(
    ("code", "notes"),
    [
        pytest.param(ALIKE, [], id="alike"),
        pytest.param(SLOW, [OF_DELAYS], id="longer delay"),
        pytest.param(SENT, [OF_CLOCKS], id="another column"),
    ],
)
def test_it_is_said(made: Made, code: str, notes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    made.write(HEAD + code)
    midnight, one_o_clock = "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"
    made.feed([{"id": 1, "at": midnight, "sent": midnight}, {"id": 2, "at": one_o_clock, "sent": midnight}])
    assert main(["--project", str(made.root), "plan"]) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if line.startswith("note")] == [f"note: {note}" for note in notes]
    assert main(["--project", str(made.root), "plan", "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    said = [r for r in records if r["action"] == "note"]
    assert said == [{"channel": "events", "action": "note", "text": note} for note in notes]
    made.run()
    assert [e for e in made.events if isinstance(e, WatermarkShared)] == [WatermarkShared("events", n) for n in notes]
    # And it is so: at one o'clock the first window is final, unless another flow waits.
    assert len(made.rows("quick")) == (0 if notes else 1)
