"""A Postgres table whose rows are changed by key. Beside it stands the log of all changes that it was made of.

In the transaction of the epoch: the changes are added to the log; what the log had of their keys is read; the rows that
come out of both take the place of the rows of these keys. A change that comes late finds the newer ones in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.connectors.changes import replacement, table_schema
from anabranch.connectors.postgres_database import TableName, columns_of
from anabranch.connectors.postgres_rows import copy_rows, fetch
from anabranch.connectors.postgres_types import type_of
from anabranch.core.changes import SEQUENCE, TRUNCATES, Merge
from anabranch.core.names import quoted

if TYPE_CHECKING:
    from psycopg import Connection

#: The order in which changes came: of two with the same sequence the later one counts.
ORDER = "__anabranch_order"

#: Adds rows to a table, and tells which of them it has taken.
Put = Callable[[TableName, pa.Table], pa.Table]


def log_kinds(schema: pa.Schema) -> dict[str, str]:
    """The types of the log's columns: nested values are kept as the texts they are read back from."""
    return {f.name: "text" if pa.types.is_nested(f.type) else type_of(f.name, f.type) for f in schema}


def create_log(connection: Connection[Any], log: TableName, schema: pa.Schema, merge: Merge) -> None:
    """Make the log of a table, or add what it lacks."""
    there = columns_of(connection, log)
    if there is None:
        own = f"{quoted(ORDER)} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
        connection.execute(f"CREATE TABLE {log.sql} ({own})".encode())
    known = {column.name for column in there or ()}
    for name, kind in log_kinds(schema).items():
        if name not in known:  # only then: it locks the table, even if there is nothing to do
            connection.execute(f"ALTER TABLE {log.sql} ADD COLUMN {quoted(name)} {kind}".encode())
    if there is None:
        connection.execute(f"CREATE INDEX ON {log.sql} ({_names(merge.keys)})".encode())


@dataclass(frozen=True, slots=True)
class Changing:
    """The changes of one epoch, at work in its transaction."""

    connection: Connection[Any]
    table: TableName
    log: TableName
    merge: Merge
    put: Put

    def apply(self, changes: pa.Table, *, replace: bool) -> None:
        """Bring the table to what all changes so far make of it; with `replace` the ones before do not count."""
        if replace:
            self._execute(f"DELETE FROM {self.log.sql}")
            self._execute(f"DELETE FROM {self.table.sql}")
        newest = self._newest()
        changes = self.put(self.log, changes)
        before = None if replace else self._before(changes, newest)
        whole = changes
        if before is not None and before.schema.equals(changes.schema):  # else only what orders them was read
            whole = pa.concat_tables([before, changes])
        result = replacement(self.merge, changes, ds.dataset(whole), before)
        if not replace:
            self._remove(result.keys)
        self.put(self.table, result.rows.cast(table_schema(changes.schema, self.merge)))

    def _newest(self) -> int:
        found = self.connection.execute(
            f"SELECT coalesce(max({quoted(ORDER)}), 0) FROM {self.log.sql}".encode()
        ).fetchone()
        assert found is not None, "an aggregate has a row"
        return int(found[0])

    def _before(self, changes: pa.Table, newest: int) -> pa.Table:
        """What earlier epochs said of the keys that change now; of all keys if the table is emptied."""
        columns = changes.schema
        empties = TRUNCATES in columns.names
        if not (self.merge.history or self.merge.keep_when_null or empties):
            columns = pa.schema([columns.field(name) for name in dict.fromkeys((*self.merge.keys, SEQUENCE))])
        query = f"SELECT {_names(columns.names)} FROM {self.log.sql} l WHERE l.{quoted(ORDER)} <= {newest}"
        if not (empties and any(changes[TRUNCATES].to_pylist())):
            keys = self._keys("anabranch_asked", self.log, _distinct(changes, self.merge))
            wanted = [
                f"SELECT l.{quoted(ORDER)} FROM {self.log.sql} l JOIN {keys} k ON {same}"
                for same in _ways(self.merge, changes)
            ]
            if empties:
                wanted.append(f"SELECT {quoted(ORDER)} FROM {self.log.sql} WHERE {quoted(TRUNCATES)}")
            query += f" AND l.{quoted(ORDER)} IN ({' UNION '.join(wanted)})"
        query += f" ORDER BY l.{quoted(ORDER)}"
        return pa.Table.from_batches(fetch(self.connection, query, columns), columns)

    def _remove(self, keys: pa.Table | None) -> None:
        """Remove the rows of these keys, None stands for all."""
        if keys is None:
            self._execute(f"DELETE FROM {self.table.sql}")
        elif keys.num_rows:
            gone = self._keys("anabranch_gone", self.table, keys)
            for same in _ways(self.merge, keys):
                self._execute(f"DELETE FROM {self.table.sql} l USING {gone} k WHERE {same}")

    def _keys(self, name: str, like: TableName, keys: pa.Table) -> str:
        """A table for the length of the transaction, with these keys."""
        there = TableName(name, "pg_temp")
        self._execute(
            f"CREATE TEMP TABLE {quoted(name)} ON COMMIT DROP AS "
            f"SELECT {_names(self.merge.keys)} FROM {like.sql} WITH NO DATA"
        )
        kinds = {column.name: column.type for column in columns_of(self.connection, there) or ()}
        copy_rows(self.connection, there, kinds, keys.combine_chunks().to_batches())
        self._execute(f"ANALYZE {there.sql}")
        return there.sql

    def _execute(self, statement: str) -> None:
        self.connection.execute(statement.encode())


def _distinct(changes: pa.Table, merge: Merge) -> pa.Table:
    return changes.select(list(merge.keys)).group_by(list(merge.keys)).aggregate([])


def _ways(merge: Merge, keys: pa.Table) -> Iterable[str]:
    """How to join with keys: by an index for those without nulls, and apart from these for those with."""
    yield " AND ".join(f"l.{quoted(key)} = k.{quoted(key)}" for key in merge.keys)
    nullable = [key for key in merge.keys if keys[key].null_count]
    if nullable:
        some = " OR ".join(f"k.{quoted(key)} IS NULL" for key in nullable)
        same = " AND ".join(f"l.{quoted(key)} IS NOT DISTINCT FROM k.{quoted(key)}" for key in merge.keys)
        yield f"({some}) AND {same}"


def _names(columns: Iterable[str]) -> str:
    return ", ".join(map(quoted, columns))
