"""Detectors: what is declared about how a pipeline should go on, and what there is to see when it is looked at.

Declared on a dataset, a flow or a channel, and judged outside the run, so that a process that died is noticed too.
`detector_rules.evaluate` judges; it has no clock and asks nobody, so that a look can be repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from anabranch.core.where import Where


class Severity(StrEnum):
    """How bad it is when a detector fires."""

    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Interruption:
    """No rows are written though there are some. Without `within`: ten triggers, at least ten minutes.

    With `lulls` a source that has nothing is no interruption; without, every `within` must see rows written.

    >>> Interruption("orders", "orders", Where("anabranch.yml", 9), within=600.0).lulls
    True
    """

    kind: ClassVar[str] = "interruption"
    name: str
    on: str
    where: Where
    severity: Severity = Severity.WARN
    within: float | None = None
    lulls: bool = True


@dataclass(frozen=True, slots=True)
class Period:
    """Days on which another tolerance holds, from `begin` until before `end`; without one, nothing is compared."""

    begin: float
    end: float
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Skew:
    """The rows of a run, an epoch or a stretch of time (`over`, in seconds) differ too much from the last good one.

    `tolerance` is a share of the last good one, up and down. What began before `since` is not compared.

    >>> Skew("orders", "orders", Where("anabranch.yml", 9)).tolerance
    0.5
    """

    kind: ClassVar[str] = "skew"
    name: str
    on: str
    where: Where
    severity: Severity = Severity.WARN
    over: Literal["runs", "epochs"] | float = "runs"
    tolerance: float = 0.5
    at_least: int = 0  # fewer rows than this, both times, are not compared
    since: float | None = None
    periods: tuple[Period, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionSkew:
    """The rows of the last `within` lie unevenly over partitions: their standard deviation, divided by their mean.

    `of` is `partitions`, those of the table, or `source`, those of the topics it is read from.
    """

    kind: ClassVar[str] = "skew"
    name: str
    on: str
    where: Where
    severity: Severity = Severity.WARN
    of: Literal["partitions", "source"] = "partitions"
    ratio: float = 0.5
    at_least: int = 100
    within: float = 3600.0


@dataclass(frozen=True, slots=True)
class Lag:
    """A source holds more than was read. The worst partition counts, or the `percentile` of all of them.

    `unit` is `time`, for how long something has been waiting, or a count in the source's own unit. Without `most`: ten
    triggers, at least ten minutes. `ask` has the options with which Kafka itself is asked, also while nothing runs.
    """

    kind: ClassVar[str] = "lag"
    name: str
    on: str
    where: Where
    severity: Severity = Severity.WARN
    unit: Literal["time", "offsets", "files", "versions"] = "time"
    most: float | None = None
    percentile: float | None = None
    ask: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sla:
    """An epoch or a run takes longer than promised, or its rows are older than promised when they can be read.

    `measure` is `processing`, from the begin to the publication, or `event_time`, from when rows came to be: that of
    the newest row of an epoch, the oldest or the mean.
    """

    kind: ClassVar[str] = "sla"
    name: str
    on: str
    where: Where
    measure: Literal["processing", "event_time"]
    promise: float
    severity: Severity = Severity.WARN
    per: Literal["epoch", "run"] = "epoch"
    rows: Literal["newest", "oldest", "mean"] = "newest"
    percentile: float | None = None


Detector = Interruption | Skew | PartitionSkew | Lag | Sla


# What there is to see


@dataclass(frozen=True, slots=True)
class SeenEpoch:
    """An epoch of the ledger, with what the run told of it. Only outputs that took rows have been written to."""

    generation: int
    epoch: int
    began: float
    published: float | None = None  # None while it is not finished
    rows: Mapping[str, int] = field(default_factory=dict)  # written, by output
    written: Mapping[str, float] = field(default_factory=dict)  # when each output had it
    read: int | None = None  # rows of all sources; None where nobody told
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # rows by output and partition
    offsets: Mapping[str, int] = field(default_factory=dict)  # where each partition of the sources was read to
    event_times: Mapping[str, float] = field(default_factory=dict)  # newest, oldest, mean


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run; `rows` by output, without those that it wrote no epoch of. `ended` of one that died is about when."""

    run: str
    started: float
    ended: float | None
    outcome: str
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LagReading:
    """What each partition of a source held beyond what was read, at a time."""

    at: float
    unit: str
    behind: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Begun:
    """An epoch whose rows are chosen and that is in no ledger yet."""

    epoch: int
    since: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What is known of what a detector is on. Everything is in the order it happened, the newest last."""

    channel: str
    outputs: tuple[str, ...]
    trigger: float
    epochs: Sequence[SeenEpoch] = ()
    runs: Sequence[SeenRun] = ()
    lags: Sequence[LagReading] = ()
    begun: Begun | None = None

    @property
    def patience(self) -> float:
        """How long to wait where nobody said so."""
        return max(600.0, 10 * self.trigger)


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a detector fires: `value` is what was seen and `limit` what it may be."""

    message: str
    value: float
    limit: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a look. `note` is handed to the next one; `unknown` says why nothing can be said.

    What is unknown opens no incident, and ends none.
    """

    finding: Finding | None = None
    note: Mapping[str, Any] = field(default_factory=dict)
    unknown: str | None = None
