"""Write a run's events into the history, from a thread of its own: an epoch never waits for it and never fails of it.

Events wait in a bounded queue and are written in batches. What the disk refuses is tried again later; when the queue is
full meanwhile, the oldest events are dropped, and their number is written down once something can be.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from anabranch.core.event_kinds import is_silent, origin
from anabranch.core.event_words import sentence
from anabranch.core.events import EpochPublished, Event, EventsDropped
from anabranch.core.events_data import ColumnsProfiled, LineageChanged
from anabranch.core.hidden import hidden, hide
from anabranch.store import figures
from anabranch.store.history_file import connect_to_write, is_busy, is_damaged, put_aside
from anabranch.store.lineage_versions import keep_lineage
from anabranch.store.process import this_process
from anabranch.store.profiles import keep_epoch_profile

#: Events that may wait to be written.
MOST_WAITING = 10_000
#: Seconds between an event and the transaction that writes it, together with what came meanwhile.
_GATHER = 0.2
#: A run says that it is alive this often, in seconds.
_ALIVE = 15.0
#: After the disk refused, it is tried again after this many seconds.
_TRY_AGAIN = 10.0
#: How long the end of a run waits for its last events to be written, in seconds.
_LAST = 10.0
#: Old events are looked for this often, in seconds, and removed so many in one transaction.
_CLEAN = 3600.0
_OLD_AT_ONCE = 2_000


class HistoryWriter:
    """The events of one run on their way into the history. `put` may be called from any thread, and takes microseconds.

    `tell` is called at most once, with the reason, when the history cannot be written or had to be begun anew.
    """

    def __init__(
        self,
        path: Path,
        pipeline: str,
        *,
        keep_seconds: float,
        tell: Callable[[str], None],
        selection: str | None = None,
    ) -> None:
        self.run = uuid.uuid4().hex
        self.epochs = self.rows = 0
        self._path, self._pipeline, self._keep, self._tell = path, pipeline, keep_seconds, tell
        self._selection, self._started = selection, time.time()
        self._waiting: deque[tuple[float, Event]] = deque()
        self._dropped = 0
        self._lock = threading.Lock()
        self._some, self._ending = threading.Event(), threading.Event()
        self._connection: sqlite3.Connection | None = None
        self._end: tuple[float, str, str | None, str | None] | None = None
        self._told = self._more_old = self._ended = False
        self._not_before = 0.0  # on the monotonic clock, like the next
        self._clean_at = 0.0
        self._thread = threading.Thread(target=self._work, name="anabranch-history", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Have an event written down."""
        with self._lock:
            self._waiting.append((time.time(), event))
            self._shorten()
            if isinstance(event, EpochPublished):
                self.epochs, self.rows = self.epochs + 1, self.rows + sum(event.rows.values())
        self._some.set()

    def close(self, outcome: str, code: str | None = None, message: str | None = None) -> None:
        """Write down what is left and how the run ended; waits for it, but not for ever."""
        self._end = (time.time(), outcome, code, hide(message) if message else None)
        self._ending.set()
        self._some.set()
        self._thread.join(_LAST)
        if self._thread.is_alive():
            self._complain(f"its last events were not written within {_LAST:g} seconds")

    def _work(self) -> None:
        try:
            self._write()  # the run is to be seen before its first event
            while not self._ending.is_set():
                self._some.wait(_GATHER if self._more_old else _ALIVE)
                self._ending.wait(_GATHER)
                self._some.clear()
                if time.monotonic() >= self._not_before:
                    self._write()
            if not self._write() and not self._write():  # each waits for others who write
                self._complain("others kept it locked, its last events are missing")
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end a run
            self._complain(f"{type(error).__name__}: {error}")
        finally:
            self._disconnect()

    def _write(self) -> bool:
        """Write what waits, and remove some of what is too old; whether that could be done."""
        with self._lock:
            batch, dropped = list(self._waiting), self._dropped
            self._waiting.clear()
            self._dropped = 0
        if dropped:
            batch.insert(0, (batch[0][0] if batch else time.time(), EventsDropped(dropped)))
        try:
            self._committed(batch)
        except (sqlite3.Error, OSError) as error:
            with self._lock:
                self._waiting.extendleft(reversed(batch[1 if dropped else 0 :]))
                self._dropped += dropped
                self._shorten()
            self._refused(error)
            return False
        return True

    def _shorten(self) -> None:
        while len(self._waiting) > MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1

    def _row(self, at: float, event: Event) -> tuple[Any, ...]:
        record = event.as_record()
        about = {**asdict(origin(event)), "pipeline": self._pipeline}
        details = {k: v for k, v in record.items() if k not in ("event", "level")}
        text = json.dumps(hidden(details), default=lambda value: hide(str(value)), ensure_ascii=False)
        sought = (about[name] for name in ("pipeline", "channel", "flow", "dataset", "epoch", "place"))
        return (uuid.uuid4().hex, self.run, at, event.level, event.kind, *sought, hide(sentence(event)), text)

    def _committed(self, batch: list[tuple[float, Event]]) -> None:
        try:
            self._transaction(batch)
        except sqlite3.Error as error:
            if not is_damaged(error):
                raise
            self._disconnect()
            if aside := put_aside(self._path):
                self._complain(f"it was damaged ({error}), is now {aside.name}, and a new one was begun")
            self._transaction(batch)

    def _transaction(self, batch: list[tuple[float, Event]]) -> None:
        rows = [self._row(at, event) for at, event in batch if not is_silent(event)]
        connection, end = self._connected(), self._end
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_INSERT, rows)
            figures.write(connection, (figure for at, event in batch for figure in figures.told_by(at, event)))
            for at, event in batch:
                if isinstance(event, LineageChanged):
                    keep_lineage(connection, self.run, at, event)
                elif isinstance(event, ColumnsProfiled):
                    keep_epoch_profile(connection, at, event)
            connection.execute(
                "UPDATE runs SET seen = ?, epochs = ?, rows = ? WHERE run = ?",
                (time.time(), self.epochs, self.rows, self.run),
            )
            if end and not self._ended:
                connection.execute(
                    "UPDATE runs SET ended = ?, outcome = ?, code = ?, message = ? WHERE run = ?", (*end, self.run)
                )
                figures.write(connection, [figures.told_by_end(end[1])])
            self._remove_old(connection)
            connection.execute("COMMIT")
            self._ended = end is not None
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _remove_old(self, connection: sqlite3.Connection) -> None:
        if time.monotonic() < self._clean_at:
            return
        before = time.time() - self._keep
        found = connection.execute(
            "DELETE FROM events WHERE sequence IN (SELECT sequence FROM events WHERE at < ? LIMIT ?)",
            (before, _OLD_AT_ONCE),
        )
        self._more_old = found.rowcount == _OLD_AT_ONCE
        if self._more_old:
            return
        connection.execute("DELETE FROM runs WHERE started < ? AND seen < ?", (before, before))
        self._clean_at = time.monotonic() + _CLEAN

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect_to_write(self._path)
            me = this_process()
            known = json.dumps(asdict(me))
            self._connection.execute(
                "INSERT OR IGNORE INTO runs (run, pipeline, pid, host, process, started, seen, selection) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (self.run, self._pipeline, me.pid, me.host, known, self._started, self._started, self._selection),
            )
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _refused(self, error: sqlite3.Error | OSError) -> None:
        self._disconnect()
        if isinstance(error, sqlite3.Error) and is_busy(error):
            return  # others write; the next batch comes through
        self._not_before = time.monotonic() + _TRY_AGAIN
        self._complain(str(error.strerror if isinstance(error, OSError) and error.strerror else error))

    def _complain(self, reason: str) -> None:
        if not self._told:
            self._told = True
            self._tell(f"the history of runs ({self._path}) is not whole: {reason}")


_INSERT = (
    "INSERT INTO events (id, run, at, level, kind, pipeline, channel, flow, dataset, epoch, place, message, details) "
    f"VALUES ({', '.join('?' * 13)})"
)
