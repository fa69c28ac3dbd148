"""Statistics of a staged file as Delta's log has them: from its Parquet footer, for floats from the rows.

Readers leave out files whose bounds cannot match, so a wrong bound loses rows: whatever is in doubt is left out here.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.connectors.variants import is_variant

#: Delta's own default of `delta.dataSkippingNumIndexedCols`: only the first columns have statistics.
INDEXED_COLUMNS = 32
_LONGEST_TEXT = 32  # characters of a string's bound, as Delta cuts them
_LAST_CHARACTER = 0x10FFFF
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - arithmetic on plain numbers, no zone involved


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the file that can have statistics: top level, or in structs; never in an array, map or variant."""

    column: int  # index among the file's columns
    path: tuple[str, ...]
    steps: tuple[int, ...]  # field numbers from the top
    type: pa.DataType


def leaves(schema: pa.Schema, limit: int = INDEXED_COLUMNS) -> tuple[Leaf, ...]:
    """The first `limit` leaves of a schema; a negative limit means all, as in Delta.

    >>> inner = pa.struct([("x", pa.int64()), ("l", pa.list_(pa.int64()))])
    >>> [(leaf.column, ".".join(leaf.path)) for leaf in leaves(pa.schema([("s", inner), ("b", pa.string())]))]
    [(0, 's.x'), (2, 'b')]
    """
    found = tuple(_walk(schema, (), (), 0))
    return found if limit < 0 else found[:limit]


def _walk(fields: Any, path: tuple[str, ...], steps: tuple[int, ...], column: int) -> Iterator[Leaf]:
    for number, field in enumerate(fields):
        here, step = (*path, field.name), (*steps, number)
        if pa.types.is_struct(field.type) and not is_variant(field.type):
            yield from _walk(field.type, here, step, column)
        elif not pa.types.is_nested(field.type):
            yield Leaf(column, here, step, field.type)
        column += _width(field.type)


def _width(kind: pa.DataType) -> int:
    """How many columns of the file a type takes."""
    if pa.types.is_map(kind):
        return _width(kind.key_type) + _width(kind.item_type)
    if pa.types.is_struct(kind):
        return sum(_width(field.type) for field in kind)
    return _width(kind.value_type) if pa.types.is_nested(kind) else 1


def skippable_columns(schema: pa.Schema) -> list[str]:
    """Columns by whose statistics and dictionaries a reader may skip row groups, as the Parquet writer names them.

    All but floats: a footer leaves NaN out of its bounds, but Spark sorts NaN above all; and Spark takes -0.0 for 0.0,
    but not in a dictionary. Either way it would skip rows.

    >>> inner = pa.struct([("x", pa.int64()), ("f", pa.float64())])
    >>> skippable_columns(pa.schema([("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), pa.float32()))]))
    ['s.x', 'l.list.element.x', 'm.key_value.key']
    """
    return [name for field in schema for name in _names(field.type, field.name)]


