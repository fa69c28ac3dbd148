"""Keep a channel running: one that fails for a passing reason is started again, after longer and longer waits.

Every start recovers what the one before left, so starting again is always safe; whether it can help is what an error's
`retryable` says.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

from pyspark.errors import StreamingQueryException

from anabranch.core.events import ChannelFailed, ChannelRetried, Listener
from anabranch.engine.channel import Running
from anabranch.engine.query_progress import ProgressTeller
from anabranch.engine.source_errors import source_error
from anabranch.engine.source_files_errors import unreadable_file
from anabranch.engine.user_code import told
from anabranch.errors import AnabranchError, StateError, disk_failure

#: How long to wait for a query before looking at other things again.
_LOOK_SECONDS = 0.2

#: What Spark's own errors say when a connection or a machine was the reason, not the query.
_PASSING = re.compile(
    r"java\.net\.|java\.io\.IOException|TimeoutException|ExecutorLostFailure|Connection (refused|reset)|"
    r"FetchFailed|Broken pipe",
    re.IGNORECASE,
)

#: What Spark says of state that was kept for another query.
_STATE = re.compile(
    r"\[(STATE_STORE_\w*SCHEMA\w*|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA|TRANSFORM_WITH_STATE_\w+)"
)


#: What Delta says of a table that is read as a stream and was not only appended to.
_REBUILT = re.compile(r"DELTA_SOURCE_(TABLE_IGNORE_CHANGES|IGNORE_DELETE)|ignoreDeletes|skipChangeCommits")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a channel is started again, and the least and the longest wait in seconds.

    >>> [Retries(3, 5.0, 12.0).wait(n) for n in (1, 2, 3)]
    [5.0, 10.0, 12.0]
    """

    most: int = 2
    least: float = 5.0
    longest: float = 3600.0

    @classmethod
    def of(cls, configuration: Mapping[str, str]) -> Retries:
        """As a project says with the settings of Spark's own pipelines."""
        prefix, usual = "spark.sql.pipelines.", cls()
        return cls(
            int(configuration.get(f"{prefix}maxFlowRetryAttempts", usual.most)),
            float(configuration.get(f"{prefix}execution.watchdog.minRetryTime", usual.least)),
            float(configuration.get(f"{prefix}execution.watchdog.maxRetryTime", usual.longest)),
        )

    def wait(self, attempt: int) -> float:
        """Seconds before a new attempt."""
        return min(self.longest, self.least * 2.0 ** (attempt - 1))


@dataclass
class Supervised:
    """One channel. `begin` starts it; whatever it raises the first time is the caller's."""

    name: str
    begin: Callable[[], AbstractContextManager[Running]]
    retries: Retries
    listener: Listener
    turn: int = 0  # see `core.detached`
    works: list[Running] = field(default_factory=list)
    error: AnabranchError | None = None  # why it ended, if it did not end well
    over: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _progress: ProgressTeller = field(init=False)  # of the query that was started last
    _due: float | None = None  # when it is to be started again
    _starts: int = 0

    def start(self) -> None:
        """Start it, or start it again."""
        self._due = None
        self._starts += 1  # one that fails counts as well
        self.works.append(self._stack.enter_context(self.begin()))
        self._progress = ProgressTeller(self.name, self.listener)

    def stop(self) -> None:
        """Let the epoch in hand finish, and give everything back."""
        self._stack.close()

    def look(self) -> None:
        """Wait a moment for it; start it when that is due, for the first time or again."""
        if not self._starts:
            self._due = time.monotonic()
        if self._due is not None:
            time.sleep(min(_LOOK_SECONDS, max(0.0, self._due - time.monotonic())))
            if time.monotonic() >= self._due:
                try:
                    self.start()
                except AnabranchError as error:
                    self._failed(error)
            return
        running = self.works[-1]
        try:
            running.query.awaitTermination(_LOOK_SECONDS)  # type: ignore[arg-type]  # it takes fractions
            over = not running.query.isActive
            if over:  # it ended since the line before, and says only here that it failed
                running.query.awaitTermination()
        except StreamingQueryException as error:
            self._failed(_reason(running, error))
            return
        self._progress.look(running.query, running.work.epochs, running.work.read, last=over)
        if running.heartbeat.error is not None:
            self._failed(running.heartbeat.error)
        elif over:
            self.over = True

    def _failed(self, error: AnabranchError) -> None:
        attempt = self._starts
        if error.retryable and attempt <= self.retries.most:
            seconds = self.retries.wait(attempt)
            self.listener(ChannelRetried(self.name, error.code, error.message, attempt, seconds))
            self._stack.close()
            self._due = time.monotonic() + seconds
            return
        self.error, self.over = error, True
        self.listener(ChannelFailed(self.name, error.code, error.message, str(error.where or "")))


def _reason(channel: Running, error: StreamingQueryException) -> AnabranchError:
    """Why a query failed: what our own code raised inside it says more than Spark's wrapping."""
    cause = channel.work.failure or error
    if isinstance(cause, AnabranchError):
        return cause
    if taken_over := channel.heartbeat.lost():  # then both wrote to one checkpoint, and that is how Spark found out
        return taken_over
    assert isinstance(cause, Exception)
    if lacking := source_error(cause, channel.work.lease.channel):
        lacking.__cause__ = cause
        return lacking
    if found := _STATE.search(str(cause)):
        name = channel.work.lease.channel
        return StateError(
            "STATE_INCOMPATIBLE",
            f'a flow of channel "{name}" was changed, and the state it has kept does not fit any more ({found[1]})',
            hint=f"undo the change, or rebuild the tables: anabranch run --full-refresh {','.join(channel.work.sinks)}",
        )
    if _REBUILT.search(str(cause)):
        return StateError(
            "UPSTREAM_REBUILT",
            f'channel "{channel.work.lease.channel}" reads a table as rows come into it, and rows of that table were '
            "removed or changed: it was rebuilt, or somebody else wrote to it",
            hint=f"rebuild what it feeds: anabranch run --full-refresh {','.join(channel.work.sinks)}",
        )
    reason = (
        disk_failure(cause) or unreadable_file(cause) or told(cause, f'channel "{channel.work.lease.channel}"', None)
    )
    if _PASSING.search(str(cause)):
        reason.retryable = True
    reason.__cause__ = cause
    return reason
