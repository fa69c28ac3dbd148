"""Partition values that are computed from columns: the day of a time, one of 16 buckets of an id.

The columns stay in the files. Values are written down as Iceberg keeps them, days and months as numbers since 1970.
Runs where rows are staged; only buckets and truncations need pyiceberg there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.connectors.parquet_partitions import Key, Values, grouped
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyiceberg.transforms import Transform

_CALL = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,)?\s*([^(),]+?)\s*\)")
_TIMES = ("year", "month", "day", "hour")
_SIZED = {"bucket": "bucket", "truncate": "trunc"}
_DAY = 86_400_000_000  # microseconds


@dataclass(frozen=True, slots=True)
class Part:
    """One partition value of a row; `how` is "identity", "day", "bucket", ...

    >>> Part.of("day(ts)"), Part.of("bucket(16, id)").name, Part.of("region").how
    (Part(column='ts', how='day', size=None), 'id_bucket', 'identity')
    """

    column: str
    how: str = "identity"
    size: int | None = None

    @classmethod
    def of(cls, text: str) -> Part:
        """What a user wrote: a column, or a transform of one."""
        match = _CALL.fullmatch(text.strip())
        if match is None and "(" not in text:
            return cls(text)
        how, size, column = match.groups() if match else ("", None, "")
        how = how.lower()
        how = how.removesuffix("s") if how.removesuffix("s") in _TIMES else how
        if (how in _TIMES and size is None) or (how in _SIZED and size and int(size) > 0):
            return cls(column, how, int(size) if size else None)
        raise ProjectError(
            "PARTITION_TRANSFORM_UNKNOWN",
            f'"{text}" is no partition that a table can have',
            hint="write a column, or year(c), month(c), day(c), hour(c), bucket(16, c), truncate(4, c)",
        )

    @property
    def name(self) -> str:
        """What Iceberg calls the value, by Spark's custom."""
        return self.column if self.how == "identity" else f"{self.column}_{_SIZED.get(self.how, self.how)}"

    @property
    def transform(self) -> Transform[Any, Any]:
        """The same in pyiceberg's terms."""
        from pyiceberg.transforms import parse_transform

        return parse_transform(f"{self.how}[{self.size}]" if self.size else self.how)

    def __str__(self) -> str:
        if self.how == "identity":
            return self.column
        return f"{self.how}({self.size}, {self.column})" if self.size else f"{self.how}({self.column})"


def check_parts(schema: pa.Schema, parts: Iterable[Part]) -> None:
    """Refuse columns that are missing, or of a type that has no such value.

    >>> check_parts(pa.schema([("ts", pa.timestamp("us"))]), [Part("ts", "day")])
    """
    for part in parts:
        if part.column not in schema.names:
            raise ProjectError(
                "PARTITION_COLUMN_UNKNOWN",
                f'partition column "{part.column}" is not a column of the table',
                hint=f"partition by one of: {', '.join(schema.names)}",
            )
        kind = schema.field(part.column).type
        if not any(fits(kind) for fits in _FITS.get(part.how, _PLAIN)):
            raise ProjectError(
                "PARTITION_COLUMN_TYPE",
                f'partition column "{part.column}" is of type {kind}, which {part.how} has no value of',
                hint="partition by a date, string, integer, decimal, boolean or timestamp column; "
                "year, month and day need a date or a timestamp, hour a timestamp",
            )


_WHOLE = (pa.types.is_integer, pa.types.is_string)
_PLAIN = (*_WHOLE, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_decimal, pa.types.is_boolean)
_FITS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "hour": (pa.types.is_timestamp,),
    "bucket": (*_WHOLE, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_decimal),
    "truncate": (*_WHOLE, pa.types.is_decimal),
    **dict.fromkeys(("year", "month", "day"), (pa.types.is_date32, pa.types.is_timestamp)),
}


def split_by(batch: pa.RecordBatch, parts: Sequence[Part]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of each partition, in their order, with all their columns.

    >>> batch = pa.record_batch({"day": ["a", "b", "a", ""], "n": [1, 2, 3, 4]})
    >>> [(values, rows["n"].to_pylist()) for values, rows in split_by(batch, [Part("day")])]
    [(('a',), [1, 3]), (('b',), [2]), (('',), [4])]
    """
    return grouped(batch, [_key(batch.column(part.column), part) for part in parts])


def _key(column: pa.Array, part: Part) -> Key:
    values = _time(column, part.how) if part.how in _TIMES else _plain(column)
    encoded = values.dictionary_encode(null_encoding="encode")
    found = encoded.dictionary.to_pylist()
    if part.size:
        compute = part.transform.transform(_iceberg(column.type))
        found = [None if value is None else compute(value) for value in found]
    texts: dict[str | None, int] = {}
    codes = [texts.setdefault(_text(value), len(texts)) for value in found]
    return list(texts), pa.array(codes, pa.int64()).take(encoded.indices.cast(pa.int64()))


def _plain(column: pa.Array) -> pa.Array:
    """Dates and times as numbers since 1970."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _time(column: pa.Array, how: str) -> pa.Array:
    """Years, months, days or hours since 1970, also before that."""
    is_date = pa.types.is_date32(column.type)
    numbers = _plain(column).cast(pa.int64())
    if how == "hour":
        return _floor(numbers, _DAY // 24)
    days = numbers if is_date else _floor(numbers, _DAY)
    if how == "day":
        return days
    dates = days.cast(pa.int32()).cast(pa.date32())
    years = pc.subtract(pc.year(dates), 1970)
    return years if how == "year" else pc.add(pc.multiply(years, 12), pc.subtract(pc.month(dates), 1))


def _floor(numbers: pa.Array, size: int) -> pa.Array:
    """Division that rounds down, where Arrow's rounds towards zero."""
    quotient = pc.divide(numbers, size)
    too_high = pc.greater(pc.multiply(quotient, size), numbers)
    return pc.subtract(quotient, too_high.cast(pa.int64()))


def _iceberg(kind: pa.DataType) -> Any:
    from anabranch.connectors.iceberg_schema import iceberg_type

    return iceberg_type(kind, iter(range(1, 10)))


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if isinstance(value, Decimal) else str(value)
