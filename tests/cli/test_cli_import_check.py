"""`import-check`: what of a project of Spark or Databricks runs, what differs, what does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.main import main
from anabranch.load.databricks import Verdict, findings_in

NOTEBOOK = """\
# Databricks notebook source
# MAGIC %md
# MAGIC # Orders
# COMMAND ----------
# MAGIC %run ./other
# COMMAND ----------
import dlt

path = dbutils.widgets.get("path")
spark.conf.set("spark.databricks.delta.autoCompact.enabled", "true")

@dlt.table
@dlt.expect("ok", "a > 0")
def bronze():
    return (spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
        .option("cloudFiles.useNotifications", "true").load("/Volumes/main/x"))

@dlt.table(row_filter="f")
def silver():
    return dlt.read_stream("bronze")

@dlt.table
def gold():
    return dlt.read("bronze").groupBy("a").count()

@dlt.table(name="a.b")
def dotted():
    return dlt.read_stream("bronze")

@dlt.table
def plain():
    return dlt.read_stream("silver")

display(spark)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def looked(capsys: pytest.CaptureFixture[str], *paths: str) -> tuple[int, Any]:
    code = main(["import-check", *paths, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_notebook_is_looked_at_to_its_end(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "nb.py").write_text(NOTEBOOK)
    code, answer = looked(capsys, "nb.py")
    assert (code, answer["ok"]) == (1, False)
    found = [(f["verdict"], f["where"].removeprefix(f"{here}/nb.py:"), f["what"]) for f in answer["findings"]]
    assert found == [
        ("not supported", "5", "%run"),
        ("not supported", "9:8", "dbutils.widgets"),
        ("differs", "10:16", "spark.databricks.delta.autoCompact.enabled"),
        ("differs", "15:37", "cloudFiles"),
        ("differs", "16:17", "cloudFiles.useNotifications"),
        ("differs", "16:61", "/Volumes/main/x"),
        (
            "differs",
            "19",
            '"silver": ignored: row_filter (who may read which row is for the system that serves the table)',
        ),
        ("runs", "23", 'materialized view "gold"'),
        ("runs", "27", 'streaming table "a.b"'),
        ("runs", "31", 'streaming table "plain"'),
        ("not supported", "34:1", "display"),
    ]
    assert answer["counts"] == {"runs": 3, "differs": 5, "not supported": 3}


def test_a_project_that_runs_as_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["init", "shop", "--template", "dp"])
    capsys.readouterr()
    for path in ("shop", "shop/spark-pipeline.yml", "shop/transformations"):
        code, answer = looked(capsys, path)
        assert (code, answer["counts"]) == (0, {"runs": 4, "differs": 0, "not supported": 0}), path
    assert main(["import-check", "shop"]) == 0
    assert capsys.readouterr().out.endswith("\n\n4 run as they are, 0 differ, 0 not supported\n")


def test_faults_of_every_file_are_found_without_a_project_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "a.sql").write_text("CREATE STREAMING TABLE t AS SELECT * FROM STREAM read_files('/x');\nSELECT 1;\n")
    (here / "b.py").write_text("%pip install x\nimport dlt\n")
    (here / "c.ipynb").write_text("{}")
    (here / "d.sql").write_text("-- Databricks notebook source\n-- MAGIC %python\n-- MAGIC x = 1\n")
    code, answer = looked(capsys)
    assert code == 1
    assert [(f["where"].removeprefix(f"{here}/"), f["code"]) for f in answer["findings"]] == [
        ("a.sql:1:50", "SQL_NOT_SUPPORTED"),
        ("a.sql:2:1", "SQL_UNKNOWN_STATEMENT"),
        ("b.py:1", None),
        ("b.py:1:1", "PROJECT_PYTHON_SYNTAX"),
        ("c.ipynb", "PROJECT_FILE_KIND"),
        ("d.sql:2", None),
    ]


def test_a_path_that_is_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = looked(capsys, "nowhere.py")
    assert (code, answer["findings"][0]["code"]) == (1, "PROJECT_FILE_KIND")


def test_what_a_file_defines_itself_is_not_that_of_a_notebook() -> None:
    source = "def display(x): ...\ndisplay(1)\n# dbutils.fs\ntext = 'dbutils.fs'\n"
    assert findings_in(source, "a.py") == []
    assert [f.verdict for f in findings_in("dbutils.fs.ls('dbfs:/x')\n", "a.py")] == [
        Verdict.NOT_SUPPORTED,
        Verdict.DIFFERS,
    ]


def test_it_imports_nothing_heavy(here: Path) -> None:
    (here / "nb.py").write_text(NOTEBOOK)
    code = (
        "import sys\nfrom anabranch.cli.main import main\nassert main(['import-check', 'nb.py']) == 1\n"
        "heavy = [n for n in ('pyspark', 'py4j', 'pyarrow', 'deltalake', 'sqlalchemy') if n in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_check_names_options_of_auto_loader_that_are_ignored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "anabranch.yml").write_text("name: shop\n")
    flow = '    return spark.readStream.format("cloudFiles").option("cloudFiles.region", "x").load("landing")\n'
    (here / "pipeline.py").write_text(f"import dlt\n\n@dlt.table\ndef rows():\n{flow}")
    assert main(["check"]) == 0
    assert "pipeline.py:5:57  ignored: cloudFiles.region (SETTING_IGNORED)" in capsys.readouterr().err
