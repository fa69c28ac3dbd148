"""Loading with a session: files get it, and their functions reach Spark's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from anabranch.load.project import Project
from anabranch.load.python_files import load_pipeline

FILE = """
import helper
from pyspark import pipelines as dp
from pyspark.sql import SparkSession, functions as F

assert SparkSession.active() is spark

def shout(x):
    return helper.upper(x) + MARK

MARK = "!"
udf_of_name = F.udf(shout)

@F.udf("string")
def whisper(x):
    from helper import lower
    return lower(x)

@dp.temporary_view
def late():
    return spark.createDataFrame([("Ab",)], "x string").select(udf_of_name("x"))

early = spark.createDataFrame([("Ab",)], "x string").select(F.udf(lambda x: x + MARK)("x"))

@dp.temporary_view
def from_top():
    return early
"""
HELPER = "def upper(x):\n    return x.upper()\n\ndef lower(x):\n    return x.lower()\n"


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    monkeypatch.setitem(os.environ, "PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "512m").getOrCreate()
    yield session
    session.stop()


@pytest.mark.spark
def test_files_get_the_session_and_their_functions_reach_the_workers(
    make_project: Callable[..., Project], spark: Any
) -> None:
    loaded = load_pipeline(make_project({"pipelines/a.py": FILE, "helper.py": HELPER}), with_spark=True)
    queries = {flow.name: flow.query for flow in loaded.pipeline.flows}
    assert [row[0] for row in queries["late"]().collect()] == ["AB!"]
    assert [row[0] for row in queries["from_top"]().collect()] == ["Ab!"]
