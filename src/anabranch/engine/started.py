"""Run a pipeline that was made in a program rather than loaded from files, in front or in the background."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.core.declarations import Pipeline
from anabranch.core.events import Listener, RunFinished
from anabranch.core.plan import make_plan
from anabranch.core.selection import Selection
from anabranch.engine.flows import resolve_flows
from anabranch.engine.planning import Planned, Planner
from anabranch.engine.run import AtWork, RunSummary, Stop, at_work, wait, watched
from anabranch.load.project import Project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Started:
    """Channels at work in the background."""

    work: AtWork
    began: float = field(default_factory=time.monotonic)
    _stop: Stop = field(default_factory=Stop)

    @property
    def summary(self) -> RunSummary:
        """What has been done so far."""
        return self.work.summary(time.monotonic() - self.began)

    def wait(self) -> RunSummary:
        """Until every channel has ended; raises the first error."""
        failed = wait(self.work, self._stop)
        if failed:
            raise failed[0]
        return self.summary

    def process_available(self) -> None:
        """Until everything that is there now has been taken in."""
        for channel in self.work.channels:
            if channel.works:
                channel.works[-1].query.processAllAvailable()
        self.work.views.refresh_if_moved()


@contextmanager
def started(project: Project, pipeline: Pipeline, listener: Listener, *, once: bool = False) -> Iterator[Started]:
    """The channels of a pipeline at work, until the block ends."""
    with (
        watched(project, listener) as listen,
        at_work(project, planner_of(pipeline), listen, once=once, selection=Selection()) as work,
    ):
        yield Started(work)


def run_to_the_end(project: Project, pipeline: Pipeline, listener: Listener) -> RunSummary:
    """Run a pipeline over what is available."""
    with watched(project, listener) as listen:
        with at_work(project, planner_of(pipeline), listen, once=True, selection=Selection()) as work:
            summary = Started(work).wait()
        listen(RunFinished(project.name, summary.epochs, summary.rows, summary.seconds))
    return summary


def planner_of(pipeline: Pipeline) -> Planner:
    """Plans a pipeline that is already declared."""

    def plan(spark: SparkSession, known: Mapping[str, str]) -> Planned:
        resolved = resolve_flows(spark, pipeline)
        return Planned(make_plan(resolved.graph, known), resolved.frames, resolved.graph)

    return plan
