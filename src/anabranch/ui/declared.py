"""What the project declares, as the page knows it: read again when a file has changed, never waited for twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from anabranch.core.environment import VARIABLE, chosen_environment
from anabranch.load.project import Project, examine_project
from anabranch.ui.examine import checkpoint_marks

#: Files are looked at no more often than this, in seconds.
_LOOK_AGAIN = 2.0
#: Seconds after which files that are still being read count as not loading.
_PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, in words, with a way out."""

    message: str
    hint: str | None = None
    code: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """An expectation, or a rule on all rows together."""

    name: str
    condition: str
    action: str
    place: str | None


@dataclass(frozen=True, slots=True)
class Node:
    """A dataset, or something outside that is read."""

    name: str
    kind: str
    zone: str = ""
    channel: str | None = None
    outside: bool = False
    format: str | None = None
    comment: str | None = None
    place: str | None = None
    owner: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    quarantine: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A flow that reads `source` and feeds `target`."""

    source: str
    target: str
    flow: str
    sure: bool = True


@dataclass(frozen=True)
class Declared:
    """What was read, or why it could not be; `ready` is False while it is read for the first time."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    notes: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()
    ready: bool = True

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    def inputs(self, name: str) -> list[str]:
        """What a dataset reads."""
        return list(dict.fromkeys(e.source for e in self.edges if e.target == name))

    def readers(self, name: str) -> list[str]:
        """The datasets that read it."""
        return list(dict.fromkeys(e.target for e in self.edges if e.source == name))


class Declarations:
    """The newest declarations of a project. May be asked from any thread; only the first answer is waited for."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._environment = chosen_environment()
        self._lock = threading.Lock()
        self._first = threading.Event()
        self._looked = 0.0
        self._signature: tuple[Any, ...] | None = None
        self._found = Declared(ready=False)

    def now(self, patience: float = 20.0) -> Declared:
        """What is known; a change of a file shows with one of the next answers."""
        self.look()
        self._first.wait(patience)
        return self._found

    def look(self) -> None:
        """See whether a file has changed, beside the work of whoever asks."""
        if time.monotonic() - self._looked > _LOOK_AGAIN and self._lock.acquire(blocking=False):
            self._looked = time.monotonic()
            threading.Thread(target=self._work, name="anabranch-ui-declared", daemon=True).start()

    def _work(self) -> None:
        try:
            signature = self._sign()
            if signature != self._signature:
                found = self._examined()
                # What could be drawn before stays on the page, beside the problem.
                before = self._found
                self._found = Declared(before.nodes, before.edges, (), found.problems) if found.problems else found
                self._signature = signature
        finally:
            self._first.set()
            self._lock.release()

    def _sign(self) -> tuple[Any, ...]:
        project = examine_project(self._project.spec_file).project or self._project
        files = {project.spec_file, *project.files, *checkpoint_marks(self._project)}
        if zones := project.zones:
            files |= {one.file.path for said in (zones.entities, zones.zones, zones.sources) for one in said.values()}
        return tuple((str(file), _changed_at(file)) for file in sorted(files))

    def _examined(self) -> Declared:
        environment = {**os.environ, **({VARIABLE: self._environment} if self._environment else {})}
        command = [sys.executable, "-m", "anabranch.ui.examine", str(self._project.spec_file)]
        try:
            done = subprocess.run(
                command, capture_output=True, env=environment, cwd=self._project.root, timeout=_PATIENCE, check=False
            )
        except subprocess.TimeoutExpired:
            problem = f"the project's files did not come to an end within {_PATIENCE:.0f} seconds"
            return Declared(problems=(Problem(problem, "anabranch check shows where they stop"),))
        if done.returncode or not done.stdout:
            problem = f"reading the project's files ended with exit code {done.returncode}"
            return Declared(problems=(Problem(problem, "anabranch check shows why"),))
        return as_declared(json.loads(done.stdout))


def as_declared(document: dict[str, Any]) -> Declared:
    """The document of `examine`."""
    nodes = (Node(**{**n, "rules": tuple(Rule(**r) for r in n["rules"])}) for n in document["nodes"])
    return Declared(
        tuple(nodes),
        tuple(Edge(**e) for e in document["edges"]),
        tuple(Problem(**p) for p in document["notes"]),
        tuple(Problem(**p) for p in document["problems"]),
    )


def _changed_at(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
