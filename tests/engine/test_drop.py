"""`anabranch drop`: the table of an output that is no longer declared goes, and nothing else does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch import read
from anabranch.cli.main import main
from anabranch.core import crash
from anabranch.engine.lease import lease
from anabranch.engine.opened import open_project
from anabranch.errors import StateError

if TYPE_CHECKING:
    from conftest import Made

pytestmark = pytest.mark.spark

HEAD = """
@dp.table
def kept():
    return spark.readStream.schema("id INT").option("maxFilesPerTrigger", 1).json(LANDING)
"""
OLD = """
@dp.table(path="elsewhere/old")
@dp.expect_or_quarantine("odd", "id % 2 = 1")
def old():
    return spark.readStream.table("kept")
"""
VIEW = """
@dp.materialized_view
def counted():
    return spark.read.table("kept").groupBy("id").count()
"""


def drop(made: Made, name: str, *options: str) -> int:
    return main(["drop", name, "--yes", "--project", str(made.root), *options])


def tables(made: Made) -> set[str]:
    return set(read.cut(made.root).versions)


def ids(made: Made, table: str) -> list[int]:
    return sorted(row["id"] for row in made.rows(table))


@pytest.fixture
def begun(made: Made) -> Made:
    made.write(HEAD + OLD + VIEW)
    made.feed([{"id": 1}, {"id": 2}])
    made.feed([{"id": 3}])
    made.run()
    return made


def test_what_is_declared_is_refused(begun: Made, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "old_quarantine", "counted"):
        assert drop(begun, name) == 2
        said = capsys.readouterr().err
        assert "STILL_DECLARED" in said
        assert "take it out of the project" in said
    assert tables(begun) == {"kept", "old", "old_quarantine", "counted"}


@pytest.mark.parametrize("between", [False, True], ids=["at once", "after a run without it"])
def test_it_is_gone_and_the_others_are_as_they_were(begun: Made, between: bool) -> None:
    before = read.cut(begun.root)
    begun.write(HEAD)
    if between:
        begun.feed([{"id": 4}])
        begun.run()
    for name in ("old", "old_quarantine", "counted"):
        assert drop(begun, name) == 0
    assert tables(begun) == {"kept"}
    assert set(read.cut(begun.root).epochs) == {"kept"}
    assert not (begun.root / "lake/elsewhere/old").exists()
    assert sorted(p.name for p in (begun.root / "lake/tables").iterdir()) == ["kept"]
    with pytest.raises(StateError) as caught:  # a cut that was pinned before
        before.arrow("old")
    assert caught.value.code == "VERSION_GONE"
    assert before.arrow("kept").num_rows == 3
    begun.feed([{"id": 5}])
    begun.run()
    assert ids(begun, "kept") == [1, 2, 3, *([4] if between else []), 5]
    begun.write(HEAD + OLD + VIEW)  # declared again, they are new
    begun.run()
    everything = ids(begun, "kept")
    assert ids(begun, "old") == [n for n in everything if n % 2]
    assert len(begun.rows("old_quarantine")) == sum(1 for n in everything if n % 2 == 0)
    assert ids(begun, "counted") == everything


@pytest.mark.parametrize("point", ["dropping", "removing"])
def test_killed_half_way_it_is_finished_by_the_next(begun: Made, point: str) -> None:
    begun.write(HEAD + VIEW)
    command = [sys.executable, "-m", "anabranch.cli.main", "drop", "old", "--yes", "--project", str(begun.root)]
    killed = subprocess.run(command, env={**os.environ, crash.VARIABLE: f"{point}:kill"}, capture_output=True)
    assert killed.returncode < 0
    place = begun.root / "lake/elsewhere/old"
    assert place.exists() == (point == "dropping")
    assert tables(begun) == {"kept", "old_quarantine", "counted"}  # readers are not led to what is half gone
    begun.feed([{"id": 5}])
    begun.run()  # nor is a run in between disturbed
    if place.exists():
        shutil.rmtree(place / "_delta_log")
    assert drop(begun, "old") == 0
    assert not place.exists()
    assert drop(begun, "old", "--json") == 0  # older cuts still name it, so it is known; there is nothing left to do
    assert ids(begun, "kept") == [1, 2, 3, 5]


def test_an_unknown_one_and_one_that_only_the_storage_has(begun: Made, capsys: pytest.CaptureFixture[str]) -> None:
    assert drop(begun, "odl") == 2
    assert "TABLE_UNKNOWN" in capsys.readouterr().err
    forgotten = begun.root / "lake/tables/forgotten"
    shutil.copytree(begun.root / "lake/tables/kept", forgotten)
    assert drop(begun, "forgotten", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"dataset": "forgotten", "removed": str(forgotten)}
    assert not forgotten.exists()


def test_a_folder_that_another_output_uses_stays(begun: Made, capsys: pytest.CaptureFixture[str]) -> None:
    begun.write(HEAD + VIEW + OLD.replace("def old", "def renamed"))
    assert drop(begun, "old") != 0
    assert "TABLE_SHARED" in capsys.readouterr().err
    assert (begun.root / "lake/elsewhere/old/_delta_log").exists()
    assert ids(begun, "old") == [1, 3]


def test_not_while_somebody_works_on_the_channel(begun: Made, capsys: pytest.CaptureFixture[str]) -> None:
    begun.write(HEAD + VIEW)
    held: Any
    with open_project(begun.project) as opened, lease(opened, "kept") as held:
        assert held
        done = subprocess.run(
            [sys.executable, "-m", "anabranch.cli.main", "drop", "old", "--yes", "--project", str(begun.root)],
            capture_output=True,
            text=True,
        )
    assert done.returncode == 6, done.stderr
    assert Path(begun.root / "lake/elsewhere/old").exists()


def test_all_of_a_channel_can_go_and_come_again(begun: Made) -> None:
    begun.write("""
@dp.table
def other():
    return spark.readStream.schema("id INT").json(LANDING)
""")
    for name in ("counted", "kept", "old_quarantine", "old"):
        assert drop(begun, name) == 0
    begun.run()
    assert tables(begun) == {"other"}
    begun.write(HEAD + OLD + VIEW)
    begun.run()
    assert (ids(begun, "kept"), ids(begun, "old"), ids(begun, "counted")) == ([1, 2, 3], [1, 3], [1, 2, 3])
