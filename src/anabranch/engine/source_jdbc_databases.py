"""The databases that `sources.jdbc` reads: how each is asked for bounds, for the rows between them, and for types."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

import pyarrow as pa

from anabranch.connectors.postgres_database import check_driver, connect
from anabranch.core.names import quoted
from anabranch.core.secrets import reveal
from anabranch.errors import ProjectError

#: A value of the cursor column as a text that the database reads back; None stands before all others.
Bound = str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is read: `rows` is a query, `column` grows with every change of a row."""

    url: str  # secrets are not looked up yet
    rows: str
    column: str
    settle: timedelta
    start: Bound = None


class Database(Protocol):
    """One kind of database."""

    def types(self) -> str:
        """The columns of the rows, as Spark's DDL has them."""

    def check(self) -> None:
        """Refuse a cursor column that is null in some row, or that cannot settle."""

    def upper(self) -> Bound:
        """The greatest value that has settled."""

    def cuts(self, lower: Bound, upper: Bound, parts: int) -> list[Bound]:
        """Values that cut a range into parts of the same width, from `lower` to `upper`."""

    def read(self, lower: Bound, upper: Bound, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows above `lower`, up to and with `upper`; with no upper bound all there are."""


def database_of(asked: Asked) -> Database:
    """The database that an address names."""
    kind = urlsplit(asked.url.removeprefix("jdbc:")).scheme.partition("+")[0]
    if kind == "sqlite":
        return _Sqlite(asked)
    if kind in ("postgres", "postgresql"):
        check_driver()
        return _Postgres(asked)
    raise ProjectError(
        "JDBC_INVALID",
        f'sources.jdbc reads Postgres and SQLite, not "{kind or asked.url.partition(":")[0]}"',
        hint='for other databases read whole tables with spark.read.format("jdbc") and their driver',
    )


_OIDS = {
    16: "BOOLEAN",
    17: "BINARY",
    20: "BIGINT",
    21: "SMALLINT",
    23: "INT",
    700: "FLOAT",
    701: "DOUBLE",
    1082: "DATE",
    1114: "TIMESTAMP_NTZ",
    1184: "TIMESTAMP",
}
_NUMERIC = 1700
_TIMES = (1082, 1114, 1184)
_SPLIT = (20, 21, 23, 1114, 1184, _NUMERIC)


class _Postgres:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._column = quoted(asked.column)

    def types(self) -> str:
        with self._connected() as connection:
            found = connection.execute(f"SELECT * FROM ({self._asked.rows}) q LIMIT 0".encode()).description or []
        return ", ".join(f"`{c.name.replace('`', '``')}` {_spark_type(c)}" for c in found)

    def check(self) -> None:
        with self._connected() as connection:
            kind = self._kind(connection)
            if kind not in _TIMES and self._asked.settle:
                raise _cannot_settle(self._asked.column)
            query = f"SELECT 1 FROM ({self._asked.rows}) q WHERE {self._column} IS NULL LIMIT 1"
            if connection.execute(query.encode()).fetchone():
                raise _nulls(self._asked.column)

    def upper(self) -> Bound:
        with self._connected() as connection:
            kind, seconds = self._kind(connection), self._asked.settle.total_seconds()
            # Rows of a transaction get their time when it begins and are seen when it ends: both lie before this.
            until = f"WHERE {self._column} <= now() - interval '{seconds} seconds'" if kind in _TIMES else ""
            query = f"SELECT max({self._column})::text FROM ({self._asked.rows}) q {until}"
            found = connection.execute(query.encode()).fetchone()
        assert found is not None, "an aggregate has a row"
        return found[0] if found[0] is not None else self._asked.start

    def cuts(self, lower: Bound, upper: Bound, parts: int) -> list[Bound]:
        with self._connected() as connection:
            if parts < 2 or self._kind(connection) not in _SPLIT:
                return [lower, upper]
            is_time = self._kind(connection) in _TIMES
            step = "low + (high - low) * (part::float8 / {0})" if is_time else "floor(low + (high - low) * part / {0})"
            number = "" if is_time else "::numeric"
            query = (
                f"SELECT ({step.format(parts)})::text FROM (SELECT min({self._column}){number} AS low, "
                f"max({self._column}){number} AS high FROM ({self._asked.rows}) q "
                f"WHERE {self._between(connection, lower, upper)}) b, "
                f"generate_series(1, {parts - 1}) part ORDER BY part"
            )
            inner = [row[0] for row in connection.execute(query.encode()) if row[0] is not None]
        return list(dict.fromkeys([lower, *(cut for cut in inner if cut != upper), upper]))

    def read(self, lower: Bound, upper: Bound, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        from anabranch.connectors.postgres_rows import fetch

        with self._connected() as connection:
            listed = ", ".join(_as_read(f) for f in schema)
            where = "true" if upper is None else self._between(connection, lower, upper)
            yield from fetch(connection, f"SELECT {listed} FROM ({self._asked.rows}) q WHERE {where}", schema)

    def _between(self, connection: Any, lower: Bound, upper: Bound) -> str:
        kind = self._type(connection)
        above = f"{self._column} > {_literal(connection, lower)}::{kind} AND " if lower is not None else ""
        return f"{above}{self._column} <= {_literal(connection, upper)}::{kind}"

    def _kind(self, connection: Any) -> int:
        query = f"SELECT {self._column} FROM ({self._asked.rows}) q LIMIT 0"
        return int(connection.execute(query.encode()).description[0].type_code)

    def _type(self, connection: Any) -> str:
        (name,) = connection.execute("SELECT format_type(%s, NULL)", [self._kind(connection)]).fetchone()
        return str(name)

    def _connected(self) -> Any:
        found = connect(reveal(self._asked.url))
        found.execute("SELECT set_config('TimeZone', 'UTC', false), set_config('DateStyle', 'ISO', false)")
        return found


def _literal(connection: Any, value: Bound) -> str:
    from psycopg.sql import Literal

    return Literal(value).as_string(connection)


def _spark_type(column: Any) -> str:
    if column.type_code == _NUMERIC:
        fits = column.precision and column.precision <= 38 and 0 <= (column.scale or 0) <= column.precision
        return f"DECIMAL({column.precision},{column.scale or 0})" if fits else "DECIMAL(38,18)"
    return _OIDS.get(column.type_code, "STRING")


def _as_read(field: pa.Field) -> str:
    if pa.types.is_decimal(field.type):
        return f"{quoted(field.name)}::numeric({field.type.precision},{field.type.scale})"
    return f"{quoted(field.name)}::text" if pa.types.is_string(field.type) else quoted(field.name)


class _Sqlite:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._column = quoted(asked.column)

    def types(self) -> str:
        with self._connected() as connection:
            connection.execute(f"CREATE TEMP VIEW anabranch_rows AS SELECT * FROM ({self._asked.rows})")
            found = connection.execute("SELECT name, type FROM pragma_table_info('anabranch_rows', 'temp')").fetchall()
        return ", ".join(f"`{name}` {_affinity(kind)}" for name, kind in found)

    def check(self) -> None:
        with self._connected() as connection:
            if self._asked.settle and self._first_kind(connection) in ("integer", "real"):
                raise _cannot_settle(self._asked.column)
            query = f"SELECT 1 FROM ({self._asked.rows}) WHERE {self._column} IS NULL LIMIT 1"
            if connection.execute(query).fetchone():
                raise _nulls(self._asked.column)

    def upper(self) -> Bound:
        with self._connected() as connection:
            until = ""
            if self._asked.settle:
                days = self._asked.settle.total_seconds() / 86_400
                until = f"WHERE julianday({self._column}) <= julianday('now') - {days!r}"
            query = f"SELECT CAST(max({self._column}) AS TEXT) FROM ({self._asked.rows}) {until}"
            found: Bound = connection.execute(query).fetchone()[0]
        return found if found is not None else self._asked.start

    def cuts(self, lower: Bound, upper: Bound, parts: int) -> list[Bound]:
        return [lower, upper]  # one file, one reader

    def read(self, lower: Bound, upper: Bound, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._connected() as connection:
            # A bound is a text; a number in quotes would be greater than every number.
            form = "CAST(? AS NUMERIC)" if self._first_kind(connection) in ("integer", "real") else "?"
            conditions = [f"{self._column} > {form}"] if upper is not None and lower is not None else []
            conditions += [f"{self._column} <= {form}"] if upper is not None else []
            values = [each for each in (lower, upper) if each is not None] if upper is not None else []
            listed = ", ".join(quoted(name) for name in schema.names)
            where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
            cursor = connection.execute(f"SELECT {listed} FROM ({self._asked.rows}) {where}", values)
            while rows := cursor.fetchmany(10_000):
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
                )

    def _first_kind(self, connection: sqlite3.Connection) -> str | None:
        query = f"SELECT typeof({self._column}) FROM ({self._asked.rows}) WHERE {self._column} IS NOT NULL LIMIT 1"
        found = connection.execute(query).fetchone()
        return found[0] if found else None

    def _connected(self) -> closing[sqlite3.Connection]:
        path = re.sub(r"^(jdbc:)?sqlite(\+\w+)?:(///)?", "", reveal(self._asked.url))
        return closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30))


def _affinity(declared: str) -> str:
    word = declared.upper()
    if "BOOL" in word:
        return "BOOLEAN"
    if "INT" in word:
        return "BIGINT"
    if any(real in word for real in ("REAL", "FLOA", "DOUB")):
        return "DOUBLE"
    return "BINARY" if "BLOB" in word else "STRING"


def _cannot_settle(column: str) -> ProjectError:
    return ProjectError(
        "JDBC_INVALID",
        f'the column "{column}" is no time, so nobody can tell when its values have settled',
        hint='if rows become visible in the order of this column, say settle="0 seconds"; sequences alone do not '
        "promise that, as transactions end in any order: a column with the time of the change does with settle",
    )


def _nulls(column: str) -> ProjectError:
    return ProjectError(
        "JDBC_NULL_CURSOR",
        f'there are rows whose "{column}" is null: they would never be read',
        hint="give them a value, or read a query that does: SELECT ..., coalesce(updated_at, created_at) AS updated_at",
    )
