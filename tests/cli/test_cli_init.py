"""New projects from templates, and the events in them."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from anabranch.cli.init import TEMPLATES, WITHOUT_SAMPLES
from anabranch.cli.main import main
from anabranch.generate.events import write_request_events


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_makes_a_project(template: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "shop", "--template", template]) == 0
    assert "anabranch run --once" in capsys.readouterr().out
    project = here / "shop"
    spec = yaml.safe_load(next(project.glob("*.yml")).read_text())
    assert spec["name"] == "shop"
    assert len(list((project / "landing").glob("*.json"))) == (0 if template in WITHOUT_SAMPLES else 3)
    for path in project.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")
    for path in (p for p in project.rglob("*") if p.is_file()):
        assert "{{" not in path.read_text(), path


def test_every_template_folder_is_offered() -> None:
    folders = {p.name for p in files("anabranch.cli").joinpath("templates").iterdir() if p.is_dir()}
    assert folders - {"__pycache__"} == set(TEMPLATES)


def test_the_dp_template_knows_nothing_of_anabranch(here: Path) -> None:
    assert main(["init", "--name", "plain", "--template", "dp"]) == 0
    spec = yaml.safe_load((here / "plain" / "spark-pipeline.yml").read_text())
    assert spec["storage"] == (here / "plain" / "lake").as_uri()
    for path in (here / "plain" / "transformations").iterdir():
        assert "import anabranch" not in path.read_text()
        assert "from anabranch" not in path.read_text()


def test_a_second_init_is_refused_and_changes_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "shop"]) == 0
    readme = here / "shop" / "README.md"
    readme.write_text("mine")
    assert main(["init", "shop"]) == 2
    assert "INIT_FOLDER_NOT_EMPTY" in capsys.readouterr().err
    assert readme.read_text() == "mine"


def test_an_empty_folder_is_taken_and_a_file_is_not(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    (here / "file").write_text("")
    assert main(["init", "empty"]) == 0
    assert main(["init", "file"]) == 2
    assert main(["init", "file/inside"]) == 2
    err = capsys.readouterr().err
    assert "INIT_FOLDER_NOT_EMPTY" in err
    assert "INIT_CANNOT_WRITE" in err


def test_as_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "deep/shop", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["project"] == "shop"
    assert "anabranch.yml" in answer["files"]
    assert all((here / "deep" / "shop" / name).is_file() for name in answer["files"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "init needs one name"),
        (["a", "--name", "b"], "init needs one name"),
        (["a b"], "cannot name a project"),
        (["../1x"], "cannot name a project"),
        (["a", "--template", "quickstat"], 'did you mean "quickstart"?'),
    ],
)
def test_what_cannot_be_done_is_a_usage_error(
    arguments: list[str], said: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--list", "--json"]) == 0
    assert [row["template"] for row in json.loads(capsys.readouterr().out)] == list(TEMPLATES)


def test_sample_events_are_the_same_for_the_same_seed_and_go_on_from_start(here: Path) -> None:
    first = write_request_events(here / "a", rows=1000, files=3)
    again = write_request_events(here / "b", rows=1000, files=3)
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    more = write_request_events(here / "a", rows=10, files=1, start=1000)
    lines = [json.loads(line) for p in [*first, *more] for line in p.read_text().splitlines()]
    assert [event["eventId"] for event in lines] == [f"evt-{n:010d}" for n in range(1010)]
    assert any(event["errors"] for event in lines)
    assert all(bool(event["errors"]) == (event["request"]["status_code"] >= 400) for event in lines)
    assert sorted(p.name for p in (here / "a").iterdir()) == sorted(p.name for p in [*first, *more])
    other = write_request_events(here / "c", rows=1000, files=3, seed=8)
    assert first[0].read_bytes() != other[0].read_bytes()
