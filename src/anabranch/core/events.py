"""The event vocabulary: what the engine says while it works. Progress, logs and history all read these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from anabranch.core.quality import FlowQuality


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `kind` names it; `level` is `info`, `warn` or `error`."""

    kind: ClassVar[str] = "event"
    level: ClassVar[str] = "info"

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


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """A run ended as it was asked to."""

    kind: ClassVar[str] = "run_finished"
    pipeline: str
    epochs: int
    rows: int
    seconds: float


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
class LeftoversRemoved(Event):
    """Files of dead attempts were removed."""

    kind: ClassVar[str] = "leftovers_removed"
    sink: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class WatermarkShared(Event):
    """Flows of a channel wait for each other, because a query has one watermark."""

    kind: ClassVar[str] = "watermark_shared"
    level: ClassVar[str] = "warn"
    channel: str
    message: str


@dataclass(frozen=True, slots=True)
class OutputsRemoved(Event):
    """Outputs that the channel had are no longer declared; their tables stay as they are."""

    kind: ClassVar[str] = "outputs_removed"
    level: ClassVar[str] = "warn"
    channel: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueryChanged(Event):
    """The flows of a table compute something else than when its rows were made; from now on they do."""

    kind: ClassVar[str] = "query_changed"
    level: ClassVar[str] = "warn"
    dataset: str
    where: str


@dataclass(frozen=True, slots=True)
class Backfilled(Event):
    """Outputs were given the rows of all epochs up to the newest one; the others were not touched."""

    kind: ClassVar[str] = "backfilled"
    channel: str
    epoch: int
    rows: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class ViewKept(Event):
    """A materialized view was left as it is."""

    kind: ClassVar[str] = "view_kept"
    view: str
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


Listener = Callable[[Event], None]


def vocabulary() -> dict[str, tuple[str, ...]]:
    """Every kind of event with its fields.

    >>> vocabulary()["epoch_discarded"]
    ('channel', 'epoch', 'reason')
    """
    return {c.kind: tuple(f.name for f in fields(c)) for c in Event.__subclasses__()}