def _names(kind: pa.DataType, name: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _names(field.type, f"{name}.{field.name}")
    elif pa.types.is_map(kind):
        yield from _names(kind.key_type, f"{name}.key_value.key")
        yield from _names(kind.item_type, f"{name}.key_value.value")
    elif pa.types.is_nested(kind):
        yield from _names(kind.value_type, f"{name}.list.element")
    elif not pa.types.is_floating(kind):
        yield name


class FloatStats:
    """Null counts and bounds of float columns, gathered from the rows of one file."""

    def __init__(self, indexed: tuple[Leaf, ...]) -> None:
        self._leaves = [leaf for leaf in indexed if pa.types.is_floating(leaf.type)]
        self._nulls = dict.fromkeys((leaf.column for leaf in self._leaves), 0)
        self._seen: dict[int, list[float]] = {leaf.column: [] for leaf in self._leaves}
        self._with_nan: set[int] = set()

    def add(self, table: pa.Table) -> None:
        """Take the rows of one row group into account."""
        for leaf in self._leaves:
            values = table.column(leaf.steps[0])
            if len(leaf.steps) > 1:
                values = pc.struct_field(values, list(leaf.steps[1:]))
            self._nulls[leaf.column] += values.null_count
            if leaf.column in self._with_nan or values.null_count == len(values):
                continue
            if pc.any(pc.is_nan(values)).as_py():
                self._with_nan.add(leaf.column)
                continue
            found = pc.min_max(values)
            self._seen[leaf.column] += [found["min"].as_py(), found["max"].as_py()]

    def read(self, leaf: Leaf) -> tuple[int, tuple[float, float] | None]:
        """Null count and bounds; no bounds where NaN is among the values."""
        seen = self._seen[leaf.column]
        if not seen or leaf.column in self._with_nan:
            return self._nulls[leaf.column], None
        low, high = min(seen), max(seen)
        return self._nulls[leaf.column], (low or -0.0, high or 0.0)  # some readers put -0.0 below 0.0


def delta_stats(footer: pq.FileMetaData, indexed: tuple[Leaf, ...], floats: FloatStats) -> dict[str, Any]:
    """`numRecords`, `minValues`, `maxValues` and `nullCount` of one file.

    Everything in it is plain JSON, so that a receipt keeps it; decimals are text here to stay exact, and become numbers
    when the sink writes its log.
    """
    stats: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf in indexed:
        nulls, bounds = floats.read(leaf) if pa.types.is_floating(leaf.type) else _read(footer, leaf)
        if nulls is not None:
            _put(stats["nullCount"], leaf.path, nulls)
        if bounds is None:
            continue
        low, high = _bound(bounds[0], leaf.type, up=False), _bound(bounds[1], leaf.type, up=True)
        if low is not None and high is not None:
            _put(stats["minValues"], leaf.path, low)
            _put(stats["maxValues"], leaf.path, high)
    return stats


def _read(footer: pq.FileMetaData, leaf: Leaf) -> tuple[int | None, tuple[Any, Any] | None]:
    """Null count and raw bounds over all row groups; None for what any row group does not tell."""
    nulls: int | None = 0
    lows: list[Any] = []
    highs: list[Any] = []
    complete = True
    for number in range(footer.num_row_groups):
        chunk = footer.row_group(number).column(leaf.column)
        told = chunk.statistics
        if told is None or not told.has_null_count:
            return None, None
        nulls = None if nulls is None else nulls + told.null_count
        if told.has_min_max:
            lows.append(_raw(told.min_raw, leaf.type))
            highs.append(_raw(told.max_raw, leaf.type))
        elif told.null_count < chunk.num_values:
            complete = False
    if not complete or not lows:
        return nulls, None
    return nulls, (min(lows), max(highs))


def _raw(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind) and isinstance(value, bytes):
        return int.from_bytes(value, "big", signed=True)
    return value


def _bound(value: Any, kind: pa.DataType, *, up: bool) -> Any:
    """The bound as JSON has it, or None for types and values that have none."""
    if pa.types.is_integer(kind):
        return value
    if pa.types.is_floating(kind):
        return value if math.isfinite(value) else None
    if pa.types.is_decimal(kind):
        return _decimal_text(value, kind.scale)
    if pa.types.is_string(kind):
        return _cut_up(value) if up else _cut_down(value)
    if pa.types.is_date(kind):
        moment = _moment(days=value)
        return moment and moment.date().isoformat()
    if pa.types.is_timestamp(kind):
        # Delta keeps milliseconds, so the bounds are widened to whole ones.
        moment = _moment(milliseconds=-(-value // 1000) if up else value // 1000)
        return moment and moment.isoformat(timespec="milliseconds") + ("Z" if kind.tz else "")
    return None


def _moment(**since: int) -> dt.datetime | None:
    try:
        return _EPOCH + dt.timedelta(**since)
    except OverflowError:  # outside the years 1 to 9999
        return None


def _decimal_text(unscaled: int, scale: int) -> str:
    """
    >>> _decimal_text(-5, 2), _decimal_text(12345, 2), _decimal_text(7, 0)
    ('-0.05', '123.45', '7')
    """
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if unscaled < 0 else "") + whole + ("." + part if part else "")


def _cut_down(raw: bytes) -> str | None:
    """A string not above the given one."""
    try:
        return raw.decode()[:_LONGEST_TEXT]
    except UnicodeDecodeError:
        return None


def _cut_up(raw: bytes) -> str | None:
    """A string not below the given one: cut, and its last character raised. Byte order is the order of characters.

    >>> _cut_up(b"short"), _cut_up(b"x" * 40) == "x" * 31 + "y"
    ('short', True)
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= _LONGEST_TEXT:
        return text
    kept = text[:_LONGEST_TEXT].rstrip(chr(_LAST_CHARACTER))
    if not kept:
        return None
    raised = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if raised == 0xD800 else raised)  # no surrogates: they are not characters


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def indexed_columns(properties: Mapping[str, str]) -> int:
    """How many columns the table wants statistics of."""
    return int(properties.get("delta.dataSkippingNumIndexedCols", INDEXED_COLUMNS))
