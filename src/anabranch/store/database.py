"""The database under the ledger: where it is, how transactions on it begin, and what its errors mean.

SQLite: write-ahead log, every commit forced to disk, writers take turns from the start of their transaction. Readers
that were asked not to write open the file so that not even SQLite's side files appear.
Postgres: read committed with a row lock for writers, one snapshot for readers.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import ColumnElement, Connection, Double, Engine, NullPool, QueuePool, cast, create_engine, event, func
from sqlalchemy import literal as literal_value
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from anabranch.errors import AnabranchError, CommitUnknown, StateError
from anabranch.store.address import Address

T = TypeVar("T")
Transaction = Callable[[Connection], T]

#: How long a writer waits for another one, in seconds.
BUSY_SECONDS = 30

#: Only ever strengthens what the server was told. A process that hangs inside a transaction must not keep the channel's
#: row locked for longer than others wait for it.
_POSTGRES_SESSION = f"""
    SELECT set_config('lock_timeout', '{BUSY_SECONDS}s', false),
           set_config('idle_in_transaction_session_timeout', '{BUSY_SECONDS - 10}s', false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"""

#: What SQLite says when a flipped bit hit a name in its own list of tables, or the middle of a character.
_SHAPE_LOST = re.compile(r"decode to UTF-8|no such (table|column)|already exists")


class Database:
    """Transactions on one ledger database, from any thread."""

    def __init__(self, address: Address, *, readonly: bool) -> None:
        self.address = address
        self.readonly = readonly
        engine = _sqlite(address.file, readonly) if address.file else _postgres(address)
        self._engine = engine
        one_snapshot = {} if address.file else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._readers = engine.execution_options(**one_snapshot)
        self._writers = engine.execution_options(ledger_writes=True)
        self._file_id: tuple[int, int] | None = None
        # SQLite lets waiting writers poll; threads of one process queue up here instead and lose no time.
        self._turn: AbstractContextManager[Any] = threading.Lock() if address.file else nullcontext()

    def close(self) -> None:
        """Give every connection back."""
        self._engine.dispose()

    def clock(self) -> ColumnElement[float]:
        """Now, in seconds since 1970, by the one clock all writers of this ledger share."""
        if self.address.file:
            return literal_value(time.time(), Double)
        return cast(func.extract("epoch", func.clock_timestamp()), Double)

    def read(self, work: Transaction[T]) -> T:
        """Run `work` on one snapshot."""
        while True:
            before = self._calm()
            try:
                with self._readers.connect() as connection, connection.begin():
                    result = work(connection)
            except (DBAPIError, PoolTimeout, UnicodeDecodeError) as error:
                if self._calm() == before:
                    raise self._told(error) from self._cause(error)
                continue
            except StateError:
                if self._calm() == before:
                    raise
                continue
            if self._calm() == before:
                return result

    def write(self, work: Transaction[T], *, repeatable: bool = False) -> T:
        """Run `work` in a writing transaction; `repeatable` says that running it again after a commit does no harm.

        When the connection is lost before the commit was sent, the work is done again on a new one. Lost while it was
        being committed, and not repeatable, nobody knows: `CommitUnknown`.
        """
        if self.readonly:
            raise StateError(
                "LEDGER_NOT_WRITABLE",
                f"the ledger {self.address.shown} was opened for reading only",
                hint="open it with readonly=False to change it",
            )
        self._refuse_other_file()
        first = True
        while True:
            committing = False
            try:
                with self._turn, self._writers.connect() as connection, connection.begin():
                    result = work(connection)
                    committing = True
                return result
            except (DBAPIError, PoolTimeout, UnicodeDecodeError) as error:
                lost = isinstance(error, DBAPIError) and error.connection_invalidated
                if lost and first and (repeatable or not committing):
                    first = False
                    continue
                if lost and committing:
                    raise CommitUnknown(
                        "LEDGER_COMMIT_UNKNOWN",
                        f"the connection to the ledger {self.address.shown} broke while it was committing",
                        hint="run `anabranch recover`: it looks up what was decided and goes on from there",
                    ) from self._cause(error)
                raise self._told(error) from self._cause(error)

    def place(self) -> str:
        """Which database this is, told apart from every copy of it."""
        if self.address.file:
            return os.path.realpath(self.address.file)
        return self.read(_postgres_place)

    def check(self) -> None:
        """Refuse a SQLite file whose pages or indexes are damaged. Postgres looks after its own."""
        if self.address.file:
            # quick_check would not compare the indexes with their tables: an epoch could go missing from a look-up.
            answer = self.read(lambda c: c.exec_driver_sql("PRAGMA integrity_check(1)").scalar())
            if answer != "ok":
                raise damaged_file(self.address, str(answer).splitlines()[-1])

    def _refuse_other_file(self) -> None:
        """A file that was removed while open would go on taking writes that nobody ever sees again."""
        if self.address.file:
            found = _inode(self.address.file)
            self._file_id = self._file_id or found
            if found is None or found != self._file_id:
                raise StateError(
                    "LEDGER_MISSING",
                    f"the ledger {self.address.shown} was removed or replaced while it was in use",
                    hint="put the ledger's file back, then run `anabranch recover`",
                )

    def _calm(self) -> tuple[int, int, int] | None:
        """For a reader that opened the file as unchanging: what would differ if it had changed meanwhile."""
        if not self.readonly or not self.address.file or _has_log(self.address.file):
            return None
        try:
            found = os.stat(self.address.file)
        except OSError:
            return (0, 0, 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _cause(self, error: Exception) -> Exception | None:
        """What a traceback may show below our error: nothing, where a password was involved."""
        return None if self.address.secret else error

    def _told(self, error: Exception) -> AnabranchError | Exception:
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes its list of tables, which has a flipped bit
            return damaged_file(self.address, "its list of tables cannot be read")
        if isinstance(error, PoolTimeout):
            return _busy(self.address, "every connection is in use")
        assert isinstance(error, DBAPIError)
        told = _sqlite_error if self.address.file else _postgres_error
        return told(self.address, error.orig, self.readonly) or error


def _inode(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def _has_log(file: Path) -> bool:
    return os.path.exists(f"{file}-wal")


def _sqlite(file: Path, readonly: bool) -> Engine:
    def connect() -> sqlite3.Connection:
        name = f"file:{quote(os.fspath(file))}?mode={'ro' if readonly else 'rw'}"
        if readonly and not _has_log(file):
            # Without this SQLite makes its -wal and -shm files, in the reader's name, even for a reader.
            name += "&immutable=1"
        found = sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None)
        if not readonly and found.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            found.execute("PRAGMA journal_mode = WAL")
        found.execute("PRAGMA synchronous = FULL")
        found.execute("PRAGMA fullfsync = ON")
        found.execute("PRAGMA foreign_keys = ON")
        return found

    if readonly:
        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)
    else:
        engine = create_engine(
            "sqlite://", creator=connect, poolclass=QueuePool, pool_size=4, max_overflow=16, hide_parameters=True
        )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("ledger_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgres(address: Address) -> Engine:
    engine = create_engine(
        address.url,
        pool_size=4,
        max_overflow=16,
        hide_parameters=True,
        connect_args={"connect_timeout": 10, "application_name": "anabranch"},
    )

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _record: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(_POSTGRES_SESSION)
        connection.commit()

    return engine


def _postgres_place(connection: Connection) -> str:
    row = connection.exec_driver_sql(
        "SELECT system_identifier::text, current_database(), current_schema() FROM pg_control_system()"
    ).one()
    return f"postgres {row[0]} database {row[1]} schema {row[2]}"


def damaged_file(address: Address, reason: str) -> StateError:
    """The error for a file that is no whole database."""
    return StateError(
        "LEDGER_DAMAGED",
        f"the ledger {address.shown} is damaged: {reason}",
        hint="stop every run, restore the ledger from a backup, then run `anabranch recover`",
    )


def _busy(address: Address, reason: str) -> StateError:
    return StateError(
        "LEDGER_BUSY",
        f"the ledger {address.shown} stayed locked for {BUSY_SECONDS} seconds: {reason}",
        hint="look for another process that works on this ledger and hangs; then try again",
        retryable=True,
    )


def not_writable(address: Address, reason: str) -> StateError:
    """The error for a ledger that may only be read."""
    return StateError(
        "LEDGER_NOT_WRITABLE",
        f"the ledger {address.shown} cannot be written: {reason}",
        hint="give this user the right to write the ledger and its folder, and make sure the disk has room",
    )


def _unreachable(address: Address, reason: str, *, retryable: bool = True) -> StateError:
    return StateError(
        "LEDGER_UNREACHABLE",
        f"the ledger {address.shown} cannot be reached: {reason}",
        hint="check that the disk is well, has room and may be read by this user"
        if address.file
        else "check that the database is up, that the address is right and that this user may use it",
        retryable=retryable,
    )


def _sqlite_error(address: Address, error: BaseException | None, readonly: bool) -> StateError | None:
    reason, name = str(error), getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_SHORT_READ")) or _SHAPE_LOST.search(reason):
        return damaged_file(address, reason)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return _busy(address, reason)
    if name.startswith("SQLITE_IOERR") or (readonly and name.startswith("SQLITE_CANTOPEN")):
        return _unreachable(address, reason)
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_FULL")):
        return not_writable(address, reason)
    return None


def _postgres_error(address: Address, error: BaseException | None, _readonly: bool) -> StateError | None:
    state = getattr(error, "sqlstate", None)
    reason = address.without_secret(" ".join(str(error).split()))
    if state in ("55P03", "40P01"):
        return _busy(address, reason)
    if state in ("42501", "25006", "53100"):
        return not_writable(address, reason)
    if state is not None and state.startswith("XX"):
        return damaged_file(address, reason)
    if state is None or state.startswith(("08", "57", "53", "28", "3D", "25P")):
        return _unreachable(address, reason, retryable=state is None or not state.startswith(("28", "3D")))
    return None
