"""Running the files: errors point into them, helpers are found, loops see their own values, nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import ProjectError
from anabranch.load.project import Project
from anabranch.load.python_files import examine_pipeline, load_pipeline

MakeProject = Callable[..., Project]
BOTH = pytest.mark.parametrize("with_spark", [False, True])


def only_problem(project: Project, with_spark: bool = False) -> tuple[str, str, str, ProjectError]:
    loaded = examine_pipeline(project, with_spark=with_spark)
    assert not loaded.complete
    [problem] = loaded.problems
    return problem.code, str(problem.where).removeprefix(f"{project.root}/"), problem.message, problem


@BOTH
def test_a_syntax_error_has_line_and_column(make_project: MakeProject, with_spark: bool) -> None:
    project = make_project({"pipelines/a.py": "x = 1\ny = (2 +\n"})
    code, where, message, problem = only_problem(project, with_spark)
    assert (code, where, message) == (
        "PROJECT_PYTHON_SYNTAX",
        "pipelines/a.py:2:5",
        "not valid Python: '(' was never closed",
    )
    assert isinstance(problem.__cause__, SyntaxError)


@BOTH
def test_an_exception_points_to_the_users_line(make_project: MakeProject, with_spark: bool) -> None:
    text = """
    import json

    def parse(text):
        return json.loads(text)

    value = parse("{")
    """
    code, where, message, problem = only_problem(make_project({"pipelines/a.py": text}), with_spark)
    assert (code, where) == ("PROJECT_FILE_FAILED", "pipelines/a.py:4:12"), "not into json"
    assert message.startswith("JSONDecodeError: ")
    assert isinstance(problem.__cause__, ValueError)
    assert problem.__cause__.__traceback__ is not None


def test_columns_count_characters(make_project: MakeProject) -> None:
    code, where, *_ = only_problem(make_project({"pipelines/a.py": 'x = "äöü"; 1 / 0\n'}))
    assert (code, where) == ("PROJECT_FILE_FAILED", "pipelines/a.py:1:12")


def test_other_ways_to_fail(make_project: MakeProject) -> None:
    files = {
        "pipelines/exit.py": "import sys\nsys.exit(3)\n",
        "pipelines/name.py": "orders = 1\nprint(oders)\n",
        "pipelines/missing.py": "import helprs\n",
        "pipelines/from.py": "from helpers import reed\n",
        "pipelines/inside.py": "import broken\n",
        "pipelines/syntax.py": "import wrong\n",
        "pipelines/null.py": "x = '\0'\n",
        "pipelines/good.py": "from anabranch import pipelines as dp\ndp.create_streaming_table('t')\n",
        "helpers.py": "def read(): ...\n",
        "broken.py": "x = 1\nraise KeyError('no')\n",
        "wrong.py": "def (\n",
    }
    loaded = examine_pipeline(make_project(files), with_spark=False)
    root = str(make_project({}).root)
    told = {str(p.where).removeprefix(root + "/"): (p.code, p.hint) for p in loaded.problems}
    assert told == {
        "pipelines/exit.py:2:1": ("PROJECT_FILE_FAILED", "`--debug` shows the whole traceback"),
        "pipelines/name.py:2:7": ("PROJECT_FILE_FAILED", 'did you mean "orders"?'),
        "pipelines/missing.py:1:1": ("PROJECT_IMPORT_FAILED", 'did you mean "helpers"?'),
        "pipelines/from.py:1:1": ("PROJECT_IMPORT_FAILED", 'did you mean "read"?'),
        "broken.py:2:1": ("PROJECT_FILE_FAILED", "`--debug` shows the whole traceback"),
        "wrong.py:1:5": ("PROJECT_PYTHON_SYNTAX", "correct the line"),
        "pipelines/null.py": ("PROJECT_PYTHON_SYNTAX", "correct the line"),
    }
    assert [d.name for d in loaded.pipeline.datasets] == ["t"], "the good file is loaded all the same"


def test_a_file_that_is_gone(make_project: MakeProject) -> None:
    project = make_project({}, run=["pipelines/a.py"])
    project.root.mkdir()
    code, where, *_ = only_problem(project)
    assert (code, where) == ("PROJECT_FILE_UNREADABLE", "pipelines/a.py")


FLOW = """
from anabranch import pipelines as dp
import {helper}

@dp.table(name={helper}.NAME)
def anything():
    return {helper}.read("x")
