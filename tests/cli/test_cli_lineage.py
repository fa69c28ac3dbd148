"""`anabranch lineage`: with the stream and against it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.cli.main import main

FILE = """
from anabranch import pipelines as dp

@dp.temporary_view
def events():
    return spark.readStream.table("lake.raw.events")

@dp.table
def errors():
    return spark.readStream.table("events").where("bad")

@dp.table
def users():
    return spark.readStream.table("events").select("user")

@dp.materialized_view
def report():
    return spark.read.table("errors").join(spark.read.table("users"), "user")
"""


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)


def test_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "up", "report"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "report  materialized view  pipeline.py:17",
        "├─ errors  streaming table  pipeline.py:9",
        "│  └─ events  temporary view  pipeline.py:5",
        "│     └─ lake.raw.events  table from outside",
        "└─ users  streaming table  pipeline.py:13",
        "   └─ events  temporary view  pipeline.py:5  (see above)",
    ]


def test_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "down", "users"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "users  streaming table  pipeline.py:13",
        "└─ report  materialized view  pipeline.py:17",
    ]


def test_down_from_what_is_outside_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "down", "lake.raw.events", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [n["name"] for n in document["nodes"]] == ["lake.raw.events", "events", "errors", "users", "report"]
    assert len(document["edges"]) == 5


def test_a_name_that_nothing_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "up", "reprot"]) == 2
    captured = capsys.readouterr()
    assert "(DATASET_UNKNOWN)" in captured.err
    assert '"report"' in captured.err


def test_a_direction_that_there_is_not() -> None:
    assert main(["lineage", "sideways", "report"]) == 2
