"""Figures: totals over all that ever happened, kept beside the history and not forgotten with it.

Events are removed when they are old and epochs are pruned; counts must not go back for that. So every event adds to the
figures in the transaction that writes it down, and every published epoch is counted once: a mark says up to which epoch
of a channel that is done. What comes after the mark is counted by whoever asks, without writing, so that the totals are
the same before and after.

Counts begin again only with a new history file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from anabranch.core.declarations import Action
from anabranch.core.events import (
    ChannelFailed,
    ChannelProgress,
    ChannelRetried,
    EpochDiscarded,
    EpochPublished,
    EpochRecovered,
    EpochRestaged,
    Event,
    EventsDropped,
    NotSent,
    RunStarted,
)
from anabranch.core.events_data import Backfilled
from anabranch.store.records import EpochRecord

TABLE = """CREATE TABLE IF NOT EXISTS figures (
    name TEXT NOT NULL, channel TEXT NOT NULL, labels TEXT NOT NULL, value REAL NOT NULL,
    PRIMARY KEY (name, channel, labels)) WITHOUT ROWID"""

#: Upper bounds of the counts of times, in seconds.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

#: Sums of times are kept in millionths of a second.
MICRO = 1_000_000

_ACTIONS = tuple(Action)

#: What is told anew as a whole, by what tells it: older ones of the same channel go.
_RETOLD = ("lag", "input_rate", "process_rate", "progress_at")

_ADD = "ON CONFLICT DO UPDATE SET value = value + excluded.value"
_SET = "ON CONFLICT DO UPDATE SET value = excluded.value"

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. `adds` says that it is to be added to what is there, or else to take its place."""

    name: str
    channel: str
    labels: Mapping[str, str]
    value: float
    adds: bool = True

    @property
    def key(self) -> Key:
        """What it is the number of."""
        return self.name, self.channel, json.dumps(self.labels, sort_keys=True, ensure_ascii=False)


def told_by(at: float, event: Event) -> Iterator[Figure]:
    """What an event adds.

    >>> [f.name for f in told_by(0.0, EpochDiscarded("requests", 4, "why"))]
    ['epochs_discarded']
    """
    match event:
        case EpochPublished(channel=channel, times=times):
            for step, seconds in times.items():
                yield from _timed("step_seconds", channel, {"step": step}, seconds)
        case ChannelProgress(channel=channel):
            yield from _progress(at, event)
        case EpochDiscarded(channel=channel):
            yield Figure("epochs_discarded", channel, {}, 1)
        case EpochRecovered(channel=channel):
            yield Figure("epochs_recovered", channel, {}, 1)
        case EpochRestaged(channel=channel):
            yield Figure("epochs_restaged", channel, {}, 1)
        case Backfilled(channel=channel, rows=rows):
            for name, count in rows.items():
                yield Figure("rows_backfilled", channel, {"dataset": name}, count)
        case ChannelRetried(channel=channel, code=code):
            yield Figure("channel_retries", channel, {"code": code}, 1)
        case ChannelFailed(channel=channel, code=code):
            yield Figure("channel_failures", channel, {"code": code}, 1)
        case RunStarted(parts=parts):
            yield Figure("runs_started", "", {}, 1)
            for rule in (rule for part in parts for rule in part.rules):
                number = _ACTIONS.index(Action(rule.action))
                yield Figure("rule", "", {"dataset": rule.dataset, "rule": rule.rule}, number, adds=False)
        case EventsDropped(count=count):
            yield Figure("events_dropped", "", {}, count)
        case NotSent(to=to, lost=lost) if lost:
            yield Figure("not_sent", "", {"to": to}, lost)
        case _:
            pass


def told_by_end(outcome: str) -> Figure:
    """What the end of a run adds."""
    return Figure("runs_ended", "", {"outcome": outcome}, 1)


