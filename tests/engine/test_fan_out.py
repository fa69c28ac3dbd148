"""The commit without the framework: `fan_out`, and the body of somebody's own `foreachBatch`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import Output, read
from anabranch.core.events import EpochPublished, Event
from anabranch.errors import StateError

pytestmark = pytest.mark.spark


class Landing:
    """A folder of JSON files and a stream over it."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.spark = folder, spark
        self.folder.mkdir()
        self.rows: list[dict[str, Any]] = []

    def feed(self, *ids: int) -> None:
        rows = [{"id": i, "status": 500 + i if i % 2 else 200} for i in ids]
        self.rows += rows
        aside = self.folder / f".{len(self.rows)}"
        aside.write_text("".join(json.dumps(r) + "\n" for r in rows))
        aside.rename(self.folder / f"{len(self.rows):05d}.json")

    @property
    def stream(self) -> Any:
        return self.spark.readStream.schema("id INT, status INT").json(str(self.folder))

    def model(self) -> dict[str, Counter[Any]]:
        return {
            "bronze": Counter((r["id"], r["status"]) for r in self.rows),
            "errors": Counter(r["id"] for r in self.rows if r["status"] >= 500),
        }


OUTPUTS = {
    "bronze": lambda df: df,
    "errors": Output(lambda df: df.where("status >= 500").select("id"), comment="what went wrong"),
}


@pytest.fixture
def landing(tmp_path: Path, spark: Any) -> Landing:
    return Landing(tmp_path / "landing", spark)


def found(storage: Path) -> dict[str, Counter[Any]]:
    cut = read.cut(storage)
    return {
        "bronze": Counter((r["id"], r["status"]) for r in cut.arrow("bronze").to_pylist()),
        "errors": Counter(r["id"] for r in cut.arrow("errors").to_pylist()),
    }


def test_one_stream_feeds_tables_that_move_together(landing: Landing, tmp_path: Path) -> None:
    events: list[Event] = []
    job = anabranch.fan_out(landing.stream, OUTPUTS, storage=tmp_path / "lake", listener=events.append)
    landing.feed(1, 2, 3)
    assert job.run_once().epochs == 1
    landing.feed(4, 5)
    assert job.run_once().epochs == 1
    assert job.run_once().epochs == 0
    assert found(tmp_path / "lake") == landing.model()
    assert job.cut(at=0).sql("SELECT count(*) AS n FROM bronze").to_pylist() == [{"n": 3}]
    assert [e.rows for e in events if isinstance(e, EpochPublished)] == [
        {"bronze": 3, "errors": 2},
        {"bronze": 2, "errors": 1},
    ]


def test_a_layer_may_stand_on_another_in_the_same_epoch(landing: Landing, tmp_path: Path, spark: Any) -> None:
    layers = {
        "bronze": lambda df: df,
        "silver": lambda df: spark.readStream.table("bronze").where("status >= 500"),
        "gold": lambda df: spark.readStream.table("silver").selectExpr("id * 2 AS doubled"),
    }
    job = anabranch.fan_out(landing.stream, layers, storage=tmp_path / "lake")
    landing.feed(1, 2, 3)
    job.run_once()
    assert sorted(r["doubled"] for r in job.cut().arrow("gold").to_pylist()) == [2, 6]
    assert job.cut().epochs == {"stream": 0}


def test_it_goes_on_in_the_background_until_the_block_ends(landing: Landing, tmp_path: Path) -> None:
    job = anabranch.fan_out(landing.stream, OUTPUTS, storage=tmp_path / "lake", trigger_seconds=0)
    landing.feed(1)
    with job.start() as work:
        work.process_available()
        landing.feed(2, 3)
        work.process_available()
        assert found(tmp_path / "lake") == landing.model()
        assert work.summary.rows == 5
    landing.feed(4)
    assert job.run_once().epochs == 1
    assert found(tmp_path / "lake") == landing.model()


def own_query(landing: Landing, storage: Path, checkpoint: Path, outputs: Any = OUTPUTS) -> None:
    """A job that keeps its own foreachBatch and checkpoint."""
    with anabranch.each_batch(outputs, storage=storage) as write:
        query = landing.stream.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()


def test_the_body_of_an_existing_foreach_batch(landing: Landing, tmp_path: Path) -> None:
    landing.feed(1, 2)
    own_query(landing, tmp_path / "lake", tmp_path / "checkpoint")
    landing.feed(3)
    own_query(landing, tmp_path / "lake", tmp_path / "checkpoint")
    assert found(tmp_path / "lake") == landing.model()
    assert read.cut(tmp_path / "lake").epochs == {"stream": 1}


def test_a_batch_that_spark_repeats_is_not_written_twice(landing: Landing, tmp_path: Path) -> None:
    landing.feed(1, 2)
    own_query(landing, tmp_path / "lake", tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    own_query(landing, tmp_path / "lake", tmp_path / "checkpoint")
    assert found(tmp_path / "lake") == landing.model()


def test_another_query_is_not_taken_for_a_repetition(landing: Landing, tmp_path: Path) -> None:
    landing.feed(1, 2)
    own_query(landing, tmp_path / "lake", tmp_path / "checkpoint")
    with pytest.raises(Exception, match="another query") as raised:
        own_query(landing, tmp_path / "lake", tmp_path / "new-checkpoint")
    assert not isinstance(raised.value, StateError), "Spark wraps what its foreachBatch raises"
    assert found(tmp_path / "lake") == landing.model()
