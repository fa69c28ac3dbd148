"""Run a project: one streaming query per channel, until everything is read or a signal comes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from anabranch.core.events import Listener, RunFinished, RunStarted
from anabranch.core.events_data import SourceMaySkip, WatermarkShared
from anabranch.core.plan import ChannelPlan
from anabranch.core.quality import quarantine_name
from anabranch.core.selection import Selection
from anabranch.engine.backfill import Past
from anabranch.engine.channel import Running, running
from anabranch.engine.event_log import recorded
from anabranch.engine.opened import Opened, open_project
from anabranch.engine.parts import channel_parts
from anabranch.engine.planning import Planned, Planner, open_spark, plan_with_spark
from anabranch.engine.source_loss import may_skip
from anabranch.engine.storage import Storage
from anabranch.engine.supervise import Retries, Supervised
from anabranch.engine.traced import first_epochs, tracer_of
from anabranch.engine.upkeep import reset
from anabranch.engine.views import Views
from anabranch.engine.watermarks import shared_watermark
from anabranch.errors import AnabranchError, Interrupted
from anabranch.load.project import Project
from anabranch.watch.attached import attached

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did."""

    epochs: int
    rows: int
    seconds: float


class Stop:
    """Whether a signal asked to stop, and which."""

    signal: int | None = None


def run(project: Project, *, once: bool, listener: Listener, selection: Selection | None = None) -> RunSummary:
    """Run every channel, or those selected: over what is available and stop (`once`), or until a signal comes."""
    chosen = selection or Selection()
    with watched(project, listener, chosen) as listen, stop_signals() as stop:
        started = time.monotonic()
        with at_work(project, partial(plan_with_spark, project), listen, once=once, selection=chosen) as work:
            failed = wait(work, stop)
        if failed:
            raise failed[0]
        summary = work.summary(time.monotonic() - started)
        listen(RunFinished(project.name, summary.epochs, summary.rows, summary.seconds))
        # `--follow` has no end of its own: a service manager's SIGTERM is how it ends well.
        if stop.signal == signal.SIGINT or (stop.signal and once):
            raise Interrupted("INTERRUPTED", "stopped by a signal; every epoch is whole", hint="run again to go on")
    return summary


@contextmanager
def watched(project: Project, listener: Listener, selection: Selection | None = None) -> Iterator[Listener]:
    """The listener of one run of a project, whose events go into the project's history and to whoever watches."""
    path, asked = Storage.of(project.storage).history, selection.in_words() if selection else ""
    with (
        recorded(
            listener, path, project.name, keep_seconds=project.history_seconds, selection=asked or None
        ) as recording,
        attached(project, recording) as listen,
    ):
        yield listen


@dataclass(frozen=True)
class AtWork:
    """The channels of a pipeline, each with its query, and the views that are refreshed between their epochs."""

    channels: list[Supervised]
    views: Views
    once: bool
    seconds: float  # between two looks whether views must be refreshed

    def summary(self, seconds: float) -> RunSummary:
        """What has been done so far."""
        works = [running.work for c in self.channels for running in c.works]
        epochs = sum(w.epochs for w in works) + self.views.epochs
        return RunSummary(epochs, sum(w.rows for w in works) + self.views.rows, seconds)


@contextmanager
def at_work(
    project: Project, planner: Planner, listener: Listener, *, once: bool, selection: Selection
) -> Iterator[AtWork]:
    """A pipeline at work, or the selected part of it, until the block ends."""
    with open_project(project, create=True) as opened, ExitStack() as stack:
        spark = open_spark(project, listener)
        planned = planner(spark, opened.channel_of_output())
        selection.check(planned.graph.pipeline)
        plans = Plans(opened, spark, planner, listener, planned)
        chosen = [part for part in planned.plan.channels if selection.takes(d.name for d in part.outputs)]
        retries = Retries.of(project.configuration)
        tracer = tracer_of(project, spark, planned, listener)
        begins: dict[str, tuple[str, int]] = {}
        channels = []
        for part in sorted(chosen, key=lambda part: part.channel.turn):
            name, turn = part.channel.name, part.channel.turn
            for note in shared_watermark(part, planned.frames):
                listener(WatermarkShared(name, note))
            for note in may_skip(part, planned.frames):
                listener(SourceMaySkip(name, note))
            begin = partial(plans.running, name, turn, once=once, rebuild=rebuilt(opened, part, selection))
            channel = Supervised(name, begin, retries, listener, turn)
            stack.callback(channel.stop)
            begins |= first_epochs(opened, part)
            if turn == 0 or not once:  # over what is available, each turn waits for the one before
                channel.start()
            channels.append(channel)
        tracer.look(planned.frames, begins)
        views = Views(opened, spark, planned, listener, selection, tracer=tracer)
        names = (*(c.name for c in channels), *(v.channel.name for v in views.chosen))
        parts = channel_parts(
            [*chosen, *views.chosen], planned.frames, planned.graph, opened.storage, str(project.root), listener
        )
        listener(RunStarted(project.name, names, parts))
        yield AtWork(channels, views, once, project.trigger_seconds)


@dataclass
class Plans:
    """The plan of a run; made again when tables that detached ones read are there at last."""

    opened: Opened
    spark: SparkSession
    planner: Planner
    listener: Listener
    planned: Planned

    def running(self, name: str, turn: int, *, once: bool, rebuild: frozenset[str]) -> AbstractContextManager[Running]:
        """A channel at work."""
        if turn and self.planned.missing:
            self.planned = self.planner(self.spark, self.opened.channel_of_output())
        now = self.planned
        part = next(part for part in now.plan.channels if part.channel.name == name)
        past = Past(self.opened, self.spark, now, self.listener)
        return running(self.opened, part, now.frames, self.listener, past, once=once, rebuild=rebuild)


def rebuilt(opened: Opened, part: ChannelPlan, selection: Selection) -> frozenset[str]:
    """The outputs that are rebuilt one by one; where it is all of a channel, the channel is started over instead."""
    chosen = selection.rebuilds(part.outputs)
    chosen |= {d.name for d in part.outputs if any(d.name == quarantine_name(name) for name in chosen)}
    if chosen == {d.name for d in part.outputs}:
        if opened.channel(part.channel.name):
            reset(opened, part.channel.name)
        return frozenset()
    return chosen


def wait(work: AtWork, stop: Stop) -> list[AnabranchError]:
    """Until every query has ended and the views are up to date; one that fails does not stop the others."""
    looked = time.monotonic()
    while stop.signal is None and (waiting := [c for c in work.channels if not c.over]):
        if not work.once and time.monotonic() - looked > work.seconds:
            work.views.refresh_if_moved()
            looked = time.monotonic()
        turn = min(c.turn for c in waiting)
        for channel in waiting:
            if channel.turn == turn or not work.once:
                channel.look()
    failed = [c for c in work.channels if c.error is not None]
    errors = [c.error for c in failed if c.error is not None]
    if work.once and stop.signal is None:
        errors += work.views.refresh(frozenset(n for c in failed for w in c.works[-1:] for n in w.work.sinks))
    return errors


@contextmanager
def stop_signals() -> Iterator[Stop]:
    """Turn SIGINT and SIGTERM into a wish to stop; a second one ends the process at once."""
    stop = Stop()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.signal is not None:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.signal = number

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
