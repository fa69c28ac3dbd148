"""`check`: everything that is wrong with a project, at once, without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.cli.init import TEMPLATES
from anabranch.cli.main import main

SPEC = """\
name: shop
storag: lake
libraries:
  - glob:
      include: transformations/**
"""
FLOWS = """\
from pyspark.sql import SparkSession

from anabranch import pipelines as dp

spark = SparkSession.active()


@dp.temporary_view
def requests():
    return spark.readStream.format("rate").load()


@dp.table
def logs():
    return spark.readStream.table("reqests")


@dp.table(name="logs")
def more_logs():
    return spark.readStream.table("requests")
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def faulty(here: Path) -> Path:
    (here / "transformations").mkdir()
    (here / "anabranch.yml").write_text(SPEC)
    (here / "transformations" / "flows.py").write_text(FLOWS)
    return here


def test_three_different_mistakes_in_two_files_are_all_shown_with_place_and_hint(
    faulty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        """\
anabranch.yml:2:1  storag: unknown field (PROJECT_UNKNOWN_FIELD)
  1 | name: shop
  2 | storag: lake
    | ^
hint: did you mean "storage"?
help: anabranch explain PROJECT_UNKNOWN_FIELD

transformations/flows.py:14  flow "logs" reads "reqests", which nothing creates (PROJECT_UNKNOWN_INPUT)
  12 |
  13 | @dp.table
  14 | def logs():
     | ^
hint: did you mean "requests"?
help: anabranch explain PROJECT_UNKNOWN_INPUT

transformations/flows.py:19  "logs" is created a second time; the first is at transformations/flows.py:14 \
(PROJECT_TWO_CREATORS)
  17 |
  18 | @dp.table(name="logs")
  19 | def more_logs():
     | ^
hint: rename one; to feed one table from several flows use append_flow
help: anabranch explain PROJECT_TWO_CREATORS

3 problems found
"""
    )


def test_the_same_as_json(faulty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json"]) == 2
    captured = capsys.readouterr()
    problems = json.loads(captured.out)["error"]["problems"]
    codes = [p["code"] for p in problems]
    assert sorted(codes) == ["PROJECT_TWO_CREATORS", "PROJECT_UNKNOWN_FIELD", "PROJECT_UNKNOWN_INPUT"]
    assert all(p["where"] and p["hint"] for p in problems)
    assert captured.err == ""


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_new_project_is_in_order_from_any_folder(
    template: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["init", "shop", "--template", template])
    capsys.readouterr()
    assert main(["check", "-p", "shop"]) == 0
    captured = capsys.readouterr()
    counts = "40 datasets, 40 flows, 9 channels" if template == "medallion" else "4 datasets, 4 flows, 1 channel"
    assert captured.out == f"ok: {counts}\n"
    assert captured.err == ""


def test_as_json_every_dataset_is_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "shop"])
    capsys.readouterr()
    assert main(["check", "-p", "shop", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["ok"], answer["pipeline"], answer["channels"]) == (True, "shop", ["requests"])
    assert [(d["name"], d["kind"]) for d in answer["datasets"]] == [
        ("requests", "temporary view"),
        ("request_logs", "streaming table"),
        ("error_events", "streaming table"),
        ("slow_requests", "streaming table"),
    ]
    assert answer["warnings"] == []


def test_verbose_lists_the_datasets(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "shop"])
    capsys.readouterr()
    assert main(["check", "-v", "-p", "shop"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "kind", "channel", "where"]
    assert lines[-1] == "ok: 4 datasets, 4 flows, 1 channel"


def test_a_view_that_nobody_reads_is_a_warning_on_stderr(faulty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (faulty / "anabranch.yml").write_text("name: shop\n")
    flows = faulty / "transformations" / "flows.py"
    lonely = "\n\n@dp.temporary_view\ndef lonely():\n    return spark.readStream.table('logs')\n"
    flows.write_text(FLOWS.replace("reqests", "requests").replace('(name="logs")', "") + lonely)
    assert main(["check"]) == 0
    captured = capsys.readouterr()
    assert "PROJECT_ORPHAN" in captured.err
    assert captured.out.startswith("ok: ")


def test_no_project_says_how_to_make_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    err = capsys.readouterr().err
    assert "PROJECT_NOT_FOUND" in err
    assert "anabranch init" in err


def test_check_imports_nothing_heavy(here: Path) -> None:
    main(["init", "shop"])
    heavy = ("pyspark", "py4j", "pyarrow", "deltalake", "sqlalchemy", "duckdb", "pandas", "numpy")
    code = (
        "import sys\nfrom anabranch.cli.main import main\nassert main(['check', '-p', 'shop']) == 0\n"
        f"heavy = [name for name in {heavy!r} if name in sys.modules]\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
