"""The file of the history: a SQLite database of its own beside the ledger, which nothing but looking back needs.

Every process of the project may write to it at once. One that is damaged is put aside and a new one begun: the history
is no ledger.
"""

from __future__ import annotations

import fcntl
import sqlite3
import time
from pathlib import Path

from anabranch.store.figures import TABLE as FIGURES

NAME = "history.db"

#: A writer of another process is waited for this long, in seconds.
_BUSY_SECONDS = 5.0

_VERSION = 3

_TABLES = (
    """CREATE TABLE IF NOT EXISTS events (
        sequence INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, run TEXT NOT NULL, at REAL NOT NULL,
        level TEXT NOT NULL, kind TEXT NOT NULL, pipeline TEXT, channel TEXT, flow TEXT, dataset TEXT, epoch INTEGER,
        place TEXT, message TEXT NOT NULL, details TEXT NOT NULL)""",
    # What readers ask for: the newest of a kind, a channel or a run, what went wrong, what is too old. Within one value
    # an index is in the order of the sequence, so that the newest are found without sorting.
    "CREATE INDEX IF NOT EXISTS events_kind ON events (kind)",
    "CREATE INDEX IF NOT EXISTS events_channel ON events (channel)",
    "CREATE INDEX IF NOT EXISTS events_run ON events (run)",
    "CREATE INDEX IF NOT EXISTS events_wrong ON events (sequence) WHERE level <> 'info'",
    "CREATE INDEX IF NOT EXISTS events_at ON events (at)",
    """CREATE TABLE IF NOT EXISTS runs (
        run TEXT PRIMARY KEY, pipeline TEXT NOT NULL, pid INTEGER NOT NULL, host TEXT NOT NULL, process TEXT NOT NULL,
        started REAL NOT NULL, seen REAL NOT NULL, ended REAL, outcome TEXT, epochs INTEGER NOT NULL DEFAULT 0,
        rows INTEGER NOT NULL DEFAULT 0, code TEXT, message TEXT, selection TEXT)""",
    "CREATE INDEX IF NOT EXISTS runs_started ON runs (started)",
    FIGURES,
    """CREATE TABLE IF NOT EXISTS column_lineage (
        dataset TEXT NOT NULL, version INTEGER NOT NULL, run TEXT NOT NULL, at REAL NOT NULL, channel TEXT NOT NULL,
        epoch INTEGER NOT NULL, digest TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (dataset, version))""",
    # What an epoch or a job found; one of the same epoch takes the place of the one before. See `profiles`.
    """CREATE TABLE IF NOT EXISTS profiles (
        id INTEGER PRIMARY KEY AUTOINCREMENT, dataset TEXT NOT NULL, origin TEXT NOT NULL, name TEXT NOT NULL,
        at REAL NOT NULL, profile TEXT NOT NULL, UNIQUE (dataset, origin, name))""",
    "CREATE INDEX IF NOT EXISTS profiles_newest ON profiles (dataset, origin, id)",
    """CREATE TABLE IF NOT EXISTS profile_jobs (
        job TEXT PRIMARY KEY, dataset TEXT NOT NULL, first TEXT, last TEXT NOT NULL, columns TEXT NOT NULL,
        asked TEXT NOT NULL, state TEXT NOT NULL, process TEXT NOT NULL, started REAL NOT NULL, seen REAL NOT NULL,
        ended REAL, problem TEXT)""",
    "CREATE INDEX IF NOT EXISTS profile_jobs_dataset ON profile_jobs (dataset)",
    f"PRAGMA user_version = {_VERSION}",
)


def connect_to_write(path: Path) -> sqlite3.Connection:
    """The database at `path`, made as needed; used by one thread at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last events, never the file
        if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path) -> sqlite3.Connection:
    """The database at `path`, which must be there; nothing is ever written to it."""
    address = path.absolute().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # In a folder that may not be written, readers cannot share memory; without a log there is nothing to share.
        connection.close()
        if path.with_name(path.name + "-wal").exists():
            raise
        connection = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)
    connection.row_factory = sqlite3.Row
    return connection


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether an error tells of the file itself, and not of the disk or of others who write to it.

    >>> is_damaged(sqlite3.OperationalError("database is locked"))
    False
    """
    name = getattr(error, "sqlite_errorname", "")
    # A table that is not there is the mark of a file that was cut off, or is somebody else's.
    return name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or str(error).startswith("no such ")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another process was in the way, which passes."""
    return getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def put_aside(path: Path) -> Path | None:
    """Rename a damaged history; None when another process has done it meanwhile."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists() or not _is_still_damaged(path):
            return None
        aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}")
        path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
        if (log := path.with_name(f"{path.name}-wal")).exists():
            log.rename(aside.with_name(f"{aside.name}-wal"))
        path.rename(aside)
        return aside


def _is_still_damaged(path: Path) -> bool:
    try:
        connection = sqlite3.connect(path, timeout=_BUSY_SECONDS)
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            connection.execute("SELECT count(*) FROM (SELECT 1 FROM events LIMIT 1), (SELECT 1 FROM runs LIMIT 1)")
        finally:
            connection.close()
    except sqlite3.Error as error:
        return is_damaged(error)
    return bool(found != "ok")
