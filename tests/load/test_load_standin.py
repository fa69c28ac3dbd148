"""Files full of pyspark load without it; what cannot be known becomes a note, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

import anabranch
from anabranch.load.project import Project
from anabranch.load.python_files import Loaded, examine_pipeline

MakeProject = Callable[..., Project]

HOSTILE = """
from __future__ import annotations
import copy, dataclasses, functools, typing
from typing import Callable, Optional, Union

import pyspark
import pyspark.sql.functions as F
import pyspark.pandas as ps
import pyspark.sql.types
from pyspark import SparkConf, SparkContext, StorageLevel, pipelines as dp
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window, types as T
from pyspark.sql.functions import *
from pyspark.sql.functions import col, pandas_udf, udf
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import *

spark = SparkSession.active()
other = SparkSession.builder.appName("x").config("a", "b").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
spark.sparkContext.setLogLevel("ERROR")
sc: SparkContext = spark.sparkContext
MAJOR = int(pyspark.__version__.split(".")[0])

schema = StructType([StructField("id", LongType(), False)]).add("x", "string")
deep = copy.deepcopy(schema)
window = Window.partitionBy("a").orderBy(F.desc("b")).rowsBetween(-1, 1)
is_big = (F.col("x") > 1) & ~(col("y") == 2) | (lit(1) + -col("z") * 2 / 3 % 4 < 5)
first = spark.table("a")["id"]
columns = [F.col(name).alias(name) for name in ("a", "b")]

@udf(returnType=T.StringType())
def shout(x):
    return x.upper()

@udf
def whisper(x):
    return x.lower()

@pandas_udf("double")
def plus(x: "pd.Series") -> "pd.Series":
    return x + 1

typed = F.udf(lambda x: x, StringType())

