"""Loading with a session: files get it, and their functions reach Spark's workers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from anabranch.load.project import Project

FILE = """
import helper
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

assert SparkSession.active() is spark

def shout(x):
    return helper.upper(x) + MARK

MARK = "!"
udf_of_name = F.udf(shout)

@dp.temporary_view
def late():
    return spark.createDataFrame([("Ab",)], "x string").select(udf_of_name("x"))

early = spark.createDataFrame([("Ab",)], "x string").select(F.udf(lambda x: x + MARK)("x"))

@dp.temporary_view
def from_top():
    return early
"""
HELPER = "def upper(x):\n    return x.upper()\n"
PROGRAM = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from anabranch.load.project import read_project
from anabranch.load.python_files import load_pipeline

SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
loaded = load_pipeline(read_project(Path(sys.argv[1])), with_spark=True)
print({flow.name: [row[0] for row in flow.query().collect()] for flow in loaded.pipeline.flows})
"""


@pytest.mark.spark
def test_files_get_the_session_and_their_functions_reach_the_workers(make_project: Callable[..., Project]) -> None:
    # In a process of its own: a JVM started here, without jars, would serve all later tests of this process.
    project = make_project({"pipeline.py": FILE, "helper.py": HELPER, "anabranch.yml": "name: x\n"})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(project.root)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "{'late': ['AB!'], 'from_top': ['Ab!']}"
