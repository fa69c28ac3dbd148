"""Run a project: one streaming query per channel, until everything is read or a signal comes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType

from pyspark.errors import StreamingQueryException

from anabranch.core.events import ChannelFailed, Listener, RunFinished, RunStarted
from anabranch.engine.channel import Running, running
from anabranch.engine.opened import open_project
from anabranch.engine.planning import Planner, open_spark, plan_with_spark
from anabranch.engine.user_code import told
from anabranch.errors import AnabranchError, Interrupted, disk_failure
from anabranch.load.project import Project

#: How long to wait for a query before looking at the signals and the other channels again.
_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a run did."""

    epochs: int
    rows: int
    seconds: float


class Stop:
    """Whether a signal asked to stop, and which."""

    signal: int | None = None


def run(project: Project, *, once: bool, listener: Listener) -> RunSummary:
    """Run every channel: over what is available and stop (`once`), or until a signal comes."""
    with stop_signals() as stop:
        started = time.monotonic()
        with channels_running(project, partial(plan_with_spark, project), listener, once=once) as channels:
            failed = wait(channels, listener, stop)
    if failed:
        raise failed[0]
    summary = summarize(channels, time.monotonic() - started)
    listener(RunFinished(project.name, summary.epochs, summary.rows, summary.seconds))
    # `--follow` has no end of its own: a service manager's SIGTERM is how it ends well.
    if stop.signal == signal.SIGINT or (stop.signal and once):
        raise Interrupted("INTERRUPTED", "stopped by a signal; every epoch is whole", hint="run again to go on")
    return summary


@contextmanager
def channels_running(project: Project, planner: Planner, listener: Listener, *, once: bool) -> Iterator[list[Running]]:
    """Every channel of a project at work, until the block ends."""
    with open_project(project, create=True) as opened, ExitStack() as stack:
        planned = planner(open_spark(project, listener), opened.channel_of_output())
        channels = [
            stack.enter_context(running(opened, part, planned.frames, listener, once=once))
            for part in planned.plan.channels
        ]
        listener(RunStarted(project.name, tuple(c.work.lease.channel for c in channels)))
        yield channels


def summarize(channels: Sequence[Running], seconds: float) -> RunSummary:
    """What channels have done so far."""
    return RunSummary(sum(c.work.epochs for c in channels), sum(c.work.rows for c in channels), seconds)


def wait(channels: Sequence[Running], listener: Listener, stop: Stop) -> list[AnabranchError]:
    """Until every query has ended; a channel that fails does not stop the others."""
    failed: list[AnabranchError] = []
    waiting = list(channels)
    while waiting and stop.signal is None:
        for channel in list(waiting):
            error = _ended(channel)
            if error is None and channel.query.isActive:
                continue
            waiting.remove(channel)
            if error is not None:
                failed.append(error)
                listener(ChannelFailed(channel.work.lease.channel, error.code, error.message))
    return failed


def _ended(channel: Running) -> AnabranchError | None:
    """Wait a moment for a query; the error it ended with, if it did."""
    try:
        channel.query.awaitTermination(_LOOK_SECONDS)  # type: ignore[arg-type]  # it takes fractions
    except StreamingQueryException as error:
        return _reason(channel, error)
    return channel.heartbeat.error


def _reason(channel: Running, error: StreamingQueryException) -> AnabranchError:
    """Why a query failed: what our own code raised inside it says more than Spark's wrapping."""
    cause = channel.work.failure or error
    if isinstance(cause, AnabranchError):
        return cause
    assert isinstance(cause, Exception)
    reason = disk_failure(cause) or told(cause, f'channel "{channel.work.lease.channel}"', None)
    reason.__cause__ = cause
    return reason


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