class Counter(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.state = handle.getValueState("n", schema)

class Both(StatefulProcessor, SparkConf):
    pass

class More(Row, Both):
    def __init__(self) -> None:
        super().__init__(1, 2)
        self.x = self.anything()

class MyError(PySparkException):
    pass

Transform = Callable[[DataFrame], DataFrame]
Maybe = Optional[DataFrame]
Either = Union[DataFrame, Column]
Bar = DataFrame | None
Listed = list[DataFrame]

@dataclasses.dataclass
class Config:
    schema: StructType = schema
    frame: DataFrame | None = None

try:
    raise MyError("x")
except AnalysisException:
    raise
except PySparkException as error:
    assert isinstance(error, MyError)

more = More()
assert isinstance(more, StatefulProcessor) and issubclass(Counter, StatefulProcessor)
assert not isinstance("text", DataFrame) and not isinstance(more, DataFrame)
assert repr(schema) and {schema: 1}
with spark.something() as entered:
    pass

def helper(df: DataFrame, how: Callable[[Column], Column] = F.upper) -> DataFrame:
    return df.transform(how)

@functools.wraps(F.col)
def wrapped(*a): ...

@dp.table(schema=schema, name="t" + str(MAJOR)[:0] + "able")
def t() -> DataFrame:
    counted = spark.readStream.table("a").where(is_big).groupBy("x").transformWithState(Counter(), schema, "update")
    return helper(counted)

for frame in ("a", "b"):
    @dp.append_flow(target="table", name=frame)
    def flow():
        return spark.readStream.table(frame).withColumn("y", sum(shout(col("x"))))
"""


def test_a_file_full_of_pyspark_loads(make_project: MakeProject) -> None:
    before = set(sys.modules)
    loaded = examine_pipeline(make_project({"pipelines/a.py": HOSTILE}), with_spark=False)
    assert [(str(n.where), n.message) for n in loaded.notes] == []
    assert [(str(p.where), p.message) for p in loaded.problems] == []
    assert loaded.complete
    assert [(d.name, d.schema) for d in loaded.pipeline.datasets] == [("table", None)]
    assert [(f.name, f.inputs) for f in loaded.pipeline.flows] == [("table", ("a",)), ("a", ("a",)), ("b", ("b",))]
    new = {name for name in sys.modules if name not in before}
    assert not [name for name in new if name.startswith("pyspark")]


def test_a_stand_in_given_as_a_function_or_an_option_is_a_note(make_project: MakeProject) -> None:
    text = "from pyspark import pipelines as dp\ndp.create_streaming_table('t', comment=spark.version)\n"
    assert noted(make_project, text) == [("CHECK_NEEDS_SPARK", 2)]
    text = "from pyspark import pipelines as dp\ndp.create_streaming_table('t', partition_cols=[spark.version])\n"
    assert noted(make_project, text) == [("CHECK_NEEDS_SPARK", 2)]


def noted(make_project: MakeProject, text: str, **settings: str) -> list[tuple[str, int]]:
    loaded = examine_pipeline(make_project({"pipelines/a.py": text}, **settings), with_spark=False)
    assert loaded.problems == ()
    assert loaded.complete == (not loaded.notes)
    assert all("anabranch dry-run" in str(note.hint) for note in loaded.notes)
    return [(note.code, note.where.line if note.where else 0) for note in loaded.notes]


@pytest.mark.parametrize(
    "use",
    [
        "int(df.count())",
        "if df.isEmpty(): pass",
        "for row in df.collect(): pass",
        "[x for x in df.columns]",
        "name = f'table_{df.name}'",
        "'%s' % df",
        "str(df)",
        "', '.join([df.name])",
        "open(df.path)",
        "len(df.columns)",
        "'a' in df.columns",
        "range(df.count())",
        "a, b = df.split()",
        "print(*df)",
        "dict(**df)",
        "{}[df]",
        "not df",
        "import os; os.path.join('a', df.path)",
        "import re; re.match('a', df.text)",
        "import datetime; datetime.date(df.year, 1, 1)",
        "try:\n  int(df)\nexcept Exception:\n  pass",
        "try:\n  int(df)\nexcept df:\n  pass",
        "isinstance(df, spark.x)",
    ],
)
def test_where_a_real_value_is_needed_a_note_says_so(make_project: MakeProject, use: str) -> None:
    text = f"x = 1\ndf = spark.table('a')\n{use}\n"
    [(code, line)] = noted(make_project, text)
    assert code == "CHECK_NEEDS_SPARK"
    assert line >= 3


def test_a_users_own_fault_is_still_a_problem(make_project: MakeProject) -> None:
    text = "from pyspark.sql import functions as F\nx = [1][3]\n"
    loaded = examine_pipeline(make_project({"pipelines/a.py": text}), with_spark=False)
    assert [(p.code, p.where.line if p.where else 0) for p in loaded.problems] == [("PROJECT_FILE_FAILED", 2)]
    assert loaded.notes == ()


@pytest.mark.parametrize("text", ["import pyspark.sql.fuctions", "from pyspark.nothing import x", "import pysparc"])
def test_modules_that_pyspark_does_not_have(make_project: MakeProject, text: str) -> None:
    loaded = examine_pipeline(make_project({"pipelines/a.py": text}), with_spark=False)
    assert [p.code for p in loaded.problems] == ["PROJECT_IMPORT_FAILED"]


def test_the_settings_of_the_project_are_known(make_project: MakeProject) -> None:
    text = """
    from pyspark import pipelines as dp
    from pyspark.sql import SparkSession
    spark = SparkSession.getActiveSession()
    env = spark.conf.get("env")
    team = spark.conf.get("team", "nobody")
    dp.create_streaming_table(f"{env}_{team}")
    """
    loaded = examine_pipeline(make_project({"pipelines/a.py": text}, env="prod"), with_spark=False)
    assert [d.name for d in loaded.pipeline.datasets] == ["prod_nobody"]
    assert noted(make_project, 'f\'{spark.conf.get("spark.app.id", "x")}\'') == [("CHECK_NEEDS_SPARK", 1)]


def test_real_modules_are_put_back_and_tainted_ones_forgotten(make_project: MakeProject, tmp_path: Path) -> None:
    import pyspark
    import pyspark.sql

    before = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pyspark"}
    installed = tmp_path / "installed" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "third_direct.py").write_text("from pyspark.sql import DataFrame\nclass Frame(DataFrame): ...\n")
    (installed / "third_through.py").write_text("from third_direct import Frame\nx = Frame()\n")
    (installed / "third_innocent.py").write_text("value = 1\n")
    sys.path.append(str(installed))
    try:
        text = "import third_through, third_innocent\nfrom pyspark.sql import DataFrame\n"
        loaded: Loaded = examine_pipeline(make_project({"pipelines/a.py": text}), with_spark=False)
        assert loaded.problems == ()
        assert "third_innocent" in sys.modules
        assert not {"third_direct", "third_through"} & set(sys.modules)
    finally:
        sys.path.remove(str(installed))
        sys.modules.pop("third_innocent", None)
    after = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "pyspark"}
    assert after == before
    assert sys.modules["pyspark"] is pyspark


def test_a_package_that_breaks_on_stand_ins_is_no_fault_of_the_user(make_project: MakeProject, tmp_path: Path) -> None:
    installed = tmp_path / "installed" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "third_picky.py").write_text(
        "from pyspark.sql import DataFrame\nif 'select' not in vars(DataFrame):\n    raise RuntimeError('odd')\n"
    )
    sys.path.append(str(installed))
    try:
        assert noted(make_project, "x = 1\nimport third_picky\n") == [("CHECK_NEEDS_SPARK", 2)]
    finally:
        sys.path.remove(str(installed))


@pytest.fixture(scope="module")
def without_pyspark(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that is installed here but pyspark."""
    folder = tmp_path_factory.mktemp("installed")
    for path in [*Path(sysconfig.get_paths()["purelib"]).iterdir(), Path(anabranch.__file__).parent]:
        if not path.name.startswith(("pyspark", "anabranch-")) and path.suffix != ".pth":
            (folder / path.name).symlink_to(path)
    return folder


@pytest.mark.parametrize(
    ("taken", "said"),
    [
        ("functions as F", "ok: 1 dataset, 1 flow, 1 channel\n"),
        ("functions as F\nfrom pyspark.sql.types import *", "ok so"),
    ],
)
def test_where_pyspark_is_not_installed(tmp_path: Path, without_pyspark: Path, taken: str, said: str) -> None:
    (tmp_path / "anabranch.yml").write_text("name: x\n")
    (tmp_path / "pipeline.py").write_text(
        f"from pyspark import __version__, pipelines as dp\nfrom pyspark.sql import {taken}\n"
        "@dp.table\n@dp.expect('a', 'b > 0')\ndef t():\n"
        "    return spark.readStream.format('rate').load().select(F.col('value'))\n"
    )
    code = "import sys\nfrom anabranch.cli.main import main\nsys.exit(main(['check']))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(without_pyspark), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(said)
