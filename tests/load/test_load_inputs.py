from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from anabranch.load.project import Project
from anabranch.load.python_files import load_pipeline

MakeProject = Callable[..., Project]

HELPERS = """
from enum import Enum
from dataclasses import dataclass
from pyspark.sql import SparkSession
PREFIX = "raw"
TABLES = {"o": "orders", "i": "items"}

class Names(Enum):
    ORDERS = "orders"

@dataclass(frozen=True, slots=True)
class Config:
    table: str

config = Config("from_config")

class Reader:
    def __init__(self, spark, prefix):
        self.spark, self.prefix = spark, prefix
    def read(self, name):
        return self.spark.read.table(f"{self.prefix}_{name}")

def full(name):
    "A name."
    return f"db.{name}"

def read(name, *, prefix=PREFIX):
    spark = SparkSession.active()
    return spark.readStream.table(f"{prefix}_{name}")

def read_again(name):
    return read(name)

def round_trip(n):
    return spark.table("loop") if n else round_trip(n - 1)

def enrich(df):
    return df.join(SparkSession.active().table("dims"))

def kept(function):
    def inner(*args):
        return function(*args)
    return inner

@kept
def decorated():
    return SparkSession.active().table("decorated")
"""

CASES = {
    # the ways to read
    'return spark.table("a")': ["a"],
    'return spark.read.table("a").join(spark.readStream.table("b"))': ["a", "b"],
    'return spark.read.format("delta").option("x", 1).table(tableName="a")': ["a"],
    'return SparkSession.active().table("a")': ["a"],
    'return dp.read("a").union(dlt.read_stream("b"))': ["a", "b"],
    'return spark.sql("SELECT * FROM a JOIN b")': ["a", "b"],
    'return spark.sql(sqlQuery="SELECT * FROM a")': ["a"],
    'return spark.readStream.format("kafka").load("path")': [],
    'return spark.range(5).select(F.col("x").alias("table"))': [],
    'return duck.table("not_spark")': [],
    "return dp.table": [],
    # names from somewhere
    'name = "a"\nreturn spark.table(name)': ["a"],
    'return spark.table(name := "a")': ["a"],
    'return spark.table(PREFIX + "_x")': ["raw_x"],
    'return spark.table(f"{PREFIX}_{1:03d}_{PREFIX!r}")': ["raw_001_'raw'"],
    'return spark.table("%s.%s" % (PREFIX, "x"))': ["raw.x"],
    'return spark.table("{}.{y}".format(PREFIX, y="x"))': ["raw.x"],
    'return spark.table(TABLES["o"].upper())': ["ORDERS"],
    'return spark.table(".".join(["a", PREFIX]))': ["a.raw"],
    "return spark.table(helpers.PREFIX)": ["raw"],
    "return spark.table(config.table)": ["from_config"],
    "return spark.table(Names.ORDERS.value)": ["orders"],
    'return spark.table(full("x"))': ["db.x"],
    "return spark.sql(f\"SELECT * FROM {PREFIX}_a WHERE x = '{unknown()}'\")": ["raw_a"],
    'query = "SELECT * "\nquery2 = query + "FROM a"\nreturn spark.sql(query2)': ["a"],
    # several
    'frames = [spark.table(t) for t in ["a", "b"]]\nreturn frames': ["a", "b"],
    "for t in TABLES.values():\n    df = spark.table(t)\nreturn df": ["orders", "items"],
    "for k, t in sorted(TABLES.items()):\n    df = spark.table(k + t)\nreturn df": ["iitems", "oorders"],
    'for i, t in enumerate(("a", "b")):\n    df = spark.table(f"{t}{i}")\nreturn df': ["a0", "b1"],
    'return spark.table("a" if flag else "b")': ["a"],
    'return spark.table("a" if unknown() else "b")': ["a", "b"],
    'return [spark.table(t) for t in ("a", "b", "c") if t != "b"]': ["a", "c"],
    'names = [f"x_{t}" for t in TABLES.values()]\nfor n in names:\n    m = n.upper()\n    df = spark.table(m)': [
        "X_ORDERS",
        "X_ITEMS",
    ],
    'return {a + b: spark.table(a + b) for a in "xy" for b in "12"}': ["x1", "x2", "y1", "y2"],
    't = "a"\nfor u in ("b", "c"):\n    df = spark.table(t)\n    t = u\nreturn df': ["a", "b", "c"],
    'if flag:\n    t = "a"\nelse:\n    t = "b"\nreturn spark.table(t)': ["a", "b"],
    'return reduce(union, map(spark.table, ["a", "b"]))': ["a", "b"],
    'read_it = spark.readStream.table\nreturn read_it("a")': ["a"],
    'return (lambda t: spark.table("a"))(1)': ["a"],
    # functions of the project
    'return read("x").union(read_again("y")).union(read(name="z", prefix="p"))': ["raw_x", "raw_y", "p_z"],
    'return helpers.read("x")': ["raw_x"],
    'return spark.table("a").transform(enrich)': ["a", "dims"],
    'def inner(t):\n    return spark.table("in_" + t)\nreturn inner("a").union(inner("b"))': ["in_a", "in_b"],
    "return round_trip(3)": ["loop"],
    "return decorated()": ["decorated"],
    'return reader.read("x")': ["pre_x"],
}

