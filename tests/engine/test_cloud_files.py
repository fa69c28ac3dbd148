"""`format("cloudFiles")` read by Spark's own file source, and `LIVE.` names, in a whole run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PIPELINE = """
import dlt
from pyspark.sql.functions import col

HERE = spark.conf.get("here")

@dlt.view
def raw():
    return (
        spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
        .option("cloudFiles.schemaHints", "n INT, extra DATE").option("cloudFiles.maxFilesPerTrigger", 1)
        .option("cloudFiles.useNotifications", "true").load(HERE + "/landing")
    )

@dlt.view
def typed():
    options = {"cloudFiles.format": "json", "cloudFiles.inferColumnTypes": "true"}
    return spark.readStream.format("cloudFiles").options(**options).load(HERE + "/landing")

@dlt.view
def partitioned():
    reader = spark.readStream.format("cloudFiles").option("cloudFiles.format", "csv").option("header", True)
    return reader.load(HERE + "/days")

@dlt.table
def rows():
    return spark.readStream.table("LIVE.raw").union(spark.sql("SELECT * FROM STREAM(LIVE.raw)"))

@dlt.table
def given():
    return spark.readStream.format("cloudFiles").option("cloudFiles.format", "text").load(HERE + "/landing")
"""
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from anabranch.core.graph import build
from anabranch.engine.cloud_files import cloud_files
from anabranch.engine.flows import resolve_flows
from anabranch.engine.dataset_names import dataset_names
from anabranch.errors import AnabranchError
from anabranch.load.project import read_project
from anabranch.load.python_files import load_pipeline

here = sys.argv[1]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("here", here).getOrCreate()
project = read_project(Path(here))

def frames(pin):
    with dataset_names(), cloud_files(Path(here, "pins"), pin=pin):
        return resolve_flows(spark, load_pipeline(project, with_spark=True).pipeline).frames

def seen(name, frame):
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return len(query.recentProgress), sorted(str(tuple(r)) for r in spark.sql(f"SELECT * FROM {name}").collect())

frames(False)
assert not Path(here, "pins").exists(), "looking pins nothing"
found = frames(True)
for name, frame in found.items():
    print(name, frame.schema.simpleString())
print(seen("raw_rows", found["raw"]))
print(seen("partitioned_rows", found["partitioned"])[1])
Path(here, "landing", "c.json").write_text('{"n": 3, "late": 1}')
print(frames(True)["typed"].schema.simpleString())
with cloud_files(Path(here, "pins"), pin=True):
    for options in ({}, {"cloudFiles.format": "json", "cloudFiles.includeExistingFiles": False}):
        try:
            spark.readStream.format("cloudFiles").options(**options).load(here + "/landing")
        except AnabranchError as error:
            print(error.code, error.message)
    try:
        spark.readStream.format("cloudFiles").option("cloudFiles.format", "json").load(here + "/empty")
    except AnabranchError as error:
        print(error.code, error.message.replace(here, ""))
print(spark.readStream.format("rate").load().columns)
"""


@pytest.mark.spark
def test_a_folder_is_read_with_a_schema_that_stays(tmp_path: Path) -> None:
    # In a process of its own: a JVM started here, without jars, would serve all later tests of this process.
    (tmp_path / "landing" / "deep").mkdir(parents=True)
    (tmp_path / "days" / "day=2024-01-01").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "landing" / "a.json").write_text('{"n": 1, "s": {"x": 1}}\n')
    (tmp_path / "landing" / "deep" / "b.json").write_text('{"n": 2, "s": {"x": 2}}\n')
    (tmp_path / "days" / "day=2024-01-01" / "a.csv").write_text("a,b\n1,x\n")
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "anabranch.yml").write_text("name: x\n")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "raw struct<n:int,s:string,extra:date>",
        "typed struct<n:bigint,s:struct<x:bigint>>",
        "partitioned struct<a:string,b:string,day:string>",
        "given struct<value:string>",
        "rows struct<n:int,s:string,extra:date>",
        """(2, ['(1, \\'{"x": 1}\\', None)', '(2, \\'{"x": 2}\\', None)'])""",
        "[\"('1', 'x', '2024-01-01')\"]",
        "struct<n:bigint,s:struct<x:bigint>>",
        "CLOUD_FILES cloudFiles: cloudFiles.format is missing",
        "CLOUD_FILES cloudFiles.includeExistingFiles=false is not supported: Spark's file source reads what is there",
        "CLOUD_FILES cloudFiles: no schema could be inferred from /empty: UNABLE_TO_INFER_SCHEMA",
        "['timestamp', 'value']",
    ]
    pins = sorted((tmp_path / "pins").iterdir())
    assert {json.loads(pin.read_text())["format"] for pin in pins} == {"json", "csv"}
    assert [pin.suffix for pin in pins] == [".json"] * 3
