"""Rows into tables and out of them, inside a transaction of the caller's.

Rows that the database refuses can be put aside. Postgres says which line of a COPY it would not have, so the rows
before it are sent again without it; where it does not say (foreign keys are looked at in the end), halves are tried.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from pyarrow import csv

from anabranch.connectors.postgres_copy import blocks
from anabranch.connectors.postgres_database import TableName, is_refused_row
from anabranch.connectors.postgres_json import from_hex, from_json
from anabranch.core.names import quoted

if TYPE_CHECKING:
    from psycopg import Connection

#: Gets each row that was refused, and why.
Reject = Callable[[Mapping[str, Any], psycopg.Error], None]

_LINE = re.compile(r"^COPY .*, line (\d+)", re.MULTILINE)


def copy_rows(
    connection: Connection[Any], table: TableName, kinds: Mapping[str, str], batches: Iterable[pa.RecordBatch]
) -> None:
    """Add rows to a table in one COPY; `kinds` has the types of its columns."""
    rows = iter(batches)
    first = next(rows, None)
    if first is None:
        return
    columns = ", ".join(map(quoted, first.schema.names))
    statement = f"COPY {table.sql} ({columns}) FROM STDIN (FORMAT BINARY)".encode()
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for block in blocks(chain([first], rows), kinds):
            copy.write(block)


def copy_or_reject(
    connection: Connection[Any],
    table: TableName,
    kinds: Mapping[str, str],
    batches: Callable[[], Iterable[pa.RecordBatch]],
    reject: Reject,
) -> list[pa.RecordBatch] | None:
    """The same, but rows that the database would not have go to `reject`.

    Those it took, None for all of them.
    """
    try:
        with connection.transaction():
            copy_rows(connection, table, kinds, batches())
    except psycopg.Error as error:
        if not is_refused_row(error):
            raise
    else:
        return None
    return [part for batch in batches() for part in _piecewise(connection, table, kinds, batch, reject)]


def _piecewise(
    connection: Connection[Any], table: TableName, kinds: Mapping[str, str], batch: pa.RecordBatch, reject: Reject
) -> Iterator[pa.RecordBatch]:
    """The parts of a batch that went in. A row is rejected only when it was refused alone."""
    start, size = 0, batch.num_rows
    while start < batch.num_rows:
        size = min(size, batch.num_rows - start)
        part = batch.slice(start, size)
        try:
            with connection.transaction():
                copy_rows(connection, table, kinds, [part])
        except psycopg.Error as error:
            if not is_refused_row(error):
                raise
            if size == 1:
                reject(part.to_pylist()[0], error)
                start += 1
            else:
                line = _line(error)
                size = max(1, size // 2 if line is None else line - 1)
        else:
            yield part
            start, size = start + size, size * 2


def _line(error: psycopg.Error) -> int | None:
    found = _LINE.findall(error.diag.context or "")
    return int(found[-1]) if found else None


def payload(row: Mapping[str, Any]) -> str:
    """A row as JSON, whatever is in it.

    >>> payload({"id": 1, "x": float("nan"), "raw": b"a", "none": None})
    '{"id": 1, "x": "nan", "raw": "61", "none": null}'
    """
    return json.dumps({name: _plain(value) for name, value in row.items()}, default=str, ensure_ascii=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def fetch(connection: Connection[Any], query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a query as Arrow, by a COPY that is read as it comes. Columns are taken by their place."""
    names = [f"c{number}" for number in range(len(schema))]
    asked = ", ".join(f"{_asked(name, f.type)} AS {name}" for name, f in zip(names, schema, strict=True))
    texts = [name for name, f in zip(names, schema, strict=True) if _read_as(f.type) == pa.string()]
    force = f", FORCE_QUOTE ({', '.join(texts)})" if texts else ""
    statement = f"COPY (SELECT {asked} FROM ({query}) q ({', '.join(names)})) TO STDOUT (FORMAT csv{force})"
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        source = _Incoming(iter(copy))
        if source.is_empty:
            return
        found = csv.open_csv(
            source,
            csv.ReadOptions(column_names=names, block_size=4 << 20, use_threads=False),
            csv.ParseOptions(newlines_in_values=True),
            csv.ConvertOptions(
                column_types={name: _read_as(f.type) for name, f in zip(names, schema, strict=True)},
                null_values=[""],
                true_values=["t"],
                false_values=["f"],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        for batch in found:
            columns = [_back(column, f.type) for column, f in zip(batch.columns, schema, strict=True)]
            yield pa.record_batch(columns, schema=schema)


class _Incoming(io.RawIOBase):
    """A COPY as a file to read from."""

    def __init__(self, parts: Iterator[Any]) -> None:
        self._parts = parts
        self._rest = memoryview(b"")
        self.is_empty = not self._more()

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        if not self._rest and not self._more():
            return 0
        size = min(len(into), len(self._rest))
        into[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def read(self, size: int = -1) -> bytes:
        """Up to `size` bytes, fewer only at the end: one row comes in each part, and a call for each would be slow."""
        found, have = [], 0
        while (size < 0 or have < size) and (self._rest or self._more()):
            part = self._rest if size < 0 else self._rest[: size - have]
            self._rest = self._rest[len(part) :]
            found.append(part)
            have += len(part)
        return b"".join(found)

    def _more(self) -> bool:
        self._rest = memoryview(next(self._parts, b""))
        return len(self._rest) > 0


def _asked(name: str, kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return f"(extract(epoch FROM {name}) * 1000000)::bigint"
    if pa.types.is_date(kind):
        return f"({name} - date '1970-01-01')"
    return f"encode({name}, 'hex')" if pa.types.is_binary(kind) else name


def _read_as(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    return pa.string() if pa.types.is_binary(kind) or pa.types.is_nested(kind) else kind


def _back(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind):
        return from_json(column, kind)
    return from_hex(column) if pa.types.is_binary(kind) else column.cast(kind)
