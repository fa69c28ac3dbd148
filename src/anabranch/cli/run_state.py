"""A run as its events tell it so far: what the moving table and the summary are made from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.core.events import (
    ChannelFailed,
    ChannelProgress,
    ChannelRetried,
    EpochPublished,
    EpochRecovered,
    Event,
    Notice,
    RunFailed,
    RunFinished,
    RunStarted,
)
from anabranch.core.events_data import Backfilled, ViewKept
from anabranch.core.quality import by_dataset


@dataclass
class ChannelState:
    """One channel."""

    state: str = "waiting"
    epoch: int | None = None
    epochs: int = 0
    rows: int = 0  # written
    read: int | None = None  # where Spark has measured it
    rate: float | None = None  # rows written a second, over the last epochs
    behind: Mapping[str, int] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict)
    window: float = 0.0  # the worst
    at: float | None = None  # when its last epoch was published, on the monotonic clock


@dataclass
class DatasetState:
    """One output."""

    is_output: bool = False  # rules may stand on a view as well
    rows: int = 0
    judged: int = 0
    broke: int = 0
    dropped: int = 0
    quarantined: int = 0


@dataclass
class RunState:
    """Everything."""

    pipeline: str = ""
    notice: str = ""
    channels: dict[str, ChannelState] = field(default_factory=dict)
    datasets: dict[str, DatasetState] = field(default_factory=dict)
    failed: dict[str, ChannelFailed] = field(default_factory=dict)
    end: RunFinished | RunFailed | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def dropped(self) -> int:
        """Rows that rules left out."""
        return sum(d.dropped for d in self.datasets.values())

    @property
    def quarantined(self) -> int:
        """Rows that rules put aside."""
        return sum(d.quarantined for d in self.datasets.values())

    def take(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case Notice(message):
                self.notice = message
            case RunStarted(pipeline, channels):
                self.pipeline, self.notice = pipeline, ""
                for name in channels:
                    self._channel(name)
            case EpochPublished():
                self._published(event)
            case ChannelProgress(channel, _, rows):
                of = self._channel(channel)
                of.read, of.behind = (of.read or 0) + rows, event.behind
            case EpochRecovered(channel, epoch, _):
                self._channel(channel).epoch = epoch
            case Backfilled(_, _, rows, _):
                self._wrote(rows)
            case ViewKept(view):
                self._channel(view).state = "left as it is"
            case ChannelRetried(channel, code, _, _, _):
                self._channel(channel).state = f"failed for now ({code})"
            case ChannelFailed(channel, code, _):
                self._channel(channel).state = f"failed ({code})"
                self.failed[channel] = event
            case RunFinished() | RunFailed():
                self.pipeline, self.end = event.pipeline, event
            case _:
                pass

    def _published(self, event: EpochPublished) -> None:
        of, now, rows = self._channel(event.channel), time.monotonic(), sum(event.rows.values())
        seconds = now - of.at if of.at is not None else sum(event.times.values())
        if seconds > 0:
            newest = rows / seconds
            of.rate = newest if of.rate is None else 0.7 * of.rate + 0.3 * newest
        of.state, of.epoch, of.epochs, of.at = "published", event.epoch, of.epochs + 1, now
        of.rows, of.times, of.window = of.rows + rows, event.times, max(of.window, event.window)
        self._wrote(event.rows)
        for found in by_dataset(event.quality):
            one = self._dataset(found.dataset)
            one.judged, one.broke = one.judged + found.rows, one.broke + found.breaking
            one.dropped, one.quarantined = one.dropped + found.dropped, one.quarantined + found.quarantined

    def _wrote(self, rows: Mapping[str, int]) -> None:
        for name, number in rows.items():
            of = self._dataset(name)
            of.is_output, of.rows = True, of.rows + number

    def _channel(self, name: str) -> ChannelState:
        return self.channels.setdefault(name, ChannelState())

    def _dataset(self, name: str) -> DatasetState:
        return self.datasets.setdefault(name, DatasetState())
