"""What the engine says while it works: events of runs, channels and epochs. Progress, logs and history read these.

Those of sources and datasets are in `events_data`; `event_kinds` knows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from anabranch.core.hidden import hide
from anabranch.core.places import ChannelParts
from anabranch.core.quality import FlowQuality


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `kind` names it; `level` is `info`, `warn` or `error`.

    Secrets are taken out of its texts when it is made, so that it can be shown and stored by anybody.
    """

    kind: ClassVar[str] = "event"
    level: ClassVar[str] = "info"

    def __post_init__(self) -> None:
        for each in fields(self):
            if isinstance(text := getattr(self, each.name), str):
                object.__setattr__(self, each.name, hide(text))

    def as_record(self) -> dict[str, Any]:
        """The event as one JSON object.

        >>> EpochDiscarded("requests", 4, "staging failed").as_record()["event"]
        'epoch_discarded'
        """
        return {"event": self.kind, "level": self.level, **asdict(self)}


@dataclass(frozen=True, slots=True)
class Notice(Event):
    """Something that takes a while has begun."""

    kind: ClassVar[str] = "notice"
    message: str


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run holds its leases and begins."""

    kind: ClassVar[str] = "run_started"
    pipeline: str
    channels: tuple[str, ...]
    parts: tuple[ChannelParts, ...] = ()  # what each of them reads, writes and judges


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """A run ended as it was asked to."""

    kind: ClassVar[str] = "run_finished"
    pipeline: str
    epochs: int
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """A run ended with an error; what it had published stays."""

    kind: ClassVar[str] = "run_failed"
    level: ClassVar[str] = "error"
    pipeline: str
    code: str
    message: str
    epochs: int
    rows: int
    seconds: float
    where: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class EventsDropped(Event):
    """Events came faster than they could be written down; the oldest that waited are not in the history."""

    kind: ClassVar[str] = "events_dropped"
    level: ClassVar[str] = "warn"
    count: int


@dataclass(frozen=True, slots=True)
class NotSent(Event):
    """What was to be told outside the project (lineage, spans) could not be; the run itself is well.

    It is told once when that begins, and once at the end of the run with how much was lost.
    """

    kind: ClassVar[str] = "not_sent"
    level: ClassVar[str] = "warn"
    to: str
    message: str
    lost: int = 0


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """How far a source was read. `behind` is what it held beyond that, counted in `unit`; None where it cannot tell."""

    name: str
    rows: int
    behind: int | None = None
    unit: str = ""
    partitions: Mapping[str, int] = field(default_factory=dict)  # what each of them is behind, where that is known


@dataclass(frozen=True, slots=True)
class ChannelProgress(Event):
    """How fast a channel reads, told after epochs, at most once a second. Rates are in rows a second."""

    kind: ClassVar[str] = "channel_progress"
    channel: str
    epoch: int
    rows: int  # read since this was told before
    input_rate: float | None
    process_rate: float | None
    sources: tuple[SourceProgress, ...] = ()
    first: int | None = None  # the first epoch of those that are told of; None for the last one alone
    event_times: Mapping[str, float] = field(default_factory=dict)  # newest, oldest, mean; needs a watermark

    @property
    def behind(self) -> Mapping[str, int]:
        """What all sources that can tell are behind, by unit."""
        units = dict.fromkeys(s.unit for s in self.sources if s.behind is not None)
        return {unit: sum(s.behind or 0 for s in self.sources if s.unit == unit) for unit in units}


@dataclass(frozen=True, slots=True)
class EpochPublished(Event):
    """Every output of a channel stands at this epoch and readers of the cut see it. Times are in seconds."""

    kind: ClassVar[str] = "epoch_published"
    channel: str
    generation: int
    epoch: int
    rows: Mapping[str, int]
    times: Mapping[str, float] = field(default_factory=dict)
    window: float = 0.0  # between the first and the last sink's commit: what plain readers may see torn
    quality: tuple[FlowQuality, ...] = ()  # of the flows into datasets with expectations
    applied: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # within `apply`: when each sink took it
    records: Mapping[str, int] = field(
        default_factory=dict
    )  # of native flows: how many were "native", how many Spark's

    @property
    def native_share(self) -> float | None:
        """How much of the records of native flows was computed natively; None without such flows.

        >>> EpochPublished("c", 1, 0, {}, records={"native": 9998, "spark": 2}).native_share
        0.9998
        """
        total = sum(self.records.values())
        return self.records.get("native", 0) / total if total else None


@dataclass(frozen=True, slots=True)
class EpochRecovered(Event):
    """A decided epoch that a crash had left open was finished from its staged files."""

    kind: ClassVar[str] = "epoch_recovered"
    channel: str
    epoch: int
    sinks: tuple[str, ...]  # those that still had to take it


@dataclass(frozen=True, slots=True)
class EpochRestaged(Event):
    """Staged files of a decided epoch were damaged; those sinks are staged again from the same offsets."""

    kind: ClassVar[str] = "epoch_restaged"
    level: ClassVar[str] = "warn"
    channel: str
    epoch: int
    sinks: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class EpochDiscarded(Event):
    """An epoch was given up before it was decided; nothing of it is visible."""

    kind: ClassVar[str] = "epoch_discarded"
    level: ClassVar[str] = "warn"
    channel: str
    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class ChannelRetried(Event):
    """A channel stopped for a reason that may pass; it is started again after a wait, in seconds."""

    kind: ClassVar[str] = "channel_retried"
    level: ClassVar[str] = "warn"
    channel: str
    code: str
    message: str
    attempt: int
    wait: float


@dataclass(frozen=True, slots=True)
class ChannelFailed(Event):
    """A channel stopped with an error."""

    kind: ClassVar[str] = "channel_failed"
    level: ClassVar[str] = "error"
    channel: str
    code: str
    message: str
    where: str = ""


Listener = Callable[[Event], None]
