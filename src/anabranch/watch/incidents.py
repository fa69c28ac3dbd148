"""Incidents: what detectors found, from its begin to its end, and which targets were told of it.

They are kept in the database of the history. One look is one transaction, so that two watchers at once open an incident
once; a look that is older than one that was written down changes nothing. Whoever is about to tell a target claims that
first: what a watcher that died had claimed is told by another one after a while.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anabranch.core.alert_targets import Target
from anabranch.core.detectors import Detector, Finding, Judged, Severity
from anabranch.core.hidden import hidden, hide
from anabranch.errors import StateError
from anabranch.load.project import Project
from anabranch.store.history import History
from anabranch.store.history_file import connect_to_write, is_busy

_TABLES = (
    """CREATE TABLE IF NOT EXISTS incidents (
        incident INTEGER PRIMARY KEY AUTOINCREMENT, pipeline TEXT NOT NULL, detector TEXT NOT NULL, kind TEXT NOT NULL,
        about TEXT NOT NULL, severity TEXT NOT NULL, place TEXT NOT NULL, opened REAL NOT NULL, seen REAL NOT NULL,
        closed REAL, message TEXT NOT NULL, ending TEXT, value REAL NOT NULL, most REAL NOT NULL,
        facts TEXT NOT NULL)""",
    "CREATE UNIQUE INDEX IF NOT EXISTS incidents_open ON incidents (pipeline, detector) WHERE closed IS NULL",
    """CREATE TABLE IF NOT EXISTS incident_notes (
        pipeline TEXT NOT NULL, detector TEXT NOT NULL, at REAL NOT NULL, note TEXT NOT NULL,
        PRIMARY KEY (pipeline, detector))""",
    """CREATE TABLE IF NOT EXISTS incident_alerts (
        alert INTEGER PRIMARY KEY AUTOINCREMENT, incident INTEGER NOT NULL, phase TEXT NOT NULL, target TEXT NOT NULL,
        made REAL NOT NULL, done REAL, claimed REAL, reason TEXT, UNIQUE (incident, phase, target))""",
)

#: A watcher that claimed an alert this long ago, in seconds, and has not told is taken to be dead.
CLAIM = 300.0
#: Alerts that nobody took for this long are given up, in seconds: they are no news any more.
_OLD_NEWS = 86400.0

#: Other writers are waited for this long, and looked for this often, in seconds.
_PATIENCE, _LOOK_AGAIN = 20.0, 0.02

_SEVERITIES = {Severity.WARN: 0, Severity.ERROR: 1}


@dataclass(frozen=True, slots=True)
class Incident:
    """Something a detector found; `closed` is None while it goes on. `seen` is when it was last found."""

    incident: int
    detector: str
    kind: str
    about: str
    severity: str
    place: str
    opened: float
    seen: float
    closed: float | None
    message: str
    ending: str | None
    value: float
    most: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """An alert that a target has not got yet; `phase` is `opened` or `closed`."""

    alert: int
    phase: str
    target: str
    incident: Incident


@dataclass(frozen=True, slots=True)
class Settled:
    """What a look changed, and what is not known."""

    opened: tuple[Incident, ...] = ()
    closed: tuple[Incident, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)


Judge = Callable[[Detector, Mapping[str, Any]], Judged]


@dataclass(frozen=True, slots=True)
class Incidents:
    """The incidents of one pipeline, in the database of its history. Nothing is kept open."""

    path: Path
    pipeline: str

    def settle(
        self, detectors: Sequence[Detector], judge: Judge, targets: Sequence[Target], now: float, keep: float
    ) -> Settled:
        """Judge all detectors and write down what came of it, with the alerts that targets are to get.

        1. each detector is judged with the note of the look before
        2. what is found and not open is opened, what is open and not found is closed
        3. targets that will have to be told are written down
        """
        opened: list[int] = []
        closed: list[int] = []
        unknown: dict[str, str] = {}
        with self._writing() as connection:
            going = {row["detector"]: row["incident"] for row in self._open(connection)}
            for detector in detectors:
                note = self._note(connection, detector.name, now)
                if note is None:
                    continue  # somebody has looked later than this
                judged = judge(detector, note)  # 1
                if judged.unknown is not None:
                    unknown[detector.name] = judged.unknown
                    continue
                self._write_note(connection, detector.name, now, judged.note)
                number = going.get(detector.name)
                if judged.finding and number is not None:
                    self._seen(connection, number, judged.finding, now)
                elif judged.finding:
                    opened.append(self._opened(connection, detector, judged.finding, now))  # 2
                elif number is not None:
                    closed.append(self._closed(connection, number, "it is over", now))  # 2
            for name in going.keys() - {d.name for d in detectors}:
                closed.append(self._closed(connection, going[name], "its detector is no longer declared", now))
            self._make_alerts(connection, opened, closed, targets, now)  # 3
            self._forget(connection, now - keep)
            found = {i.incident: i for i in map(_incident, self._numbered(connection, [*opened, *closed]))}
        return Settled(tuple(found[n] for n in opened), tuple(found[n] for n in closed), unknown)

    def open(self) -> list[Incident]:
        """Those that go on, the oldest first; none while nobody has watched."""
        return self._read("closed IS NULL ORDER BY opened, incident")

    def recent(self, limit: int = 20) -> list[Incident]:
        """The newest, whether they go on or not."""
        return self._read(f"true ORDER BY incident DESC LIMIT {int(limit)}")

    # Alerts

    def waiting(self, now: float) -> list[Waiting]:
        """Alerts to be told, in their order, but for those that another watcher is about to tell."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE incident_alerts SET done = ?, reason = coalesce(reason, '') || ' (given up)' "
                "WHERE done IS NULL AND made < ?",
                (now, now - _OLD_NEWS),
            )
            rows = connection.execute(
                "SELECT a.alert, a.phase, a.target, i.* FROM incident_alerts a JOIN incidents i USING (incident) "
                "WHERE a.done IS NULL AND i.pipeline = ? AND (a.claimed IS NULL OR a.claimed < ?) ORDER BY a.alert",
                (self.pipeline, now - CLAIM),
            ).fetchall()
        return [Waiting(row["alert"], row["phase"], row["target"], _incident(row)) for row in rows]

    def claim(self, alert: int, now: float) -> bool:
        """Be the one who tells a target; False when another watcher is, or while what came before it is not told."""
        with self._writing() as connection:
            found = connection.execute(
                "UPDATE incident_alerts AS a SET claimed = ? WHERE alert = ? AND done IS NULL "
                "AND (claimed IS NULL OR claimed < ?) AND NOT EXISTS (SELECT 1 FROM incident_alerts b "
                "WHERE b.incident = a.incident AND b.target = a.target AND b.alert < a.alert AND b.done IS NULL)",
                (now, alert, now - CLAIM),
            )
            return found.rowcount == 1

    def told(self, alert: int, now: float) -> None:
        """A target has it."""
        with self._writing() as connection:
            connection.execute("UPDATE incident_alerts SET done = ?, reason = NULL WHERE alert = ?", (now, alert))

    def refused(self, alert: int, reason: str) -> None:
        """A target could not be told; the next look tries again."""
        with self._writing() as connection:
            connection.execute(
                "UPDATE incident_alerts SET claimed = NULL, reason = ? WHERE alert = ?", (hide(reason), alert)
            )

    # Inside a transaction

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(_begun(self.path)) as connection:
                yield connection
                connection.execute("COMMIT")  # without it, closing takes everything back
        except (sqlite3.Error, OSError) as error:
            raise StateError(
                "INCIDENTS_NOT_WRITTEN",
                f"incidents cannot be written to {self.path}: {error}",
                hint="see that this user may write the file and its folder, and that the disk has room",
                retryable=True,
            ) from error

    def _open(self, connection: sqlite3.Connection) -> list[sqlite3.Row]:
        query = "SELECT incident, detector FROM incidents WHERE pipeline = ? AND closed IS NULL"
        return connection.execute(query, (self.pipeline,)).fetchall()

    def _note(self, connection: sqlite3.Connection, detector: str, now: float) -> dict[str, Any] | None:
        """What the look before noted; None if that was later than now."""
        query = "SELECT at, note FROM incident_notes WHERE pipeline = ? AND detector = ?"
        row = connection.execute(query, (self.pipeline, detector)).fetchone()
        if row is None:
            return {}
        found: dict[str, Any] = json.loads(row["note"])
        return None if row["at"] > now else found

    def _write_note(self, connection: sqlite3.Connection, detector: str, now: float, note: Mapping[str, Any]) -> None:
        connection.execute(
            "INSERT INTO incident_notes VALUES (?, ?, ?, ?) "
            "ON CONFLICT (pipeline, detector) DO UPDATE SET at = excluded.at, note = excluded.note",
            (self.pipeline, detector, now, json.dumps(dict(note))),
        )

    def _opened(self, connection: sqlite3.Connection, detector: Detector, finding: Finding, now: float) -> int:
        about = (self.pipeline, detector.name, detector.kind, detector.on, detector.severity.value, str(detector.where))
        found = connection.execute(
            "INSERT INTO incidents (pipeline, detector, kind, about, severity, place, opened, seen, message, value, "
            "most, facts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*about, now, now, *_said(finding)),
        )
        return int(found.lastrowid or 0)

    def _seen(self, connection: sqlite3.Connection, incident: int, finding: Finding, now: float) -> None:
        connection.execute(
            "UPDATE incidents SET seen = ?, message = ?, value = ?, most = ?, facts = ? WHERE incident = ?",
            (now, *_said(finding), incident),
        )

    def _closed(self, connection: sqlite3.Connection, incident: int, ending: str, now: float) -> int:
        connection.execute("UPDATE incidents SET closed = ?, ending = ? WHERE incident = ?", (now, ending, incident))
        return incident

    def _make_alerts(
        self,
        connection: sqlite3.Connection,
        opened: Sequence[int],
        closed: Sequence[int],
        targets: Sequence[Target],
        now: float,
    ) -> None:
        for incident in map(_incident, self._numbered(connection, opened)):
            told = [t for t in targets if _SEVERITIES[t.least] <= _SEVERITIES[Severity(incident.severity)]]
            connection.executemany(
                "INSERT INTO incident_alerts (incident, phase, target, made) VALUES (?, 'opened', ?, ?)",
                [(incident.incident, target.name, now) for target in told],
            )
        for number in closed:  # whoever was to hear of its begin is to hear of its end
            connection.execute(
                "INSERT INTO incident_alerts (incident, phase, target, made) "
                "SELECT incident, 'closed', target, ? FROM incident_alerts WHERE incident = ? AND phase = 'opened'",
                (now, number),
            )

    def _numbered(self, connection: sqlite3.Connection, numbers: Sequence[int]) -> list[sqlite3.Row]:
        marks = ", ".join("?" for _ in numbers)
        return connection.execute(f"SELECT * FROM incidents WHERE incident IN ({marks})", tuple(numbers)).fetchall()

    def _forget(self, connection: sqlite3.Connection, before: float) -> None:
        connection.execute(
            "DELETE FROM incident_alerts WHERE incident IN (SELECT incident FROM incidents WHERE closed < ?)", (before,)
        )
        connection.execute("DELETE FROM incidents WHERE closed < ?", (before,))

    def _read(self, test: str) -> list[Incident]:
        query = f"SELECT * FROM incidents WHERE pipeline = ? AND {test}"
        return [_incident(row) for row in History(self.path).kept("incidents", query, self.pipeline)]


def _begun(path: Path) -> sqlite3.Connection:
    """A connection inside a transaction that writes; waits for others who do.

    SQLite waits by itself, but not while the first connection makes the file what it is to be, or the last one leaves.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        connection = None
        try:
            connection = connect_to_write(path)
            connection.row_factory = sqlite3.Row
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            return connection
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if not is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(_LOOK_AGAIN)


def incidents_of(project: Project) -> Incidents:
    """The incidents of a project; there are none while nobody has watched."""
    return Incidents(History.of(project.storage).path, project.name)


def _said(finding: Finding) -> tuple[str, float, float, str]:
    facts = json.dumps(hidden(dict(finding.facts)), ensure_ascii=False)
    return hide(finding.message), finding.value, finding.limit, facts


_FIELDS = tuple(Incident.__dataclass_fields__)


def _incident(row: sqlite3.Row) -> Incident:
    return Incident(**{**{name: row[name] for name in _FIELDS}, "facts": json.loads(row["facts"])})
