"""Rules on whole tables and on changes, in a run: what repeats is counted, or the epoch is given up; deletes pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Output, read
from anabranch.core.events import EpochDiscarded, EpochPublished, Event
from anabranch.core.quality import FlowQuality
from anabranch.errors import AnabranchError

pytestmark = pytest.mark.spark


def test_what_repeats_is_counted_and_kept_with_the_epoch(made: Any) -> None:
    made.write(
        """
        @dp.table
        @dp.expect("positive", "n > 0")
        @dp.expect_unique("one_per_id", ["id"], action="warn")
        def orders():
            return spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(LANDING)
        """
    )
    made.feed([{"id": 1, "n": 1}, {"id": 2, "n": 0}, {"id": 2, "n": 1}, {"id": None, "n": 1}, {"id": None, "n": 1}])
    made.feed([{"id": 1, "n": 1}, {"id": 3, "n": 1}])
    made.run()
    assert len(made.rows("orders")) == 7
    found = {e.epoch: e.quality for e in made.events if isinstance(e, EpochPublished)}
    assert found == {
        0: (
            FlowQuality("orders", "orders", 5, {"positive": 1}, breaking=1),
            FlowQuality("orders", "", 5, {"one_per_id": 1}),
        ),
        1: (FlowQuality("orders", "orders", 2, {"positive": 0}), FlowQuality("orders", "", 2, {"one_per_id": 1})),
    }
    with read.open_ledger(made.project) as (ledger, pipeline):
        assert {e.key.epoch: e.quality for e in ledger.epochs(pipeline.pipeline_id)} == found


def test_an_epoch_that_repeats_a_key_is_given_up_as_a_whole(tmp_path: Path, spark: Any) -> None:
    landing, events = tmp_path / "landing", list[Event]()
    landing.mkdir()
    stream = spark.readStream.schema("id INT, n INT").option("maxFilesPerTrigger", 1).json(str(landing))
    outputs = {"orders": Output(lambda df: df, unique={"one_per_id": ("ID",)}), "log": lambda df: df}
    job = anabranch.fan_out(stream, outputs, storage=tmp_path / "lake", listener=events.append)
    (landing / "1.json").write_text(json.dumps({"id": 1, "n": 1}) + "\n" + json.dumps({"id": 2, "n": 1}) + "\n")
    job.run_once()
    (landing / "2.json").write_text(json.dumps({"id": 2, "n": 2}) + "\n" + json.dumps({"id": 3, "n": 2}) + "\n")
    with pytest.raises(AnabranchError) as refused:
        job.run_once()
    assert refused.value.code == "EXPECTATION_FAILED"
    assert refused.value.details["rows"] == ['{"id": 2}']
    assert [e.epoch for e in events if isinstance(e, EpochDiscarded)] == [1]
    assert job.cut().epochs == {"stream": 0}
    assert sorted(job.cut().arrow("log")["id"].to_pylist()) == [1, 2]
    mended = {**outputs, "orders": lambda df: df}
    anabranch.fan_out(stream, mended, storage=tmp_path / "lake").run_once()
    assert sorted(job.cut().arrow("orders")["id"].to_pylist()) == [1, 2, 2, 3]


def test_rules_judge_changes_but_never_keep_a_delete_out(tmp_path: Path, spark: Any) -> None:
    landing, events = tmp_path / "landing", list[Event]()
    landing.mkdir()
    rows = [(1, 5, 1, "c"), (2, -1, 1, "c"), (3, 7, 1, "c"), (3, None, 2, "d"), (1, None, 3, "c")]
    lines = (json.dumps(dict(zip(("id", "n", "at", "op"), row, strict=True))) for row in rows)
    (landing / "1.json").write_text("\n".join(lines))
    people = Output(
        lambda df: df,
        keys=("id",),
        sequence_by="struct(at, op)",
        deletes="op = 'd'",
        expect_or_drop={"positive": "n > 0"},
        unique={"one_per_id": ("id",)},
    )
    stream = spark.readStream.schema("id INT, n INT, at INT, op STRING").json(str(landing))
    job = anabranch.fan_out(stream, {"people": people}, storage=tmp_path / "lake", listener=events.append)
    job.run_once()
    assert [(r["id"], r["n"]) for r in job.cut().arrow("people").to_pylist()] == [(1, 5)]
    (published,) = (e for e in events if isinstance(e, EpochPublished))
    assert published.quality == (FlowQuality("people", "people", 5, {"positive": 2}, dropped=2, breaking=2),)
