"""Projects made on the spot, and a run of them in this process."""

from __future__ import annotations

import json
import os
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from anabranch.core.events import Event
from anabranch.load.project import Project, read_project


class Made:
    """A project in a folder of its own, with a landing folder for JSON files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing"
        self.landing.mkdir()
        self.events: list[Event] = []
        self._files = 0

    def write(self, code: str, **spec: Any) -> Project:
        """Write the pipeline's code and its project file."""
        file = self.root / "transformations" / "pipeline.py"
        file.parent.mkdir(exist_ok=True)
        head = "from pyspark.sql import functions as F\nfrom anabranch import pipelines as dp\n"
        file.write_text(head + f"LANDING = {str(self.landing)!r}\n" + textwrap.dedent(code))
        (self.root / "anabranch.yml").write_text(json.dumps({"name": "made", **spec}))
        return self.project

    @property
    def project(self) -> Project:
        return read_project(self.root)

    def feed(self, rows: Iterable[dict[str, Any]]) -> None:
        """One more file of JSON lines."""
        aside = self.landing / f".{self._files}"
        aside.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # Spark takes files in the order of their times, which are too coarse to tell these apart.
        os.utime(aside, (1_700_000_000 + self._files, 1_700_000_000 + self._files))
        aside.rename(self.landing / f"{self._files:04d}.json")
        self._files += 1

    def run(self) -> Any:
        """Run over everything that is there."""
        from anabranch.engine.run import run

        return run(self.project, once=True, listener=self.events.append)

    def until(self, holds: Callable[[], bool], seconds: float = 200.0) -> None:
        """Wait until something holds; not for ever."""
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "what was waited for did not come about"
            time.sleep(0.05)

    def rows(self, table: str, **at: Any) -> list[dict[str, Any]]:
        """The rows of a table at the cut."""
        from anabranch import read

        return read.cut(self.root, **at).arrow(table).to_pylist()


@pytest.fixture
def made(tmp_path: Path, spark: Any) -> Made:
    """A project to be written; Spark is running."""
    return Made(tmp_path)