def told_by_epoch(record: EpochRecord, known: Mapping[Key, float]) -> Iterator[Figure]:
    """What a published epoch adds; `known` are the figures there are, which say what rules do."""
    channel = record.key.channel
    yield Figure("epochs_published", channel, {}, 1)
    yield from _timed("window_seconds", channel, {}, record.window)
    for name, receipt in record.receipts.items():
        yield Figure("rows_written", channel, {"dataset": name}, receipt.rows)
        yield Figure("bytes_written", channel, {"dataset": name}, sum(f.size for f in receipt.files))
    for found in record.quality:
        of = {"dataset": found.dataset}
        if found.flow:
            yield Figure("rows_judged", channel, of, found.rows)
            yield Figure("rows_dropped", channel, of, found.dropped)
            yield Figure("dead_letters", channel, of, found.quarantined)
        for rule, count in found.broken.items():
            number = known.get(Figure("rule", "", {**of, "rule": rule}, 0).key)
            action = str(_ACTIONS[int(number)]) if number is not None else "unknown"
            yield Figure("rule_broken", channel, {**of, "rule": rule, "action": action}, count)
    yield Figure("counted_generation", channel, {}, record.key.generation, adds=False)
    yield Figure("counted_epoch", channel, {}, record.key.epoch, adds=False)


def mark_of(known: Mapping[Key, float], channel: str) -> tuple[int, int]:
    """The generation and the epoch up to which a channel is counted."""
    generation = known.get(("counted_generation", channel, "{}"), 0)
    return int(generation), int(known.get(("counted_epoch", channel, "{}"), -1))


def together(known: Mapping[Key, float], more: Iterable[Figure]) -> dict[Key, float]:
    """The figures with others put in.

    >>> one = Figure("epochs_discarded", "requests", {}, 1)
    >>> together(together({}, [one]), [one])
    {('epochs_discarded', 'requests', '{}'): 2}
    """
    found = dict(known)
    for figure in more:
        found[figure.key] = found.get(figure.key, 0) + figure.value if figure.adds else figure.value
    return found


def read(connection: sqlite3.Connection) -> dict[Key, float]:
    """All figures; none of a history that an older version has written."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'figures'").fetchone() is None:
        return {}
    rows = connection.execute("SELECT name, channel, labels, value FROM figures")
    return {(name, channel, labels): value for name, channel, labels, value in rows}


def write(connection: sqlite3.Connection, figures: Iterable[Figure]) -> None:
    """Put figures in, within the transaction of whoever asks."""
    added: dict[Key, float] = {}
    placed: dict[Key, float] = {}
    retold: dict[tuple[str, str], None] = {}
    for figure in figures:
        if figure.adds:
            added[figure.key] = added.get(figure.key, 0) + figure.value
        else:
            placed[figure.key] = figure.value
        if figure.name == "progress_at":
            retold |= dict.fromkeys((name, figure.channel) for name in _RETOLD)
            placed = {k: v for k, v in placed.items() if k[1] != figure.channel or k[0] not in _RETOLD}
            placed[figure.key] = figure.value
    connection.executemany("DELETE FROM figures WHERE name = ? AND channel = ?", retold)
    for values, conflict in ((added, _ADD), (placed, _SET)):
        rows = [(*key, value) for key, value in values.items()]
        connection.executemany(f"INSERT INTO figures VALUES (?, ?, ?, ?) {conflict}", rows)


def count_epochs(connection: sqlite3.Connection, channel: str, records: Iterable[EpochRecord]) -> int:
    """Count the epochs that come after the mark of a channel, in one transaction; how many these were.

    Others may have counted some of them meanwhile: the mark is looked at again inside.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        known = read(connection)
        mark = mark_of(known, channel)
        fresh = [r for r in records if (r.key.generation, r.key.epoch) > mark]
        write(connection, chain.from_iterable(told_by_epoch(record, known) for record in fresh))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return len(fresh)


def _progress(at: float, event: ChannelProgress) -> Iterator[Figure]:
    channel = event.channel
    yield Figure("progress_at", channel, {}, at, adds=False)
    yield Figure("rows_read", channel, {}, event.rows)
    rates: dict[str, Any] = {"input_rate": event.input_rate, "process_rate": event.process_rate}
    for name, rate in rates.items():
        if rate is not None:
            yield Figure(name, channel, {}, rate, adds=False)
    for source in event.sources:
        if source.behind is not None:
            labels = {"source": source.name, "unit": source.unit}
            yield Figure("lag", channel, labels, source.behind, adds=False)


def _timed(name: str, channel: str, labels: Mapping[str, str], seconds: float) -> Iterator[Figure]:
    bound = next((str(bound) for bound in BOUNDS if seconds <= bound), "+Inf")
    yield Figure(name, channel, {**labels, "le": bound}, 1)
    # Whole numbers, whose sum is the same in whatever order they are added: one of fractions could go back a little.
    yield Figure(f"{name}_sum", channel, labels, round(max(0.0, seconds) * MICRO))
