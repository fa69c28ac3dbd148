"""One real run that is watched in every way at once."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from otlp_receiver import Collector
from prometheus_client.parser import text_string_to_metric_families
from ui_served import Reader, client
from watched_lake import conforms

from anabranch.core.events import Event, NotSent
from anabranch.load.project import read_project
from anabranch.store.history import History
from anabranch.watch.metrics import Meter

pytestmark = pytest.mark.spark

CODE = """
from anabranch import pipelines as dp

@dp.table
@dp.expect_or_drop("cheap", "price < 8")
@dp.expect_or_quarantine("has_name", "name IS NOT NULL")
def orders():
    return spark.readStream.schema("id INT, name STRING, price DOUBLE").json({landing!r})

@dp.materialized_view
def totals():
    return spark.read.table("orders").groupBy("name").count()
"""


def test_one_run_tells_metrics_lineage_and_spans(tmp_path: Path, spark: Any) -> None:
    from anabranch.engine.run import run

    landing, heard = tmp_path / "landing", list[Event]()
    landing.mkdir()
    rows = [{"id": n, "name": f"n{n % 3}" if n % 5 else None, "price": float(n % 10)} for n in range(40)]
    (landing / "a.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pipeline.py").write_text(CODE.format(landing=str(landing)))
    with Collector() as collector:
        spec = {"name": "shop", "open_lineage": {"file": "l.jsonl"}, "spans": {"endpoint": collector.url}}
        (tmp_path / "anabranch.yml").write_text(json.dumps(spec))
        project = read_project(tmp_path)
        summary = run(project, once=True, listener=heard.append)
        spans = collector.spans
    assert not [e for e in heard if isinstance(e, NotSent)]
    kept = [row for row in rows if row["name"] and row["price"] < 8]
    aside = [row for row in rows if not row["name"]]

    documents = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    for document in documents:
        conforms(document)
    by_job: dict[str, list[Any]] = {}
    for document in documents:
        by_job.setdefault(document["job"]["name"], []).append(document)
    assert {name: [d["eventType"] for d in found] for name, found in by_job.items()} == {
        "shop": ["START", "COMPLETE"],
        "shop.orders": ["START", "RUNNING", "COMPLETE"],
        "shop.totals": ["START", "RUNNING", "COMPLETE"],
    }
    running = by_job["shop.orders"][1]
    assert [(d["namespace"], d["name"]) for d in running["inputs"]] == [("file", str(landing))]
    table = str(Path(project.storage) / "tables" / "orders")
    outputs = {d["name"]: d for d in running["outputs"]}
    assert {*outputs} == {table, f"{table}_quarantine"}
    assert outputs[table]["outputFacets"]["outputStatistics"]["rowCount"] == len(kept)
    assert [f["name"] for f in outputs[table]["facets"]["schema"]["fields"]] == ["id", "name", "price"]
    assert outputs[table]["facets"]["version"]["datasetVersion"]
    asserted = {a["name"]: a for a in outputs[table]["facets"]["dataQualityAssertions"]["assertions"]}
    assert (asserted["has_name"]["actual"], asserted["has_name"]["params"]["action"]) == (str(len(aside)), "quarantine")
    assert [d["name"] for d in by_job["shop.totals"][1]["inputs"]] == [table]
    columns = outputs[table]["facets"]["columnLineage"]
    assert {c: [(i["name"], i["field"]) for i in f["inputFields"]] for c, f in columns["fields"].items()} == {
        c: [(str(landing), c)] for c in ("id", "name", "price")
    }
    assert {(i["field"], i["transformations"][0]["subtype"]) for i in columns["dataset"]} == {
        ("price", "FILTER"),
        ("name", "FILTER"),
    }
    totals = by_job["shop.totals"][1]["outputs"][0]["facets"]["columnLineage"]["fields"]
    assert [(i["name"], i["field"]) for i in totals["name"]["inputFields"]] == [(table, "name")]
    assert totals["count"] == {"inputFields": [], "transformationDescription": "made by count"}

    roots = {s.span_id: s for s in spans if s.name == "epoch"}
    assert len(roots) == summary.epochs == 2
    for root in roots.values():
        steps = [s for s in spans if s.parent_span_id == root.span_id]
        assert [s.name for s in steps] == ["stage", "decide", "apply", "publish"]
        assert steps[0].start_time_unix_nano == root.start_time_unix_nano
        for before, after in pairwise(steps):
            assert abs(before.end_time_unix_nano - after.start_time_unix_nano) < 1000
        sinks = [s for s in spans if s.parent_span_id == steps[2].span_id]
        assert sinks
        for sink in sinks:
            assert steps[2].start_time_unix_nano <= sink.start_time_unix_nano <= sink.end_time_unix_nano
            assert sink.end_time_unix_nano <= steps[2].end_time_unix_nano

    meter = Meter(project)
    families = {f.name: f for f in text_string_to_metric_families(meter.text()[0].decode())}
    meter.close()
    written = {s.labels["dataset"]: s.value for s in families["anabranch_rows_written"].samples}
    assert (written["orders"], written["orders_quarantine"]) == (len(kept), len(aside))
    broken = {(s.labels["rule"], s.labels["action"]): s.value for s in families["anabranch_expectation_failed"].samples}
    assert broken == {("cheap", "drop"): 8, ("has_name", "quarantine"): len(aside)}
    counts = {s.labels["step"] for s in families["anabranch_step_seconds"].samples if s.name.endswith("_count")}
    assert counts == {"stage", "decide", "apply", "publish"}
    assert [s.value for s in families["anabranch_run_up"].samples] == [0]
    # The run itself has counted its epochs: the ledger may forget them.
    assert History.of(project.storage).figures()[("counted_epoch", "orders", "{}")] == 0

    with client(tmp_path) as page:
        text = page.get("/datasets/totals").text
    assert Reader(text).faults == []
    assert '<td class="code">orders.name</td><td class="wrap">identity</td>' in text
    assert "made by count" in text
