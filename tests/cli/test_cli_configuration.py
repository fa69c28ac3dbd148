"""Settings on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.cli.configuration import configured
from anabranch.cli.main import main
from anabranch.cli.show_errors import UsageProblem
from anabranch.load.project import project_at


def test_settings_come_before_those_of_the_project(tmp_path: Path) -> None:
    project = project_at(tmp_path, "p")
    made = configured(project, ["spark.a=1", "spark.b = x=y"], "local[1]")
    added = {"spark.master": "local[1]", "spark.a": "1", "spark.b": " x=y"}
    assert made.configuration == {**project.configuration, **added}
    assert configured(project, None, None) == project


@pytest.mark.parametrize("text", ["spark.a", "=1", ""])
def test_what_is_no_setting_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageProblem):
        configured(project_at(tmp_path, "p"), [text], None)


def test_all_and_some_cannot_be_asked_for_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "anabranch.yml").write_text("name: p\n")
    code = main(["run", "--project", str(tmp_path), "--full-refresh-all", "--refresh", "a"])
    assert code == 2
    assert "--full-refresh-all is about every dataset" in capsys.readouterr().err