UNKNOWN = {
    "return spark.table(unknown())": [],
    'return spark.table("a").join(spark.table(f"b_{unknown()}"))': ["a"],
    "return spark.sql(unknown())": [],
    'return spark.sql(f"SELECT * FROM a JOIN {unknown()}")': ["a"],
    "return [spark.table(t) for t in unknown()]": [],
    "return unknown(spark.table)": [],
    'name = "a"\nname += unknown()\nreturn spark.table(name)': [],
    'return spark.table(["a"][3])': [],
    "return spark.table(range(10**12)[unknown()])": [],
    "return [spark.table(str(n)) for n in range(10**12)]": [],
    't = "a" if unknown() else "b"\nu = "c" if unknown() else "d"\nreturn spark.table(t + u)': [],
    "def inner(t):\n    return spark.table(t)\nreturn inner(unknown())": [],
}

FILE = """
from functools import reduce
import builtins
import helpers
from helpers import *
from pyspark.sql import SparkSession, functions as F
from pyspark import pipelines as dp
from outside import unknown, duck
spark = SparkSession.active()
reader = Reader(spark, "pre")
flag = True

@dp.table
def flow():
{body}
"""
OUTSIDE = """
def unknown(*_):
    raise AssertionError("never run")

class Duck:
    def table(self, name): ...

duck = Duck()
"""


def inputs(make_project: MakeProject, body: str, with_spark: bool = False) -> tuple[list[str], bool]:
    text = FILE.format(body=textwrap.indent(body, "    "))
    # `helpers` is imported with a star, so its names are the file's own: followed through globals.
    project = make_project({"pipelines/a.py": text, "helpers.py": HELPERS, "outside.py": OUTSIDE})
    [flow] = load_pipeline(project, with_spark=with_spark).pipeline.flows
    return list(flow.inputs), flow.inputs_known


@pytest.mark.parametrize("body", CASES)
def test_known_inputs(make_project: MakeProject, body: str) -> None:
    assert inputs(make_project, body) == (CASES[body], True)


@pytest.mark.parametrize("body", UNKNOWN)
def test_inputs_that_are_computed(make_project: MakeProject, body: str) -> None:
    assert inputs(make_project, body) == (UNKNOWN[body], False)


MADE = """
from functools import partial, wraps
from anabranch import pipelines as dp

SOURCES = {"eu": "raw_eu", "us": "raw_us"}

for region, source in SOURCES.items():
    @dp.table(name=f"late_{region}")
    def late():
        return spark.readStream.table(source)

    @dp.table(name=f"default_{region}")
    def default(source=source, suffix="_x"):
        return spark.readStream.table(source + suffix)

def make(region, source):
    @dp.table(name=f"made_{region}")
    def made():
        return spark.sql(f"SELECT '{region}' AS region, * FROM STREAM({source})")

for item in SOURCES.items():
    make(*item)

dp.table(name="one")(lambda: spark.table("l1")); dp.table(name="two")(lambda: spark.table("l2"))

def general(name, other):
    return spark.table(name).join(spark.table(other))

dp.table(name="partial")(partial(general, "p1", other="p2"))

def logged(function):
    @wraps(function)
    def inner():
        return function()
    return inner

@dp.table
@logged
def wrapped():
    return spark.table("w")

class Bronze:
    name = "bronze_source"
    def query(self):
        return spark.table(self.name)

dp.table(name="method")(Bronze().query)
exec("def written(): return spark.table('x')")
dp.table(written)
"""


def test_functions_made_in_every_way(make_project: MakeProject) -> None:
    pipeline = load_pipeline(make_project({"pipelines/a.py": MADE}), with_spark=False).pipeline
    assert {flow.name: (list(flow.inputs), flow.inputs_known) for flow in pipeline.flows} == {
        "late_eu": (["raw_eu"], True),
        "late_us": (["raw_us"], True),
        "default_eu": (["raw_eu_x"], True),
        "default_us": (["raw_us_x"], True),
        "made_eu": (["raw_eu"], True),
        "made_us": (["raw_us"], True),
        "one": (["l1"], True),
        "two": (["l2"], True),
        "partial": (["p1", "p2"], True),
        "wrapped": (["w"], True),
        "method": (["bronze_source"], True),
        "written": ([], False),
    }
    lines = {flow.name: flow.where.line for flow in pipeline.flows}
    assert (lines["late_us"], lines["made_eu"], lines["one"], lines["partial"]) == (8, 17, 23, 25)
    assert (lines["wrapped"], lines["method"]) == (38, 43)


def test_long_chains_are_looked_at_in_no_time(make_project: MakeProject) -> None:
    chain = "".join(f'.withColumn("c{i}", F.col("x") + {i})' for i in range(150))
    body = f'return spark.table("a"){chain}.join(spark.table("b"))'
    assert inputs(make_project, body) == (["a", "b"], True)


def test_the_same_with_the_real_pyspark(make_project: MakeProject) -> None:
    body = 'return spark.readStream.table("a").transform(enrich).join(read("x"))'
    text = FILE.format(body=f"    {body}").replace('spark = SparkSession.active()\nreader = Reader(spark, "pre")\n', "")
    project = make_project({"pipelines/a.py": text, "helpers.py": HELPERS, "outside.py": OUTSIDE})
    [flow] = load_pipeline(project, with_spark=True).pipeline.flows
    assert (flow.inputs, flow.inputs_known) == (("a", "dims", "raw_x"), True)


def test_calls_are_followed_into_the_project_only(make_project: MakeProject) -> None:
    text = """
    import sys
    sys.path.insert(0, ".venv/lib/site-packages")
    import installed_reader
    from anabranch import pipelines as dp

    @dp.table
    def flow():
        return installed_reader.read(spark).join(spark.table("a"))
    """
    installed = {".venv/lib/site-packages/installed_reader.py": "def read(spark):\n    return spark.table('b')\n"}
    [flow] = load_pipeline(make_project({"pipelines/a.py": text, **installed}), with_spark=False).pipeline.flows
    assert (flow.inputs, flow.inputs_known) == (("a",), True)
