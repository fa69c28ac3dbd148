"""Test a project with pytest: feed rows, run it, read its tables, and kill it wherever you like.

In a `conftest.py`:

    pytest_plugins = ["anabranch.testing"]

In a test:

    def test_slow_requests(anabranch_project):
        project = anabranch_project("path/to/project")           # a copy, with a storage of its own
        project.feed("landing", [{"eventId": "a", "ms": 700}])
        project.run(crash="decided")                             # killed with SIGKILL at this point of the epoch
        project.run()
        assert [row["eventId"] for row in project.rows("slow_requests")] == ["a"]

The points are those of `anabranch.core.crash.POINTS`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anabranch.core.crash import VARIABLE

if TYPE_CHECKING:
    from anabranch.read import Cut

#: What a copy of a project leaves behind: rows of earlier runs, and what tools leave lying about.
_NOT_COPIED = ("_anabranch", "lake", ".git", ".venv", "__pycache__", ".pytest_cache")


@dataclass
class ProjectUnderTest:
    """A project in a folder of its own."""

    folder: Path
    _fed: int = 0

    def feed(self, folder: str, rows: Iterable[Mapping[str, Any]], *, name: str | None = None) -> Path:
        """One more file of JSON lines, or of Parquet if `name` ends so, in a folder of the project."""
        into = self.folder / folder
        into.mkdir(parents=True, exist_ok=True)
        path = into / (name or f"fed-{self._fed:06}.json")
        aside = into / f".{path.name}"
        if path.suffix == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), aside)
        else:
            aside.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
        os.utime(aside, (1_700_000_000 + self._fed, 1_700_000_000 + self._fed))  # Spark takes files in this order
        aside.rename(path)
        self._fed += 1
        return path

    def run(self, *, crash: str | None = None, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Run over what is available, in a process of its own; the events it told.

        With `crash`, it is killed at that point, such as `decided` or `committed(orders)`; a run that never came there
        is a failure, as is one that fails.
        """
        command = [sys.executable, "-m", "anabranch.cli.main", "run", "--once", "--json", "--project", str(self.folder)]
        variables = {**os.environ, **(env or {}), VARIABLE: crash or ""}
        ended = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        expected = -signal.SIGKILL if crash else 0
        if ended.returncode != expected:
            what = f"was not killed at {crash}" if crash and ended.returncode == 0 else f"ended with {ended.returncode}"
            pytest.fail(f"the run {what}:\n{ended.stdout}\n{ended.stderr}", pytrace=False)
        return list(_records(ended.stdout))

    def cut(self, **at: Any) -> Cut:
        """The tables at the last published epoch."""
        from anabranch.read import cut

        return cut(self.folder, **at)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table at the last published epoch."""
        found: list[dict[str, Any]] = self.cut().arrow(table).to_pylist()
        return found


@pytest.fixture
def anabranch_project(tmp_path: Path) -> Callable[[str | Path], ProjectUnderTest]:
    """Copies a project, without the rows of its earlier runs, for one test."""

    def copied(project: str | Path) -> ProjectUnderTest:
        folder = tmp_path / Path(project).resolve().name
        shutil.copytree(project, folder, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        return ProjectUnderTest(folder)

    return copied


def _records(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
