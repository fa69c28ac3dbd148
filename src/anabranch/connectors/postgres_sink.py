"""Tables in Postgres as sinks: rows and the number of their epoch go in with one transaction.

The table `anabranch_epochs` in the schema of the sink's table says which epoch it took last. Its row is written first:
whoever else tries the same epoch, and be it a transaction of ours whose connection broke while it was committing,
is waited for there, and then found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from deltalake import Schema

from anabranch.connectors.changes import asking, table_schema
from anabranch.connectors.delta_schema import arrow_schema, delta_arrow_schema
from anabranch.connectors.postgres_changes import create_log
from anabranch.connectors.postgres_database import TableName, columns_of, connect, in_words, is_passing, is_refused_row
from anabranch.connectors.postgres_epoch import EPOCHS, REJECTED, Taking, create_epochs, create_rejected
from anabranch.connectors.postgres_types import check_names, compare, type_of
from anabranch.connectors.spooled_sink import SpooledSink
from anabranch.connectors.taken import NOTHING, version_of
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import POSTGRES
from anabranch.core.names import quoted
from anabranch.errors import AnabranchError, CommitUnknown, DataError, ProjectError, SinkError, StateError

if TYPE_CHECKING:
    from psycopg import Connection

#: The log of the changes that a table was made of stands beside it.
CHANGES = "__changes"

_WAITS = (0.05, 0.2, 0.8, 2.0)  # seconds before each new try

_CHOICES = {"on_violation": ("stop", "quarantine"), "create": ("true", "false")}


class PostgresSink(SpooledSink):
    """A table; without its address, when the project is not loaded, it cannot take rows."""

    format = "postgres"
    capabilities = POSTGRES.capabilities

    @property
    def table(self) -> TableName:
        """The table in the database."""
        return TableName.parse(self.spec.options.get("table") or self.name)

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched."""
        rows = self._accept(schema)
        with self._asking("be looked at") as connection:
            there = columns_of(connection, self.table)
            if there is None:
                self._may_create()
                return "will be created"
            self._check_past(connection)
            found = compare(there, rows)
        self._refuse(found.problems)
        parts = [f"columns to be added: {', '.join(found.added)}"] if found.added else []
        parts += [f"columns that will be null: {', '.join(found.missing)}"] if found.missing else []
        return "; ".join(parts) or "matches"

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table and those beside it, or see whether it can take rows of this schema."""
        rows = self._accept(schema)
        with self._asking("be made ready") as connection:
            # Two that begin at the same time would both find nothing there.
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('anabranch ' || current_schema()))")
            there = columns_of(connection, self.table)
            if there is None:
                self._may_create()
                self._create(connection, rows)
            else:
                self._check_past(connection)
                self._refuse(compare(there, rows).problems)
            create_epochs(connection, self.table)
            if self.spec.option("on_violation") == "quarantine":
                create_rejected(connection, self.table)
            if self.spec.merge:
                create_log(connection, self.table.beside(CHANGES), delta_arrow_schema(schema), self.spec.merge)
            connection.commit()
        self.spool.prepare(schema)

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The staged rows, with how they are applied if they are changes."""
        staged = self.spool.receipt(files, replace=replace)
        return Receipt(self.name, staged.files, staged.schema, replace, self.spec.merge)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Add the rows and the epoch in one transaction, unless the table has this epoch already."""
        if not receipt.files and not receipt.replace:
            return Applied(self.version() if self.spec.declared else NOTHING)
        self.must_be_declared(key)
        applied = self._take(key, receipt)
        self.discard(f.path for f in receipt.files)
        return applied

    def _take(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Try until it is in. A commit that was not answered is found by the next try, or nobody knows."""
        sent, error = False, None
        for wait in (0.0, *_WAITS):
            time.sleep(wait)
            try:
                with connect(self.url()) as connection, asking():
                    taking = Taking(connection, self.table, key, receipt, self.name)
                    if not taking.enters():
                        connection.rollback()
                        return Applied(version_of(key), already=True)
                    sent = False  # what was sent before did not go through
                    self._put(connection, taking)
                    sent = True
                    connection.commit()
            except psycopg.Error as refused:
                error = refused
                if not is_passing(refused):
                    break
                continue
            crash.point("committed", self.name)
            return Applied(version_of(key))
        assert error is not None, "a try without an error has returned"
        raise self._refusal(key, error, sent=sent and is_passing(error)) from None

    def _put(self, connection: Connection[Any], taking: Taking) -> None:
        schema, merge = arrow_schema(Schema.from_json(taking.receipt.schema)), taking.receipt.merge
        rows = table_schema(schema, merge) if merge else schema
        there = columns_of(connection, self.table)
        if there is None:
            raise self._missing()
        found = compare(there, rows)
        self._refuse(found.problems)
        for name in found.added:
            kind = type_of(name, rows.field(name).type)
            connection.execute(f"ALTER TABLE {self.table.sql} ADD COLUMN {quoted(name)} {kind}".encode())
        quarantine = self.spec.option("on_violation") == "quarantine"
        if merge:
            log = self.table.beside(CHANGES)
            create_log(connection, log, schema, merge)
            taking.change(log, schema, lambda: self.spool.batches(taking.receipt), quarantine=quarantine)
        else:
            taking.append(lambda: self.spool.batches(taking.receipt), quarantine=quarantine)

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the table has this epoch. An epoch without rows leaves no trace."""
        self.must_be_declared(key)
        newest = self.latest(key)
        return Applied(version_of(key), already=True) if newest is not None and newest >= key.epoch else None

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch in the table."""
        if not self.spec.declared:
            return None
        found = self._epochs("WHERE transaction = %s", key.transaction_id(self.name))
        return found[0][0] if found else None

    def version(self) -> str:
        """Generation and epoch of the last rows that the table was given."""
        found = self._epochs("WHERE table_name = %s ORDER BY taken_at DESC LIMIT 1", self.table.name)
        return found[0][1] if found else NOTHING

    def has(self, version: str) -> bool:
        """Whether the table is there and has come at least as far as this version."""
        if not self.spec.declared:
            return True
        with self._asking("be looked at") as connection:
            if columns_of(connection, self.table) is None:
                return False
        had = [_order(each) for _, each in self._epochs("WHERE table_name = %s", self.table.name)]
        return version == NOTHING or max(had, default=(0, -1)) >= _order(version)

    def _accept(self, schema: pa.Schema) -> pa.Schema:
        for option, choices in _CHOICES.items():
            if (said := self.spec.option(option, choices[0])) not in choices:
                raise ProjectError(
                    "OPTION_INVALID",
                    f'"{self.name}" has the option {option} = "{said}"',
                    hint=f"choose {' or '.join(choices)}",
                )
        staged = delta_arrow_schema(schema)
        rows = table_schema(staged, self.spec.merge) if self.spec.merge else staged
        check_names(rows.names)
        for f in rows:
            type_of(f.name, f.type)
        return rows

    def _create(self, connection: Connection[Any], rows: pa.Schema) -> None:
        table = self.table
        if table.schema:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema)}".encode())
        columns = ", ".join(f"{quoted(f.name)} {type_of(f.name, f.type)}" for f in rows)
        connection.execute(f"CREATE TABLE {table.sql} ({columns})".encode())
        if self.spec.merge:  # not a primary key: a key may be null here, and history has many rows of one
            keys = ", ".join(map(quoted, self.spec.merge.keys))
            connection.execute(f"CREATE INDEX ON {table.sql} ({keys})".encode())
        if self.spec.comment:
            text = psycopg.sql.Literal(self.spec.comment).as_string(connection)
            connection.execute(f"COMMENT ON TABLE {table.sql} IS {text}".encode())

    def _may_create(self) -> None:
        if self.spec.option("create", "true") != "true":
            raise self._missing()

    def _missing(self) -> SinkError:
        return SinkError(
            "TABLE_MISSING",
            f'table {self.table.sql} of "{self.name}" is not in the database',
            hint='create it, or leave the option "create" at true; if it was dropped, put it back or reset the channel',
        )

    def _check_past(self, connection: Connection[Any]) -> None:
        """A table that has rows and no log of them was fed in another way."""
        log = self.table.beside(CHANGES)
        if not self.spec.merge or columns_of(connection, log) is not None:
            return
        if connection.execute(f"SELECT 1 FROM {self.table.sql} LIMIT 1".encode()).fetchone():
            raise StateError(
                "CHANGES_WITHOUT_LOG",
                f'table {self.table.sql} of "{self.name}" has rows that came in another way: which change made them is '
                "not known",
                hint="let the changes go to a new table, or empty this one",
            )

    def _refuse(self, problems: list[str]) -> None:
        if problems:
            raise ProjectError(
                "SCHEMA_INCOMPATIBLE",
                f'table {self.table.sql} of "{self.name}" cannot take the rows: {"; ".join(problems)}',
                hint="cast or rename in the flow so that types match; new columns are fine, missing ones become null",
                details={"problems": problems},
            )

    def url(self) -> str:
        """The address, with its secrets."""
        return self.spec.option("url")

    def _asking(self, what: str) -> _Asking:
        return _Asking(self, what)

    def _epochs(self, condition: str, value: str) -> list[tuple[int, str]]:
        """Epochs and versions that the table remembers."""
        with self._asking("be looked at") as connection:
            epochs = self.table.another(EPOCHS)
            if columns_of(connection, epochs) is None:
                return []
            return connection.execute(
                f"SELECT epoch, version FROM {epochs.sql} {condition}".encode(), [value]
            ).fetchall()

    def trouble(self, what: str, error: psycopg.Error) -> SinkError:
        """What to say of a database that does not answer as it should."""
        return SinkError(
            "POSTGRES_UNREACHABLE" if is_passing(error) else "POSTGRES_REFUSED",
            f'the Postgres table of "{self.name}" cannot {what}: {in_words(error)}',
            hint="check that the database is up, that the address is right and that this user may read, write and "
            "create tables there",
            retryable=is_passing(error),
        )

    def _refusal(self, key: EpochKey, error: psycopg.Error, *, sent: bool) -> AnabranchError:
        if sent:
            return CommitUnknown(
                "COMMIT_UNKNOWN",
                f'a commit to "{self.name}" was sent, the database cannot be asked for it: {in_words(error)}',
                hint="run again when the database answers: the epoch is looked up before anything is sent",
                retryable=True,
            )
        if is_refused_row(error):
            said = error.diag
            rule = f' (constraint "{said.constraint_name}")' if said.constraint_name else ""
            more = "; ".join(part for part in (said.message_detail, said.context) if part)
            return DataError(
                "ROW_REFUSED",
                f'table {self.table.sql} of "{self.name}" refused a row of epoch {key.epoch}{rule}: '
                f"{in_words(Exception(said.message_primary))}{in_words(Exception('; ' + more)) if more else ''}",
                hint="the epoch waits: mend what the row refers to or change the constraint, and run again; or keep "
                f'such rows in {self.table.beside(REJECTED).sql} with the option on_violation = "quarantine"',
                details={"constraint": said.constraint_name, "table": self.table.sql, "sqlstate": error.sqlstate},
            )
        if error.sqlstate == "42P01":
            return self._missing()
        return SinkError(
            "COMMIT_REFUSED",
            f'table {self.table.sql} of "{self.name}" did not take epoch {key.epoch}: {in_words(error)}',
            hint="the staged rows are kept: run again once the cause is gone",
            retryable=is_passing(error),
        )


class _Asking:
    """A connection for a question; what the driver raises gets our words."""

    def __init__(self, sink: PostgresSink, what: str) -> None:
        self._sink, self._what = sink, what
        self._connection: Connection[Any] | None = None

    def __enter__(self) -> Connection[Any]:
        try:
            self._connection = connect(self._sink.url())
        except psycopg.Error as error:
            raise self._sink.trouble(self._what, error) from None
        return self._connection

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._connection is not None
        self._connection.close()
        if isinstance(error, psycopg.Error):
            raise self._sink.trouble(self._what, error) from None


def _order(version: str) -> tuple[int, int]:
    generation, _, epoch = version.partition("-")
    return int(generation), int(epoch)
