"""The event vocabulary: what the engine says while it works. Progress, logs and history all read these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar

from anabranch.core.hidden import hide
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
class SourceProgress:
    """How far a source was read. `behind` is what it held beyond that, counted in `unit`; None where it cannot tell."""

    name: str
    rows: int
    behind: int | None = None
    unit: str = ""


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
class SinkTold(Event):
    """A sink has something to say that stops nothing: rows it keeps for later, rows that were refused."""

    kind: ClassVar[str] = "sink_told"
    level: ClassVar[str] = "warn"
    sink: str
    message: str


@dataclass(frozen=True, slots=True)
class Compacted(Event):
    """Small files of a table were put together; its rows are the same."""

    kind: ClassVar[str] = "compacted"
    sink: str
    files: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LeftoversRemoved(Event):
    """Files of dead attempts were removed."""

    kind: ClassVar[str] = "leftovers_removed"
    sink: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FilesKept(Event):
    """Files that a published epoch has read were neither archived nor deleted."""

    kind: ClassVar[str] = "files_kept"
    level: ClassVar[str] = "warn"
    channel: str
    files: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class SourceMaySkip(Event):
    """A source is set up to go on without rows that are gone before they were read."""

    kind: ClassVar[str] = "source_may_skip"
    level: ClassVar[str] = "warn"
    channel: str
    message: str


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
    where: str = ""


Listener = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Origin:
    """What an event is about, as far as it says so; `place` is `file:line`."""

    pipeline: str | None = None
    channel: str | None = None
    flow: str | None = None
    dataset: str | None = None
    epoch: int | None = None
    place: str | None = None


def origin(event: Event) -> Origin:
    """What an event is about.

    >>> origin(SinkTold("alerts", "3 rows kept")).dataset, origin(EpochDiscarded("requests", 4, "why")).epoch
    ('alerts', 4)
    """
    said = {f.name: getattr(event, f.name) for f in fields(event)}
    dataset = said.get("dataset") or said.get("sink") or said.get("view")
    return Origin(
        said.get("pipeline"),
        said.get("channel") or said.get("view"),
        said.get("flow"),
        dataset,
        said.get("epoch"),
        said.get("where") or None,
    )


def vocabulary() -> dict[str, tuple[str, ...]]:
    """Every kind of event with its fields.

    >>> vocabulary()["epoch_discarded"]
    ('channel', 'epoch', 'reason')
    """
    return {c.kind: tuple(f.name for f in fields(c)) for c in Event.__subclasses__()}
