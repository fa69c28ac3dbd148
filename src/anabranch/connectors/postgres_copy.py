"""Arrow rows as Postgres' binary COPY has them, column by column: no value becomes a Python object.

A row is the number of its fields, then for each field its length (-1 for null) and its bytes. Fields of a fixed width
are laid out by numpy side by side; texts are put between them by Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.connectors.postgres_json import as_json
from anabranch.connectors.postgres_types import base

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"

#: What is encoded at once: larger batches are cut.
BLOCK_BYTES = 32 << 20

_DAYS = 10_957  # from 1970 to 2000, where Postgres' clock begins
_MICROSECONDS = _DAYS * 86_400_000_000
_GROUP = 10_000  # numerics are kept in digits of this base

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]

_NUMBERS: Mapping[str, tuple[str, int]] = {
    "boolean": ("u1", 0),
    "smallint": (">i2", 0),
    "integer": (">i4", 0),
    "bigint": (">i8", 0),
    "real": (">f4", 0),
    "double precision": (">f8", 0),
    "date": (">i4", _DAYS),
    "timestamp with time zone": (">i8", _MICROSECONDS),
    "timestamp without time zone": (">i8", _MICROSECONDS),
}


def blocks(batches: Iterable[pa.RecordBatch], kinds: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """What to send for these rows; `kinds` has the types of the table's columns."""
    yield HEADER
    for batch in batches:
        for part in _cut(batch):
            yield encoded(part, [kinds[name] for name in part.schema.names])
    yield TRAILER


def _cut(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    step = max(1, int(batch.num_rows * BLOCK_BYTES / max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def encoded(batch: pa.RecordBatch, kinds: Sequence[str]) -> memoryview:
    """The rows of a batch for columns of these types.

    >>> bytes(encoded(pa.record_batch({"a": pa.array([7, None], pa.int32())}), ["integer"])).hex(" ", 2)
    '0001 0000 0004 0000 0007 0001 ffff ffff'
    """
    rows = _Rows(batch.num_rows)
    rows.add(_constant(batch.num_rows, len(kinds).to_bytes(2)))
    for column, kind in zip(as_json(batch).columns, kinds, strict=True):
        plain = base(kind)
        valid = None if column.null_count == 0 else column.is_valid().to_numpy(zero_copy_only=False)
        if plain == "numeric":
            rows.field(_numeric(column), valid)
        elif plain in _NUMBERS:
            rows.field(_number(column, *_NUMBERS[plain]), valid)
        else:
            rows.text(column, valid, b"\x01" if plain == "jsonb" else b"")
    return rows.joined()


class _Rows:
    """Rows that grow to the right."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._open: list[tuple[_Bytes, Any]] = []  # bytes of every row, and in which rows they stand
        self._done: list[pa.Array] = []

    def add(self, part: _Bytes, valid: Any = None) -> None:
        """Bytes of one width for all rows, or for those that are valid."""
        self._open.append((part, valid))

    def field(self, value: _Bytes, valid: Any) -> None:
        """A field of fixed width."""
        self.add(self._length(np.full(self._count, value.shape[1], ">i4"), valid))
        self.add(value, valid)

    def text(self, column: pa.Array, valid: Any, before: bytes) -> None:
        """A field of any width, with the same bytes before each value."""
        value = column.cast(pa.binary())
        if valid is not None:
            value = value.fill_null(b"")
        lengths = pc.binary_length(value).to_numpy(zero_copy_only=False) + len(before)
        self.add(self._length(lengths.astype(">i4"), valid))
        if before:
            self.add(_constant(self._count, before), valid)
        self._close()
        self._done.append(value)

    def joined(self) -> memoryview:
        """All of it."""
        self._close()
        whole = pc.binary_join_element_wise(*self._done, b"") if len(self._done) > 1 else self._done[0]
        offsets = np.frombuffer(whole.buffers()[1], np.int32)[whole.offset : whole.offset + self._count + 1]
        return memoryview(whole.buffers()[2])[offsets[0] : offsets[-1]]

    def _length(self, lengths: Any, valid: Any) -> _Bytes:
        if valid is not None:
            lengths[~valid] = -1
        return _bytes_of(lengths)

    def _close(self) -> None:
        """Put what is laid out so far into an array with one value for each row."""
        if not self._open:
            return
        parts = np.concatenate([part for part, _ in self._open], axis=1)
        width = parts.shape[1]
        if all(valid is None for _, valid in self._open):
            offsets = np.arange(0, (self._count + 1) * width, width, dtype=np.int32)
        else:
            stands = np.ones(parts.shape, bool)
            start = 0
            for part, valid in self._open:
                if valid is not None:
                    stands[~valid, start : start + part.shape[1]] = False
                start += part.shape[1]
            offsets = np.concatenate([[0], np.cumsum(stands.sum(axis=1))]).astype(np.int32)
            parts = parts[stands]
        data = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(parts))]
        self._done.append(pa.Array.from_buffers(pa.binary(), self._count, data))
        self._open = []


def _constant(count: int, value: bytes) -> _Bytes:
    return np.broadcast_to(np.frombuffer(value, np.uint8), (count, len(value)))


def _bytes_of(values: Any) -> _Bytes:
    found: _Bytes = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize)
    return found


def _number(column: pa.Array, form: str, origin: int) -> _Bytes:
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    values = column.to_numpy(zero_copy_only=False)
    return _bytes_of((values - origin if origin else values).astype(form))


def _numeric(column: pa.Array) -> _Bytes:
    """Digits of base 10,000: how many, the weight of the first, the sign, the scale, then the digits."""
    precision, scale = column.type.precision, column.type.scale
    pad = -scale % 4
    after = (scale + pad) // 4
    before = max(1, -(-(precision - scale) // 4))
    values = _integers(column.cast(pa.decimal128(precision, scale)), small=precision + pad <= 18)
    left = np.abs(values) * 10**pad
    digits = []
    for _ in range(before + after):
        digits.append((left % _GROUP).astype(">i2"))
        left = left // _GROUP
    head = np.empty((len(values), 4), ">i2")
    head[:, 0], head[:, 1], head[:, 3] = before + after, before - 1, scale
    head[:, 2] = np.where(values < 0, 0x4000, 0)
    return _bytes_of_rows(np.column_stack([head, *reversed(digits)]).astype(">i2"))


def _bytes_of_rows(values: Any) -> _Bytes:
    found: _Bytes = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.shape[1] * 2)
    return found


def _integers(column: pa.Array, *, small: bool) -> Any:
    """The digits of decimals as whole numbers; those with more digits than a machine's are Python's own."""
    data = column.buffers()[1]
    if small:
        words = np.frombuffer(data, "<i8")[2 * column.offset : 2 * (column.offset + len(column)) : 2].copy()
        if column.null_count:
            words[~column.is_valid().to_numpy(zero_copy_only=False)] = 0
        return words
    view = memoryview(data)[16 * column.offset : 16 * (column.offset + len(column))]
    whole = [int.from_bytes(view[i : i + 16], "little", signed=True) for i in range(0, len(view), 16)]
    return np.array(whole, dtype=object)
