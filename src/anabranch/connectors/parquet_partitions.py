"""Splitting rows by partition columns, and how Delta and Spark write partition values and their folders."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import DataError, ProjectError

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"

#: The characters Spark escapes in folder names (`ExternalCatalogUtils.escapePathName`).
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{\\[\\]^]")
_LONGEST_FOLDER = 200  # bytes; file systems end at 255

#: Partition values as the table's log has them, one per partition column.
Values = tuple[str | None, ...]

#: The distinct values of a partition column, and for each row which of them it has.
Key = tuple[list[str | None], pa.Array]


def check_partition_columns(schema: pa.Schema, columns: Sequence[str]) -> None:
    """Refuse columns that are missing or of a type that has no partition value.

    >>> check_partition_columns(pa.schema([("day", pa.date32()), ("n", pa.int64())]), ["day"])
    """
    for column in columns:
        if column not in schema.names:
            raise ProjectError(
                "PARTITION_COLUMN_UNKNOWN",
                f'partition column "{column}" is not a column of the table',
                hint=f"partition by one of: {', '.join(schema.names)}",
            )
        kind = schema.field(column).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind):
            raise ProjectError(
                "PARTITION_COLUMN_TYPE",
                f'partition column "{column}" is of type {kind}',
                hint="partition by a date, string, number, boolean or timestamp column",
            )
    if columns and len(columns) == len(schema.names):
        raise ProjectError(
            "PARTITION_COLUMNS_ALL",
            "every column is a partition column, no column is left for the files",
            hint="leave at least one column out of partition_by",
        )


def split(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each partition, in their order, without the partition columns.

    >>> batch = pa.record_batch({"day": ["a", "b", "a", ""], "n": [1, 2, 3, 4]})
    >>> [(values, rows["n"].to_pylist()) for values, rows in split(batch, ["day"])]
    [(('a',), [1, 3]), (('b',), [2]), ((None,), [4])]
    """
    rest = batch.select([name for name in batch.schema.names if name not in columns])
    return grouped(rest, [_texts(batch.column(name)) for name in columns])


def grouped(rows: pa.RecordBatch, keys: Sequence[Key]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows that have the same values in all keys, in their order."""
    codes = _combined([codes for _, codes in keys])
    order = pc.sort_indices(codes)  # stable: rows keep their order within a partition
    start = 0
    for stop in pc.run_end_encode(codes.take(order)).run_ends.to_pylist():
        chosen = order.slice(start, stop - start)
        first = chosen[0].as_py()
        yield tuple(texts[codes[first].as_py()] for texts, codes in keys), rows.take(chosen)
        start = stop


def _texts(column: pa.Array) -> Key:
    """The distinct values as text, and for each row which of them it has."""
    encoded = column.dictionary_encode(null_encoding="encode")
    distinct: dict[str | None, int] = {}
    to_code = [distinct.setdefault(partition_text(value), len(distinct)) for value in encoded.dictionary]
    return list(distinct), pa.array(to_code, pa.int64()).take(encoded.indices)


def _combined(codes: Sequence[pa.Array]) -> pa.Array:
    """One number per row, equal exactly where all columns are equal; kept small, so that it cannot overflow."""
    combined = codes[0]
    for more in codes[1:]:
        pairs = pc.add(pc.multiply(combined, pc.add(pc.max(more), 1)), more)
        combined = pairs.dictionary_encode().indices.cast(pa.int64())
    return combined


def partition_text(value: pa.Scalar) -> str | None:
    """A value as Delta's protocol writes it; null and the empty string are both null there.

    >>> partition_text(pa.scalar(True)), partition_text(pa.scalar("")), partition_text(pa.scalar(Decimal("1.50")))
    ('true', None, '1.50')
    >>> partition_text(pa.scalar(dt.datetime(2024, 1, 2, 3, 4, 5), pa.timestamp("us", "UTC")))
    '2024-01-02T03:04:05.000000Z'
    """
    try:
        plain = value.as_py()
    except (ValueError, OverflowError) as error:  # a year that Python's calendar does not have
        raise DataError(
            "PARTITION_VALUE_UNSUPPORTED",
            f"a partition value of type {value.type} is outside the years 1 to 9999",
            hint="partition by a column whose dates lie in that range, or mend the value in the flow",
        ) from error
    if plain is None or plain == "":
        return None
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, dt.datetime):
        # With the Z the value means the same in every reader's time zone; without it, Spark uses its session's.
        text = plain.replace(tzinfo=None).isoformat(sep="T" if value.type.tz else " ", timespec="microseconds")
        return text + "Z" if value.type.tz else text
    if isinstance(plain, dt.date):
        return plain.isoformat()
    if isinstance(plain, Decimal):
        return format(plain, "f")
    if isinstance(plain, float):
        return repr(plain) if math.isfinite(plain) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(plain, "NaN")
    return str(plain)


def partition_folder(columns: Sequence[str], values: Values) -> str:
    """The Hive-style folder, ending in a slash; nothing for a table without partitions.

    >>> partition_folder(["day", "tag"], ("2024-01-01", "a/b")), partition_folder([], ())
    ('day=2024-01-01/tag=a%2Fb/', '')
    >>> partition_folder(["day"], (None,))
    'day=__HIVE_DEFAULT_PARTITION__/'
    """
    return "".join(f"{_short(f'{_escape(c)}={_escape(v)}')}/" for c, v in zip(columns, values, strict=True))


def _escape(text: str | None) -> str:
    if text is None:
        return NULL_FOLDER
    return _ESCAPED.sub(lambda found: f"%{ord(found.group()):02X}", text)


def _short(name: str) -> str:
    """Readers take values from the log, never from the folder, so a name too long for the disk may be cut."""
    raw = name.encode()
    if len(raw) <= _LONGEST_FOLDER:
        return name
    kept = raw[: _LONGEST_FOLDER - 40].decode(errors="ignore").rstrip("%")
    return f"{kept}~{hashlib.blake2b(raw, digest_size=8).hexdigest()}"
