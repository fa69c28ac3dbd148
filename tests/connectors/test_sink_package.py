"""Formats of other packages: the example is installed and tried, a broken one hurts nobody else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "sink_package"

CODE = """
from anabranch import pipelines as dp

dp.create_sink("copy", "FORMAT", {"file": "copy.db"})


@dp.append_flow(target="copy")
def orders():
    return spark.readStream.schema("id INT").json("landing")
"""

BROKEN = {
    "gone.py": "import no_such_library\n",
    "odd.py": "ODD = 3\n",
    "late.py": (
        "from anabranch.core.formats import DELTA, Format\nLATE = Format('late', 'no_such:thing', DELTA.capabilities)\n"
    ),
    "broken-2.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: broken\nVersion: 2.1\n",
    "broken-2.1.dist-info/entry_points.txt": (
        "[anabranch.formats]\ngone = gone:GONE\nodd = odd:ODD\nlate = late:LATE\ndelta = gone:GONE\n"
    ),
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example's package in it, as pip puts it there."""
    folder = tmp_path_factory.mktemp("site")
    copy = folder / "source"  # pip builds beside the source
    shutil.copytree(PACKAGE, copy)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--target", str(folder / "lib"), str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "lib"


def project(folder: Path, form: str) -> Path:
    (folder / "transformations").mkdir(parents=True)
    (folder / "anabranch.yml").write_text("name: shop\n")
    (folder / "transformations" / "orders.py").write_text(CODE.replace("FORMAT", form))
    return folder


def run(path: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True)


def anabranch(path: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run(path, "-m", "anabranch.cli.main", *words, cwd=cwd)


def test_it_is_as_short_as_promised() -> None:
    lines = (PACKAGE / "anabranch_sqlite.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 70


def test_it_is_found_and_its_promise_is_printed(installed: Path, tmp_path: Path) -> None:
    shop = project(tmp_path / "shop", "sqlite")
    assert anabranch(installed, "check", cwd=shop).stdout == "ok: 1 dataset, 1 flow, 1 channel\n"
    assert "exactly once, by a row in anabranch_epochs" in anabranch(installed, "plan", "--static", cwd=shop).stdout
    assert "anabranch-sqlite 1.0 (anabranch_sqlite:SQLITE)" in anabranch(installed, "doctor", cwd=shop).stdout
    without = anabranch(tmp_path, "check", cwd=shop)
    assert without.returncode == 2
    assert "FORMAT_NOT_SUPPORTED" in without.stderr


def test_it_keeps_the_contract(installed: Path, tmp_path: Path) -> None:
    """The very suite that our own sinks pass."""
    suite = tmp_path / "contract"
    suite.mkdir()
    for file in (ROOT / "tests" / "contract").glob("*.py"):
        if not file.name.startswith("case_"):
            shutil.copy(file, suite)
    shutil.copy(Path(__file__).with_name("sink_package_case.py"), suite / "case_sqlite.py")
    options = ["-p", "no:cacheprovider", "--import-mode=importlib", "-o", "markers=crash", "-q"]
    done = run(installed, "-m", "pytest", *options, "-k", "not every_format", str(suite), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.rsplit(" passed", 1)[0].split()[-1]) >= 15, done.stdout


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    for name, text in BROKEN.items():
        (tmp_path / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "lib" / name).write_text(text)
    return tmp_path / "lib"


@pytest.mark.parametrize(
    ("form", "reason"),
    [("gone", "ModuleNotFoundError: No module named 'no_such_library'"), ("odd", "odd:ODD is no Format")],
)
def test_a_broken_one_is_named_where_it_is_used(broken: Path, tmp_path: Path, form: str, reason: str) -> None:
    shop = project(tmp_path / "shop", form)
    said = anabranch(broken, "check", "--json", cwd=shop)
    assert said.returncode == 2
    (problem,) = json.loads(said.stdout)["error"]["problems"]
    assert problem["code"] == "FORMAT_BROKEN"
    assert problem["message"].endswith(f"of the package broken 2.1, which does not work: {reason}")
    assert problem["where"]
    assert problem["hint"]


def test_one_that_breaks_when_it_is_opened_is_named_too(broken: Path, tmp_path: Path) -> None:
    code = (
        "from anabranch.connectors.contract import SinkSpec\n"
        "from anabranch.connectors.registry import open_sink\n"
        "open_sink('late', SinkSpec('out', ''))"
    )
    said = run(broken, "-c", code, cwd=tmp_path).stderr
    assert "of the package broken 2.1, which does not work: no_such:thing: No module named 'no_such'" in said


def test_a_broken_one_hurts_nobody_else(broken: Path, tmp_path: Path) -> None:
    shop = project(tmp_path / "shop", "delta")
    assert anabranch(broken, "check", cwd=shop).returncode == 0
    found = json.loads(anabranch(broken, "doctor", "--json", cwd=shop).stdout)["checks"]
    states = {f["check"]: (f["state"], f["found"]) for f in found if f["check"].startswith("format ")}
    assert states["format gone"][0] == states["format odd"][0] == states["format delta"][0] == "warn"
    assert "Anabranch has a format of this name" in states["format delta"][1]
