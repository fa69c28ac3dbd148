"""The history: every event and every run of a project, for whoever looks while the engine works or after it died.

Reading needs neither a JVM nor the ledger. A `History` keeps nothing open, so it may be shared by threads, and may be
made before the first run, during one and after.

    history = History.of(project.storage)
    history.runs(limit=5)                                  # newest first; one without an end says whether it died
    history.events(level="warn", limit=50)                 # the newest that went wrong, oldest of them first
    history.events(after=last_seen)                        # what came since: poll this to follow
    history.rows_over_time("silver.orders", since=day_ago) # for plots
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from anabranch.core.events import ChannelProgress, EpochPublished
from anabranch.errors import StateError
from anabranch.store import figures
from anabranch.store.history_file import NAME, connect_to_read, is_damaged
from anabranch.store.process import Holder

T = TypeVar("T")

#: Levels, each with those that are at least as bad.
LEVELS: Mapping[str, tuple[str, ...]] = {
    "info": ("info", "warn", "error"),
    "warn": ("warn", "error"),
    "error": ("error",),
}

#: A run in another container or on another machine that was not seen for this long, in seconds, counts as dead.
_UNSEEN = 60.0


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it was written down. `sequence` only ever grows; `details` are the event's own fields."""

    sequence: int
    id: str
    run: str
    at: float
    level: str
    kind: str
    pipeline: str | None
    channel: str | None
    flow: str | None
    dataset: str | None
    epoch: int | None
    place: str | None
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run: `outcome` is `running`, `done`, `stopped`, `failed` or `died`; `code` and `message` say why it failed."""

    run: str
    pipeline: str
    pid: int
    host: str
    started: float
    ended: float | None
    outcome: str
    epochs: int
    rows: int
    code: str | None
    message: str | None
    selection: str | None
    seen: float  # when it last wrote; of a run that died, about when

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        end = time.time() if self.outcome == "running" else self.ended or self.seen
        return max(0.0, end - self.started)


@dataclass(frozen=True, slots=True)
class EpochPoint:
    """What one epoch did to one dataset. The last four are 0 for a dataset without expectations."""

    at: float
    channel: str
    epoch: int
    rows: int
    judged: int = 0
    broke: int = 0
    dropped: int = 0
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class StepPoint:
    """How long the steps of one epoch took, and how long its outputs could be seen torn, in seconds."""

    at: float
    channel: str
    epoch: int
    times: Mapping[str, float]
    window: float
    rows: int


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """How fast a channel read, in rows a second, and how far its sources were ahead of it, by unit."""

    at: float
    channel: str
    epoch: int
    rows: int
    input_rate: float | None
    process_rate: float | None
    behind: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class History:
    """The history in one file, for reading."""

    path: Path

    @classmethod
    def of(cls, storage: str | Path) -> History:
        """The history of the project with this storage folder; it may not be there yet."""
        return cls(Path(storage) / "_anabranch" / NAME)

    def events(
        self,
        *,
        after: int | None = None,
        level: str = "info",
        kinds: Sequence[str] = (),
        channel: str | None = None,
        dataset: str | None = None,
        run: str | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> list[StoredEvent]:
        """Events in the order they came: the newest `limit`, or with `after` the first ones after that sequence.

        `level` is the least bad one wanted. `dataset` finds epochs that wrote to it as well.
        """
        tests: list[str] = []
        values: list[Any] = []

        def need(test: str, *given: Any) -> None:
            tests.append(test)
            values.extend(given)

        if after is not None:
            need("sequence > ?", after)
        if level != "info":
            need(f"level <> 'info' AND level IN ({_marks(LEVELS[level])})", *LEVELS[level])
        if kinds:
            need(f"kind IN ({_marks(kinds)})", *kinds)
        if channel is not None:
            need("channel = ?", channel)
        if dataset is not None:
            wrote = "EXISTS (SELECT 1 FROM json_each(details, '$.rows') WHERE key = ?)"
            need(f"(dataset = ? OR (kind IN ('epoch_published', 'backfilled') AND {wrote}))", dataset, dataset)
        if run is not None:
            need("run = ?", run)
        if since is not None:
            need("at >= ?", since)
        where = f"WHERE {' AND '.join(tests)} " if tests else ""
        order = "ASC" if after is not None else "DESC"
        query = f"SELECT {_EVENT} FROM events {where}ORDER BY sequence {order} LIMIT ?"
        found = [_event(row) for row in self._rows(query, *values, limit)]
        return found if after is not None else found[::-1]

    def newest(self) -> int:
        """The sequence of the newest event; 0 when there is none."""
        rows = self._rows("SELECT max(sequence) FROM events")
        return int(rows[0][0] or 0) if rows else 0

    def runs(self, *, limit: int = 20, outcome: str | None = None) -> list[StoredRun]:
        """Runs, newest first."""
        open_ended = outcome in ("running", "died")  # which of the two is not in the file
        test, values = ("ended IS NULL", ()) if open_ended else ("?1 IS NULL OR outcome = ?1", (outcome,))
        query = (
            f"SELECT {_RUN} FROM runs WHERE {test} ORDER BY started DESC, run LIMIT {-1 if open_ended else int(limit)}"
        )
        found = (_run(row) for row in self._rows(query, *values))
        return [run for run in found if outcome in (None, run.outcome)][:limit]

    def run(self, run: str) -> StoredRun | None:
        """One run."""
        rows = self._rows(f"SELECT {_RUN} FROM runs WHERE run = ?", run)
        return _run(rows[0]) if rows else None

    def rows_by_run(self, runs: Sequence[str]) -> dict[str, dict[str, int]]:
        """The rows that runs wrote to each dataset; a dataset that none of its epochs had is not among them."""
        query = (
            "SELECT run, each.key AS dataset, sum(each.value) AS rows "
            "FROM events, json_each(details, '$.rows') AS each "
            f"WHERE kind = 'epoch_published' AND run IN ({_marks(runs)}) GROUP BY 1, 2"
        )
        found: dict[str, dict[str, int]] = {}
        for row in self._rows(query, *runs):
            found.setdefault(row["run"], {})[row["dataset"]] = int(row["rows"])
        return found

    def rows_over_time(self, dataset: str, *, since: float = 0.0, limit: int = 500) -> list[EpochPoint]:
        """Rows and quality of a dataset, one point an epoch, oldest first."""
        found = self.events(kinds=[EpochPublished.kind], dataset=dataset, since=since, limit=limit)
        return [_epoch_point(event, dataset) for event in found]

    def steps_over_time(self, channel: str | None = None, *, since: float = 0.0, limit: int = 500) -> list[StepPoint]:
        """Step times and torn windows, one point an epoch, oldest first."""
        return [
            StepPoint(e.at, e.channel or "", e.epoch or 0, d["times"], d["window"], sum(d["rows"].values()))
            for e in self.events(kinds=[EpochPublished.kind], channel=channel, since=since, limit=limit)
            for d in [e.details]
        ]

    def progress_over_time(
        self, channel: str | None = None, *, since: float = 0.0, limit: int = 500
    ) -> list[ProgressPoint]:
        """Rates and lag of channels, oldest first; at most one point a second and channel."""
        found = self.events(kinds=[ChannelProgress.kind], channel=channel, since=since, limit=limit)
        return [_progress_point(event) for event in found]

    def kept(self, table: str, query: str, *values: Any) -> list[sqlite3.Row]:
        """What stands beside events and runs; nothing while the history is older than the table."""
        is_there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return self._rows(query, *values) if self._rows(is_there, table) else []

    def figures(self) -> dict[figures.Key, float]:
        """Totals over all that ever happened, and what was told last."""
        return self._asked(figures.read) or {}

    def _rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        return self._asked(lambda connection: connection.execute(query, values).fetchall()) or []

    def _asked(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """The answer; None while there is no history."""
        if not self.path.exists():
            return None
        try:
            connection = connect_to_read(self.path)
            try:
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0 and not _has_tables(connection):
                    return None  # its first writer has just begun it
                return work(connection)
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from error


_EVENT = "sequence, id, run, at, level, kind, pipeline, channel, flow, dataset, epoch, place, message, details"
_RUN = "run, pipeline, pid, host, started, ended, outcome, epochs, rows, code, message, selection, seen, process"


def _has_tables(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" for _ in values)


def _event(row: sqlite3.Row) -> StoredEvent:
    return StoredEvent(**{**dict(row), "details": json.loads(row["details"])})


def _run(row: sqlite3.Row) -> StoredRun:
    said = dict(row)
    holder = Holder(**json.loads(said.pop("process")))
    if said["ended"] is None:
        unseen = time.time() - said["seen"] > _UNSEEN
        said["outcome"] = "died" if holder.is_gone() or (unseen and not holder.is_here()) else "running"
    return StoredRun(**said)


def _epoch_point(event: StoredEvent, dataset: str) -> EpochPoint:
    judged = [q for q in event.details["quality"] if q["dataset"] == dataset and q["flow"]]
    sums = (sum(q[name] for q in judged) for name in ("rows", "breaking", "dropped", "quarantined"))
    return EpochPoint(event.at, event.channel or "", event.epoch or 0, event.details["rows"][dataset], *sums)


def _progress_point(event: StoredEvent) -> ProgressPoint:
    said, behind = event.details, dict[str, int]()
    for source in said["sources"]:
        if source["behind"] is not None:
            behind[source["unit"]] = behind.get(source["unit"], 0) + source["behind"]
    rates = said["input_rate"], said["process_rate"]
    return ProgressPoint(event.at, event.channel or "", event.epoch or 0, said["rows"], *rates, behind)


def _unreadable(path: Path, error: sqlite3.Error) -> StateError:
    if is_damaged(error):
        return StateError(
            "HISTORY_DAMAGED",
            f"{path} is damaged: {error}",
            hint=f"nothing but looking back needs it: mv {path} {path}.damaged, and the next run begins a new one",
        )
    return StateError("HISTORY_UNREADABLE", f"{path} cannot be read: {error}", hint="look at the file and its folder")
