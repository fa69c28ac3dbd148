"""Changes by key through Spark: upserts of `fan_out`, late and repeated ones, and in the same epoch as other tables."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

import anabranch
from anabranch import Output, read
from anabranch.core import crash
from anabranch.core.changes import Changes
from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.where import Where
from anabranch.engine.started import run_to_the_end
from anabranch.errors import AnabranchError, ProjectError, ProjectErrors
from anabranch.load.project import project_at

pytestmark = pytest.mark.spark

HERE = Where("test_changes.py")


class Feed:
    """Changes of people in files, each file an epoch."""

    def __init__(self, folder: Path, spark: Any) -> None:
        self.folder, self.lake, self.spark, self.files = folder / "landing", folder / "lake", spark, 0
        self.folder.mkdir()

    def add(self, *rows: tuple[int, str | None, str, str]) -> None:
        self.files += 1
        path = self.folder / f"{self.files:03d}.json"
        path.write_text("".join(json.dumps(dict(zip(("id", "city", "at", "op"), r, strict=True))) + "\n" for r in rows))
        os.utime(path, (self.files, self.files))

    @property
    def stream(self) -> Any:
        read = self.spark.readStream.schema("id INT, city STRING, at TIMESTAMP, op STRING")
        return read.option("maxFilesPerTrigger", 1).json(str(self.folder))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = read.cut(self.lake).arrow(table).to_pylist()
        return sorted((tuple(_plain(row[c]) for c in columns) for row in found), key=repr)


def _plain(value: Any) -> Any:
    return value.strftime("%d") if hasattr(value, "strftime") else value


def day(number: int) -> str:
    return f"2024-01-{number:02d}T00:00:00Z"


@pytest.fixture
def feed(tmp_path: Path, spark: Any) -> Feed:
    feed = Feed(tmp_path, spark)
    feed.add((1, "Bonn", day(1), "c"), (2, "Ulm", day(2), "c"), (3, "Kiel", day(3), "c"))
    feed.add((1, "Hof", day(5), "u"), (2, None, day(6), "d"))
    feed.add((1, "late", day(2), "u"), (2, "late", day(4), "u"), (1, "Hof", day(5), "u"))
    return feed


UPSERT = Output(lambda df: df.drop("op"), keys=("id",), sequence_by="at")


def test_rows_are_upserted_beside_tables_that_are_appended_to(feed: Feed) -> None:
    people = Output(lambda df: df, keys=("id",), sequence_by="at", deletes="op = 'd'")
    outputs = {"people": people, "log": lambda df: df}
    anabranch.fan_out(feed.stream, outputs, storage=feed.lake).run_once()
    assert feed.rows("people", "id", "city") == [(1, "Hof"), (3, "Kiel")]
    assert len(feed.rows("log", "id")) == 8
    assert {t.epoch for t in read.cut(feed.lake).record.tables.values()} == {2}
    old = read.cut(feed.lake, at=0)
    assert sorted(r["city"] for r in old.arrow("people").to_pylist()) == ["Bonn", "Kiel", "Ulm"]


@pytest.mark.parametrize("point", ["decided", "committed(people/changes)", "committed(people)", "applied(people)"])
def test_killed_anywhere_the_table_is_what_all_changes_make(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    job = anabranch.fan_out(feed.stream, {"people": UPSERT, "log": lambda df: df}, storage=feed.lake)
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, f"{point}:raise@2")
        with pytest.raises(AnabranchError):
            job.run_once()
    job.run_once()
    assert feed.rows("people", "id", "city") == [(1, "Hof"), (2, None), (3, "Kiel")]
    assert len(feed.rows("log", "id")) == 8


def pipeline(feed: Feed, **about: Any) -> Pipeline:
    people = Dataset("people", Kind.STREAMING_TABLE, HERE)
    changes = Changes("feed", keys=about.pop("keys", ("id",)), **about)
    flow = Flow("people", "people", lambda: feed.stream, HERE, changes=changes)
    return Pipeline("changes", (people,), (flow,), HERE)


def run(feed: Feed, made: Pipeline) -> None:
    run_to_the_end(project_at(feed.lake, "changes"), made, lambda _: None)


def test_history_is_right_whatever_the_order(feed: Feed) -> None:
    made = pipeline(feed, sequence_by=F.col("at"), deletes=F.expr("op = 'd'"), except_columns=("op", "at"), scd_type=2)
    run(feed, made)
    assert feed.rows("people", "id", "city", "__START_AT", "__END_AT") == [
        (1, "Bonn", "01", "02"),
        (1, "Hof", "05", None),
        (1, "late", "02", "05"),
        (2, "Ulm", "02", "04"),
        (2, "late", "04", "06"),
        (3, "Kiel", "03", None),
    ]


def test_nulls_leave_columns_as_they_are(feed: Feed) -> None:
    run(feed, pipeline(feed, sequence_by="struct(at, id)", columns=("id", "city"), ignore_null_updates=True))
    assert feed.rows("people", "id", "city") == [(1, "Hof"), (2, "late"), (3, "Kiel")]
    assert read.cut(feed.lake).arrow("people").column_names == ["id", "city"]


def test_what_cannot_be_computed_is_refused(feed: Feed) -> None:
    for about in (
        {"sequence_by": "nothing"},
        {"sequence_by": "at", "keys": ("no",)},
        {"sequence_by": "at", "deletes": "op ="},
    ):
        with pytest.raises(ProjectErrors) as refused:
            run(feed, pipeline(feed, **about))
        assert [problem.code for problem in refused.value.problems] == ["CHANGES_INVALID"]
    with pytest.raises(ProjectError) as caught:
        anabranch.fan_out(feed.stream, {"people": Output(lambda df: df, keys=("id",))}, storage=feed.lake).run_once()
    assert caught.value.code == "UPSERT_INCOMPLETE"
