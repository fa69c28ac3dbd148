"""What the engine says of sources, sinks and datasets: their rows, their columns, what is kept and what is removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from anabranch.core.events import Event
from anabranch.core.profile import TableProfile


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
class LineageChanged(Event):
    """The columns of a dataset come from others than when it was last looked at, or somebody else answers for it.

    `document` is the lineage that holds from `epoch` on, as JSON; it goes into the history and not into records.
    """

    kind: ClassVar[str] = "lineage_changed"
    channel: str
    dataset: str
    epoch: int
    changed: tuple[str, ...]  # columns whose origins differ
    document: str
    first: bool = False  # nothing was known of it before

    def as_record(self) -> dict[str, Any]:
        """The event as one JSON object, without the document."""
        record = {"event": self.kind, "level": self.level, **asdict(self)}
        return {name: value for name, value in record.items() if name != "document"}


@dataclass(frozen=True, slots=True)
class ColumnsProfiled(Event):
    """What the columns of the rows are like that an epoch has for a table. Its record holds counts, no values."""

    kind: ClassVar[str] = "columns_profiled"
    channel: str
    generation: int
    epoch: int
    dataset: str
    profile: TableProfile

    def as_record(self) -> dict[str, Any]:
        """The counts of every column."""
        columns = {
            name: {"nulls": c.nulls, "nans": c.nans, "distinct": c.distinct.estimate() if c.distinct else None}
            for name, c in self.profile.columns.items()
        }
        said = {name: getattr(self, name) for name in ("channel", "generation", "epoch", "dataset")}
        return {"event": self.kind, "level": self.level, **said, "rows": self.profile.rows, "columns": columns}


@dataclass(frozen=True, slots=True)
class ProfileFailed(Event):
    """The rows of an epoch could not be profiled. They are written all the same."""

    kind: ClassVar[str] = "profile_failed"
    level: ClassVar[str] = "warn"
    channel: str
    epoch: int
    dataset: str
    reason: str


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