"""


def test_two_projects_with_helpers_of_the_same_name(make_project: MakeProject) -> None:
    sys.modules.pop("shared_helper", None)
    path_before = list(sys.path)
    helper = "NAME = '{name}'\ndef read(x):\n    return NAME + x\n"
    for name in ("one", "two", "one"):
        files = {"pipelines/a.py": FLOW.format(helper="shared_helper"), "shared_helper.py": helper.format(name=name)}
        loaded = load_pipeline(make_project(files, folder=name), with_spark=False)
        assert [d.name for d in loaded.pipeline.datasets] == [name]
        assert loaded.pipeline.flows[0].query() == f"{name}x"
        assert "shared_helper" not in sys.modules
    assert sys.path == path_before


def test_a_changed_helper_is_read_again(make_project: MakeProject) -> None:
    for name in ("a", "b", "c"):
        files = {"pipelines/a.py": FLOW.format(helper="deep.names"), "pipelines/deep/names.py": f"NAME = '{name}'\n"}
        loaded = load_pipeline(make_project(files, run=["pipelines/a.py"]), with_spark=False)
        assert [d.name for d in loaded.pipeline.datasets] == [name]
        assert not list(loaded_root(loaded).rglob("__pycache__"))


def loaded_root(loaded: Any) -> Path:
    return Path(loaded.pipeline.where.file).parent


def test_a_module_of_the_same_name_from_elsewhere_is_set_aside(make_project: MakeProject, tmp_path: Path) -> None:
    elsewhere = type(sys)("shared_helper")
    elsewhere.__file__ = str(tmp_path / "elsewhere.py")
    elsewhere.NAME = "wrong"  # type: ignore[attr-defined]
    sys.modules["shared_helper"] = elsewhere
    try:
        files = {"pipelines/a.py": FLOW.format(helper="shared_helper"), "shared_helper.py": "NAME = 'right'\n"}
        loaded = load_pipeline(make_project(files), with_spark=False)
        assert [d.name for d in loaded.pipeline.datasets] == ["right"]
        assert sys.modules["shared_helper"] is elsewhere
    finally:
        del sys.modules["shared_helper"]


@BOTH
def test_a_library_file_that_another_imports_runs_once(make_project: MakeProject, with_spark: bool) -> None:
    files = {
        "pipelines/a.py": "from b import LIST\nimport pipelines.b\nLIST.append(1)\n",
        "pipelines/b.py": "import c\nfrom anabranch import pipelines as p\nLIST = []\np.create_streaming_table('t')\n",
        "pipelines/c.py": "import b\n",
        "pipelines/d.py": "import b\nassert b.LIST == [1]\n",
    }
    for run in ("abcd", "bacd", "cbad", "cabd"):
        project = make_project(files, run=[f"pipelines/{name}.py" for name in run])
        loaded = load_pipeline(project, with_spark=with_spark)
        assert [d.name for d in loaded.pipeline.datasets] == ["t"]


def test_files_run_in_the_projects_folder(make_project: MakeProject) -> None:
    here = Path.cwd()
    files = {
        "pipelines/a.py": """
            from anabranch import pipelines as dp
            dp.create_streaming_table('t', schema=open('s.ddl').read())
            """,
        "s.ddl": "a INT",
    }
    loaded = load_pipeline(make_project(files), with_spark=False)
    assert loaded.pipeline.datasets[0].schema == "a INT"
    assert Path.cwd() == here


LOOPS = """
from {package} import pipelines as dp

for region in ["eu", "us"]:
    @dp.table(name=f"orders_{{region}}")
    def orders():
        return f"raw_{{region}}"

def make(kind):
    @dp.temporary_view(name=f"view_{{kind}}")
    def view():
        return f"orders_{{kind}}"

for kind in ["eu", "us"]:
    make(kind)

def make_all():
    for number in range(2):
        dp.create_streaming_table(f"t{{number}}")
        @dp.append_flow(target=f"t{{number}}", name=f"f{{number}}")
        def flow(scale=number * 10):
            return number, scale, later()

make_all()

def later():
    return region
"""


@pytest.mark.parametrize("package", ["anabranch", "pyspark"])
@BOTH
def test_functions_made_in_loops_see_the_values_they_were_declared_with(
    make_project: MakeProject, package: str, with_spark: bool
) -> None:
    loaded = load_pipeline(make_project({"pipelines/a.py": LOOPS.format(package=package)}), with_spark=with_spark)
    assert {flow.name: flow.query() for flow in loaded.pipeline.flows} == {
        "orders_eu": "raw_eu",
        "orders_us": "raw_us",
        "view_eu": "orders_eu",
        "view_us": "orders_us",
        "f0": (0, 0, "us"),
        "f1": (1, 10, "us"),
    }


def test_pyspark_is_not_imported_for_a_check(make_project: MakeProject) -> None:
    project = make_project(
        {
            "anabranch.yml": "name: x\n",
            "pipeline.py": """
            from pyspark import pipelines as dp
            from pyspark.sql import SparkSession, functions as F
            spark = SparkSession.active()

            @dp.table
            def a():
                return spark.readStream.table("b").where(F.col("x") > 1)
            """,
        }
    )
    program = """
    import sys
    from pathlib import Path
    from anabranch.load.project import read_project
    from anabranch.load.python_files import load_pipeline
    loaded = load_pipeline(read_project(Path(sys.argv[1])), with_spark=False)
    assert loaded.pipeline.flows[0].inputs == ("b",), loaded
    print(sorted(name for name in sys.modules if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "pyarrow")))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(project.root)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_other_threads_may_import_meanwhile(make_project: MakeProject) -> None:
    project = make_project({"pipelines/a.py": "import helper\n", "pipelines/helper.py": ""})
    over = threading.Event()

    def importing() -> None:
        while not over.is_set():
            for number in range(50):
                sys.modules[f"_imported_meanwhile_{number}"] = sys
            for number in range(50):
                del sys.modules[f"_imported_meanwhile_{number}"]

    thread = threading.Thread(target=importing)
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread.start()
    try:
        for _ in range(50):
            load_pipeline(project, with_spark=False)
            assert "helper" not in sys.modules
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(often)
