"""A project written from a dict of file names and contents."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.load.project import Project

MakeProject = Callable[..., Project]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(content).lstrip("\n"), encoding="utf-8")


@pytest.fixture
def make_project(tmp_path: Path) -> MakeProject:
    """Writes files and gives a project of those under `pipelines/`, or of those named `run`."""

    def make(files: dict[str, str], run: list[str] | None = None, folder: str = "project", **settings: str) -> Project:
        root = (tmp_path / folder).resolve()
        write(root, files)
        names = run if run is not None else [name for name in files if name.startswith("pipelines/")]
        return Project(
            name=folder,
            spec_file=root / "anabranch.yml",
            root=root,
            storage=str(root / "lake"),
            ledger=str(root / "ledger.db"),
            database=None,
            catalog=None,
            configuration=settings,
            files=tuple(root / name for name in names),
        )

    return make
