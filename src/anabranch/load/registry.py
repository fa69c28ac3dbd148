"""Where declarations go while a project's files are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.declarations import Dataset, Flow
from anabranch.core.where import Where
from anabranch.errors import ProjectError
from anabranch.load.late_binding import Seen, seen_by


@dataclass(frozen=True, slots=True)
class DeclaredFlow:
    """A flow as declared, with what its function saw at that moment."""

    flow: Flow
    seen: Seen


@dataclass(slots=True)
class Registry:
    """What has been declared so far, and what was wrong with it.

    A faulty declaration is reported and the file goes on: one run finds the faults of all of them.
    """

    datasets: list[Dataset] = field(default_factory=list)
    flows: list[DeclaredFlow] = field(default_factory=list)
    problems: list[ProjectError] = field(default_factory=list)

    def add_dataset(self, dataset: Dataset) -> None:
        self.datasets.append(dataset)

    def add_flow(
        self, name: str, target: str, query: Callable[..., Any], where: Where, settings: dict[str, str]
    ) -> None:
        flow = Flow(name, target, query, where, settings=settings)
        self.flows.append(DeclaredFlow(flow, seen_by(query)))

    def report(self, problem: ProjectError) -> None:
        self.problems.append(problem)


_active: ContextVar[Registry | None] = ContextVar("anabranch_registry", default=None)


@contextmanager
def registering(registry: Registry) -> Iterator[Registry]:
    """Declarations made inside go to `registry`."""
    token = _active.set(registry)
    try:
        yield registry
    finally:
        _active.reset(token)


def active_registry(name: str, where: Where) -> Registry:
    """The registry that `name`, used at `where`, declares to."""
    registry = _active.get()
    if registry is None:
        text = f"{name} was called outside a pipeline: running the file with Python declares nothing"
        hint = "put the file in a project and use `anabranch run`; `anabranch init` makes a project"
        raise ProjectError("NOT_LOADING", text, where=where, hint=hint)
    return registry
