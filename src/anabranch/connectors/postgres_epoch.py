"""One epoch in one transaction: its number, its rows, and the rows that the table would not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.connectors.postgres_changes import Changing
from anabranch.connectors.postgres_database import TableName, columns_of, in_words
from anabranch.connectors.postgres_rows import copy_or_reject, copy_rows, payload

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection

    from anabranch.core.epoch import EpochKey, Receipt

EPOCHS = "anabranch_epochs"
REJECTED = "__rejected"

Batches = Callable[[], Iterable[pa.RecordBatch]]


def create_epochs(connection: Connection[Any], table: TableName) -> None:
    """Make the table that remembers epochs."""
    connection.execute(
        f"""CREATE TABLE IF NOT EXISTS {table.another(EPOCHS).sql} (
            transaction text PRIMARY KEY, table_name text NOT NULL, epoch bigint NOT NULL, version text NOT NULL,
            rows bigint NOT NULL, taken_at timestamptz NOT NULL)""".encode()
    )


def create_rejected(connection: Connection[Any], table: TableName) -> None:
    """Make the table for rows that were refused."""
    connection.execute(
        f"""CREATE TABLE IF NOT EXISTS {table.beside(REJECTED).sql} (
            transaction text NOT NULL, epoch bigint NOT NULL, reason text NOT NULL, message text NOT NULL,
            payload json NOT NULL, rejected_at timestamptz NOT NULL DEFAULT clock_timestamp())""".encode()
    )


@dataclass(frozen=True, slots=True)
class Taking:
    """A transaction that takes a receipt; whoever made it commits."""

    connection: Connection[Any]
    table: TableName
    key: EpochKey
    receipt: Receipt
    sink: str

    def enters(self) -> bool:
        """Write the epoch down; False if it is there already."""
        self.connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # what is checked at the commit names no row
        found = self.connection.execute(
            f"""INSERT INTO {self.table.another(EPOCHS).sql} AS e
                VALUES (%s, %s, %s, %s, %s, clock_timestamp())
                ON CONFLICT (transaction) DO UPDATE SET table_name = excluded.table_name, epoch = excluded.epoch,
                    version = excluded.version, rows = excluded.rows, taken_at = excluded.taken_at
                WHERE e.epoch < excluded.epoch""".encode(),
            [
                self.key.transaction_id(self.sink),
                self.table.name,
                self.key.epoch,
                f"{self.key.generation}-{self.key.epoch}",
                self.receipt.rows,
            ],
        )
        return found.rowcount == 1

    def append(self, batches: Batches, *, quarantine: bool) -> None:
        """Add rows, or put them in the place of all others.

        With DELETE, not TRUNCATE: that would let readers wait until the commit, and would show an empty table to those
        whose snapshot is older than it.
        """
        if self.receipt.replace:
            self.connection.execute(f"DELETE FROM {self.table.sql}".encode())
        self._put(self.table, batches, quarantine=quarantine)

    def change(self, log: TableName, schema: pa.Schema, batches: Batches, *, quarantine: bool) -> None:
        """Apply rows that are changes by key."""
        assert self.receipt.merge is not None, "a receipt for changes says how they are applied"

        def put(table: TableName, rows: pa.Table) -> pa.Table:
            parts = rows.combine_chunks().to_batches()
            taken = self._put(table, lambda: parts, quarantine=quarantine)
            return rows if taken is None else pa.Table.from_batches(taken, rows.schema)

        staged = [batch.select(schema.names).cast(schema) for batch in batches()]
        changes = pa.Table.from_batches(staged, schema)
        Changing(self.connection, self.table, log, self.receipt.merge, put).apply(changes, replace=self.receipt.replace)

    def _put(self, table: TableName, batches: Batches, *, quarantine: bool) -> list[pa.RecordBatch] | None:
        kinds = {column.name: column.type for column in columns_of(self.connection, table) or ()}
        if quarantine:
            return copy_or_reject(self.connection, table, kinds, batches, self._reject)
        copy_rows(self.connection, table, kinds, batches())
        return None

    def _reject(self, row: Mapping[str, Any], error: psycopg.Error) -> None:
        said = error.diag
        self.connection.execute(
            f"INSERT INTO {self.table.beside(REJECTED).sql} (transaction, epoch, reason, message, payload) "
            "VALUES (%s, %s, %s, %s, %s)".encode(),
            [
                self.key.transaction_id(self.sink),
                self.key.epoch,
                said.constraint_name or said.sqlstate,
                in_words(Exception("; ".join(p for p in (said.message_primary, said.message_detail) if p))),
                payload(row),
            ],
        )
