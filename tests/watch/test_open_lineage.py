"""OpenLineage: which events a run tells, and what stands in them.

The schemas of the specification are not part of this repository; `conforms` asks by hand for what they require.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from watched_lake import Lake, conforms

from anabranch.core.events import ChannelFailed, EpochPublished, Event, RunFinished, RunStarted
from anabranch.core.hidden import keep_hidden
from anabranch.core.places import ChannelParts, Judged, Place, Written
from anabranch.core.quality import FlowQuality
from anabranch.errors import Interrupted, SinkError
from anabranch.watch.attached import attached
from anabranch.watch.open_lineage import EpochFinder, OpenLineage


class Kept:
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.closed = 0

    def send(self, document: Mapping[str, Any]) -> None:
        self.events.append(json.loads(json.dumps(document)))

    def close(self, patience: float) -> None:
        self.closed += 1

    def lost(self) -> int:
        return 0


PARTS = (
    ChannelParts(
        "requests",
        (Place("kafka://broker:9092", "requests"), Place("file", "/in/users")),
        (
            Written("orders", "delta", Place("file", "/lake/tables/orders")),
            Written("topic", "kafka", Place("kafka://broker:9092", "orders")),
        ),
        (Judged("orders", "has_id", "drop"), Judged("orders", "one", "fail")),
    ),
    ChannelParts("totals", (Place("file", "/lake/tables/orders"),), (Written("totals", "delta", Place("file", "/t")),)),
)
STARTED = RunStarted("shop", ("requests", "totals"), PARTS)
QUALITY = (FlowQuality("orders", "web", 12, {"has_id": 2, "one": 0}, dropped=2, breaking=2),)
PUBLISHED = EpochPublished("requests", 1, 0, {"orders": 9, "topic": 1}, {"stage": 0.2}, 0.01, QUALITY)


def told(lake: Lake, *events: Event, error: BaseException | None = None, **more: Any) -> Kept:
    """What a run with these events tells."""
    kept = Kept()
    watcher = OpenLineage("shop", "prod", kept, EpochFinder(lake.project), **more)
    watcher.begin(1000.0)
    for at, event in enumerate(events, 1001):
        watcher.take(float(at), event)
    watcher.end(2000.0, error, 1.0)
    for event in kept.events:
        conforms(event)
    assert kept.closed == 1
    return kept


def states(kept: Kept) -> list[tuple[str, str]]:
    return [(e["eventType"], e["job"]["name"]) for e in kept.events]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_a_run_from_its_start_to_its_end(lake: Lake) -> None:
    lake.publish("requests", {"orders": 9, "topic": 1})
    kept = told(lake, STARTED, PUBLISHED, RunFinished("shop", 1, 10, 1.0))
    assert states(kept) == [
        ("START", "shop"),
        ("START", "shop.requests"),
        ("START", "shop.totals"),
        ("RUNNING", "shop.requests"),
        ("COMPLETE", "shop.requests"),
        ("COMPLETE", "shop.totals"),
        ("COMPLETE", "shop"),
    ]
    assert {e["job"]["namespace"] for e in kept.events} == {"prod"}
    runs = {e["job"]["name"]: e["run"]["runId"] for e in kept.events}
    assert len({e["run"]["runId"] for e in kept.events}) == 3
    for event in kept.events:
        assert event["run"]["runId"] == runs[event["job"]["name"]]
        parent = event["run"]["facets"].get("parent")
        assert (parent and parent["run"]["runId"]) == (runs["shop"] if event["job"]["name"] != "shop" else None)
    first = kept.events[1]
    assert [(d["namespace"], d["name"]) for d in first["inputs"]] == [
        ("kafka://broker:9092", "requests"),
        ("file", "/in/users"),
    ]
    assert [(d["namespace"], d["name"]) for d in first["outputs"]] == [
        ("file", "/lake/tables/orders"),
        ("kafka://broker:9092", "orders"),
    ]
    assert kept.events[0]["eventTime"] == "1970-01-01T00:16:40.000+00:00"


def test_an_epoch_tells_rows_versions_schemas_and_what_rules_found(lake: Lake) -> None:
    lake.publish("requests", {"orders": 9, "topic": 1}, quality=QUALITY)
    kept = told(lake, STARTED, PUBLISHED)
    running = next(e for e in kept.events if e["eventType"] == "RUNNING")
    epoch = running["run"]["facets"]["anabranch_epoch"]
    assert (epoch["channel"], epoch["generation"], epoch["epoch"]) == ("requests", 1, 0)
    orders, topic = running["outputs"]
    written = orders["outputFacets"]["outputStatistics"]
    assert (written["rowCount"], written["size"], written["fileCount"]) == (9, 90, 1)
    facets = orders["facets"]
    assert facets["version"]["datasetVersion"] == "1"
    assert facets["schema"]["fields"] == [
        {"name": "id", "type": "long"},
        {"name": "at", "type": "struct<x:double>", "fields": [{"name": "x", "type": "double"}]},
    ]
    metrics = facets["dataQualityMetrics"]
    assert (metrics["rowCount"], metrics["columnMetrics"]) == (9, {"id": {"nullCount": 2, "min": 1, "max": 9}})
    assert facets["dataQualityAssertions"]["assertions"] == [
        {
            "assertion": "expectation",
            "name": "has_id",
            "success": False,
            "severity": "warn",
            "expected": "0",
            "actual": "2",
            "params": {"rows": 12, "action": "drop"},
        },
        {
            "assertion": "expectation",
            "name": "one",
            "success": True,
            "severity": "error",
            "expected": "0",
            "actual": "0",
            "params": {"rows": 12, "action": "fail"},
        },
    ]
    assert "dataQualityAssertions" not in topic["facets"]
    last = next(e for e in kept.events if e["eventType"] == "COMPLETE")["outputs"][0]["facets"]
    assert {*last} == {"schema", "version"}  # what stays true after the epoch


def test_an_epoch_that_the_ledger_does_not_know_is_told_all_the_same(lake: Lake) -> None:
    kept = told(lake, STARTED, PUBLISHED)
    running = next(e for e in kept.events if e["eventType"] == "RUNNING")
    assert running["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 9
    assert "version" not in running["outputs"][0]["facets"]


def test_an_epoch_that_is_done_before_the_run_says_that_it_began(lake: Lake) -> None:
    kept = told(lake, PUBLISHED, STARTED)
    assert states(kept)[1:4] == [("START", "shop.requests"), ("START", "shop.totals"), ("RUNNING", "shop.requests")]
    assert kept.events[3]["eventTime"].startswith("1970-01-01T00:16:41")


def test_a_channel_that_fails_does_not_fail_the_others(lake: Lake) -> None:
    keep_hidden("pw-31415")
    failed = ChannelFailed("requests", "SINK_DOWN", "no answer for pw-31415")
    kept = told(lake, STARTED, failed, error=SinkError("SINK_DOWN", "no answer", hint="wait"))
    assert states(kept)[-3:] == [("FAIL", "shop.requests"), ("COMPLETE", "shop.totals"), ("FAIL", "shop")]
    message = kept.events[-3]["run"]["facets"]["errorMessage"]
    assert (message["message"], message["programmingLanguage"]) == ("no answer for *** (SINK_DOWN)", "PYTHON")


def test_a_channel_that_came_back_is_complete(lake: Lake) -> None:
    kept = told(lake, STARTED, ChannelFailed("requests", "A", "b"), PUBLISHED)
    assert states(kept)[-3:] == [("COMPLETE", "shop.requests"), ("COMPLETE", "shop.totals"), ("COMPLETE", "shop")]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (KeyboardInterrupt(), "ABORT"),
        (Interrupted("INTERRUPTED", "stopped", hint="run again"), "ABORT"),
        (ValueError("broken"), "FAIL"),
    ],
)
def test_how_a_run_ends(lake: Lake, error: BaseException, state: str) -> None:
    kept = told(lake, STARTED, error=error)
    assert states(kept)[-3:] == [(state, "shop.requests"), (state, "shop.totals"), (state, "shop")]
    said = kept.events[-1]["run"]["facets"].get("errorMessage", {}).get("message")
    assert said == ("ValueError: broken" if state == "FAIL" else None)


def test_a_run_that_fails_before_it_begins(lake: Lake) -> None:
    kept = told(lake, error=ValueError("no Java"))
    assert states(kept) == [("START", "shop"), ("FAIL", "shop")]


def test_into_a_file_beside_the_project(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "open_lineage: {file: out/lineage.jsonl, namespace: prod}\n")
    lake.publish("requests", {"orders": 9, "topic": 1})
    heard: list[Event] = []
    for _ in range(2):
        with attached(lake.project, heard.append) as listen:
            listen(STARTED)
            listen(PUBLISHED)
    assert heard == [STARTED, PUBLISHED] * 2
    lines = (tmp_path / "out" / "lineage.jsonl").read_text().splitlines()
    assert len(lines) == 14
    for line in lines:
        conforms(json.loads(line))
    assert len({json.loads(line)["run"]["runId"] for line in lines}) == 6
