"""One look at a project from outside its runs: see, judge, write incidents down, tell targets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.alert_targets import Target, Terminal
from anabranch.core.declarations import Pipeline
from anabranch.core.detector_rules import evaluate
from anabranch.core.detectors import Detector, Judged
from anabranch.errors import ProjectError
from anabranch.load.project import Project
from anabranch.load.python_files import load_pipeline
from anabranch.watch.alerts import Refused, Show, deliver
from anabranch.watch.detect_state import look
from anabranch.watch.incidents import Incident, Incidents, incidents_of


@dataclass(frozen=True, slots=True)
class Watched:
    """A project whose detectors are judged; `notes` name files that could not be looked at without Spark."""

    project: Project
    pipeline: Pipeline
    notes: tuple[ProjectError, ...] = ()

    @property
    def targets(self) -> tuple[Target, ...]:
        """Where alerts go: to the terminal if nothing is said."""
        return self.project.alerts or (Terminal(),)

    @property
    def incidents(self) -> Incidents:
        """The incidents of the project."""
        return incidents_of(self.project)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a look came to: what began, what ended, what goes on, what is not known and who could not be told."""

    opened: tuple[Incident, ...]
    closed: tuple[Incident, ...]
    going_on: tuple[Incident, ...]
    unknown: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[Refused, ...] = ()


def watched(project: Project) -> Watched:
    """Load what a project declares; one without any detector is refused."""
    loaded = load_pipeline(project, with_spark=False)
    if not loaded.pipeline.detectors:
        raise ProjectError(
            "DETECTORS_NONE",
            f'"{project.name}" declares no detectors, so there is nothing to watch for',
            hint="add to the project file: `detectors: [{kind: interruption, on: TABLE}]`",
        )
    return Watched(project, loaded.pipeline, loaded.notes)


def look_once(at: Watched, show: Show, now: float | None = None) -> Outcome:
    """See, judge, write down, tell. May be done by several processes at once, and again after one was killed."""
    moment = time.time() if now is None else now
    sight = look(at.project, at.pipeline, moment)

    def judge(detector: Detector, note: Mapping[str, Any]) -> Judged:
        if reason := sight.unknown.get(detector.name):
            return Judged(unknown=reason)
        return evaluate(detector, sight.observed[detector.name], moment, note)

    incidents = at.incidents
    keep = at.project.history_seconds
    settled = incidents.settle(at.pipeline.detectors, judge, at.targets, moment, keep)
    refused = deliver(incidents, at.targets, at.project.root, show)
    return Outcome(settled.opened, settled.closed, tuple(incidents.open()), settled.unknown, tuple(refused))
