"""Profile columns of Arrow rows, without a loop over values. It runs in workers, and in jobs without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.connectors.variants import marked
from anabranch.core.declarations import Dataset
from anabranch.core.profile import TEXT_KEPT, UNKNOWN, ColumnProfile, Lengths, Observed, TableProfile, Text
from anabranch.core.sketches import MOST_BUCKETS, PER_DOUBLING, Histogram, Scale
from anabranch.engine.value_hashes import hash_texts, hash_words, sketch

#: Set to `off`, it keeps a run from profiling, whatever is declared.
SWITCH = "ANABRANCH_OBSERVE"

#: Columns, and fields of columns, of one table that are profiled; the others are named as left out.
MOST_COLUMNS = 200
#: Rows, and bytes of rows, that are gathered before they are profiled: small batches cost more for each row.
_GATHER_ROWS, _GATHER_BYTES = 1 << 16, 4 << 20

_SECOND = 1_000_000
_LAST_MICRO = 2**63 - 1  # what is further out is told as this
_KEPT_BYTES = 4 * (TEXT_KEPT + 1)


class Observer:
    """Takes the rows of one output as they pass. It never raises: what goes wrong is told at the end, instead."""

    def __init__(self, columns: Sequence[str] = ()) -> None:
        self._columns = tuple(columns)
        self._profile = TableProfile()
        self._failure = ""
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def take(self, rows: pa.RecordBatch) -> None:
        """Look at some rows."""
        if self._failure:
            return
        try:
            if missing := [name for name in self._columns if name not in rows.schema.names]:
                self._failure = f'there is no column "{missing[0]}"'
                return
            if self._gathered and self._gathered[0].schema != rows.schema:
                self._look()
            self._gathered.append(rows)
            self._rows, self._bytes = self._rows + rows.num_rows, self._bytes + rows.nbytes
            if self._rows >= _GATHER_ROWS or self._bytes >= _GATHER_BYTES:
                self._look()
        except Exception as error:  # noqa: BLE001 - observing must not end what is observed
            self._failed(error)

    def seen(self) -> TableProfile | str:
        """The profile of all rows, or why there is none."""
        try:
            if self._gathered and not self._failure:
                self._look()
        except Exception as error:  # noqa: BLE001 - as above
            self._failed(error)
        return self._failure or self._profile

    def _look(self) -> None:
        table = pa.Table.from_batches(self._gathered)
        self._gathered, self._rows, self._bytes = [], 0, 0
        self._profile += profile_of(table, self._columns)

    def _failed(self, error: Exception) -> None:
        self._gathered = []
        self._failure = f"{type(error).__name__}: {error}"


def observed_columns(outputs: Iterable[Dataset]) -> dict[str, tuple[str, ...]]:
    """The outputs whose rows are profiled, each with its columns; () for all of them."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "false", "no"):
        return {}
    return {dataset.name: dataset.observe for dataset in outputs if dataset.observe is not None}


def all_seen(observers: Mapping[str, Observer]) -> Observed:
    """What the observers of several outputs saw."""
    seen = {name: observer.seen() for name, observer in observers.items()}
    return Observed(
        {name: found for name, found in seen.items() if isinstance(found, TableProfile)},
        {name: found for name, found in seen.items() if isinstance(found, str)},
    )


def profile_of(rows: pa.Table, columns: Sequence[str] = ()) -> TableProfile:
    """The profile of some rows; of these columns only, if any are named. A name that is no column is left aside.

    >>> profile_of(pa.table({"n": [1, None, 3]})).columns["n"].nulls
    1
    """
    found: dict[str, ColumnProfile] = {}
    left_out = []
    for name in rows.schema.names if not columns else [c for c in columns if c in rows.schema.names]:
        column = rows.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # more than one array can hold
            column = pa.concat_arrays(column.chunks)
        for path, profile in _profiles(name, column):
            if len(found) < MOST_COLUMNS:
                found[path] = profile
            else:
                left_out.append(path)
    return TableProfile(rows.num_rows, found, tuple(sorted(left_out)))


def _profiles(path: str, values: pa.Array) -> Iterator[tuple[str, ColumnProfile]]:
    """A column, then its fields or elements."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    yield path, _profile(values)
    if pa.types.is_struct(kind) and not marked(kind):
        for i in range(kind.num_fields):
            yield from _profiles(f"{path}.{kind.field(i).name}", pc.struct_field(values, [i]))
    elif _is_list(kind):
        yield from _profiles(f"{path}[]", pc.list_flatten(values))


def _profile(values: pa.Array) -> ColumnProfile:
    kind, rows, nulls = values.type, len(values), values.null_count
    there = values.drop_null() if nulls else values
    if pa.types.is_null(kind):
        return ColumnProfile(UNKNOWN, rows, rows)
    if pa.types.is_boolean(kind):
        return _numbers("boolean", there.cast(pa.int8()), rows, nulls)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numbers("number", there, rows, nulls)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _moments(there, rows, nulls)
    if _is_text(kind):
        return _texts(there.cast(pa.large_string()) if kind != pa.large_string() else there, rows, nulls)
    if _is_binary(kind):
        return _sized("binary", pc.binary_length(there.cast(pa.large_binary())), rows, nulls)
    if _is_list(kind):
        return _sized("list", pc.list_value_length(there), rows, nulls)
    if pa.types.is_map(kind):
        as_lists = there.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        return _sized("map", pc.list_value_length(as_lists), rows, nulls)
    return ColumnProfile(marked(kind) or ("struct" if pa.types.is_struct(kind) else "other"), rows, nulls)


def _numbers(name: str, there: pa.Array, rows: int, nulls: int) -> ColumnProfile:
    if pa.types.is_floating(there.type):
        return _floats(there.cast(pa.float64()).to_numpy() + 0.0, rows, nulls)  # -0.0 + 0.0 is 0.0
    if pa.types.is_decimal(there.type) and there.type.bit_width < 128:  # little can be done with narrow ones
        there = there.cast(pa.decimal128(there.type.precision, there.type.scale))
    ends = pc.min_max(there)
    if pa.types.is_decimal(there.type):
        floats = _as_floats(there)
        distinct = sketch(hash_words(_decimal_words(there)))
    else:
        floats = there.cast(pa.float64(), safe=False).to_numpy()
        distinct = sketch(hash_words(_integers(there)))
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return ColumnProfile(name, rows, nulls, 0, 0, low, high, None, distinct, _log_histogram(floats))


def _floats(values: npt.NDArray[np.float64], rows: int, nulls: int) -> ColumnProfile:
    is_nan = np.isnan(values)
    nans = int(is_nan.sum())
    real = values[~is_nan] if nans else values
    low, high = (float(real.min()), float(real.max())) if len(real) else (None, None)
    finite = real[np.isfinite(real)]
    hashed = np.append(real, np.nan) if nans else real  # all NaNs are one value
    return ColumnProfile(
        "number",
        rows,
        nulls,
        nans,
        len(real) - len(finite),
        low,
        high,
        None,
        sketch(hash_words(hashed)),
        _log_histogram(finite),
    )


def _moments(there: pa.Array, rows: int, nulls: int) -> ColumnProfile:
    kind = there.type
    scale: Scale = "day" if pa.types.is_date(kind) else "second"
    if scale == "day":
        name, unit = "date", 1
        numbers = there.cast(pa.date32(), safe=False).cast(pa.int32()).cast(pa.int64())
    else:
        name = "timestamp" if pa.types.is_timestamp(kind) else "duration" if pa.types.is_duration(kind) else "time"
        numbers, unit = _micros(there), _SECOND
    exact = numbers.to_numpy()
    low, high = (int(exact.min()), int(exact.max())) if len(exact) else (None, None)
    spread = _linear_histogram(exact // unit, scale)
    return ColumnProfile(name, rows, nulls, 0, 0, low, high, None, sketch(hash_words(exact)), spread)


def _micros(there: pa.Array) -> pa.Array:
    per_second = {"s": 1, "ms": 1_000, "us": _SECOND, "ns": 1_000_000_000}[there.type.unit]
    width = pa.int32() if there.type.bit_width == 32 else pa.int64()
    numbers = there.cast(width).cast(pa.int64())
    if per_second > _SECOND:
        return pa.array(numbers.to_numpy() // (per_second // _SECOND))
    factor = _SECOND // per_second
    most = _LAST_MICRO // factor
    return pc.multiply(pa.array(numbers.to_numpy().clip(-most, most)), factor) if factor > 1 else numbers


def _texts(there: pa.Array, rows: int, nulls: int) -> ColumnProfile:
    if not len(there):
        return ColumnProfile("text", rows, nulls, distinct=sketch(np.empty(0, np.uint64)), histogram=Histogram())
    ends = pc.min_max(there)
    lengths = pc.utf8_length(there).to_numpy()
    return ColumnProfile(
        "text",
        rows,
        nulls,
        low=_cut(ends["min"]),
        high=_cut(ends["max"]),
        lengths=_lengths(lengths),
        distinct=sketch(hash_texts(there)),
        histogram=_log_histogram(lengths.astype(np.float64)),
    )


def _cut(text: pa.Scalar) -> Text:
    """The beginning of a text, without a copy of all of it; bytes that are no UTF-8 do not matter."""
    data = text.as_buffer()
    beginning = memoryview(data)[:_KEPT_BYTES].tobytes().decode("utf-8", "replace")
    return Text(beginning[:TEXT_KEPT], cut=len(beginning) > TEXT_KEPT)


def _sized(name: str, sizes: pa.Array, rows: int, nulls: int) -> ColumnProfile:
    lengths = sizes.to_numpy()
    if not len(lengths):
        return ColumnProfile(name, rows, nulls, histogram=Histogram())
    spread = _log_histogram(lengths.astype(np.float64))
    return ColumnProfile(name, rows, nulls, lengths=_lengths(lengths), histogram=spread)


def _lengths(lengths: npt.NDArray[Any]) -> Lengths:
    return Lengths(int(lengths.min()), int(lengths.max()), int(lengths.sum(dtype=np.int64)))


def _log_histogram(values: npt.NDArray[np.float64]) -> Histogram:
    above, below = values[values > 0], values[values < 0]
    zero = len(values) - len(above) - len(below)
    return Histogram("log", 0, zero, _log_buckets(above), _log_buckets(-below)).fitted()


def _log_buckets(values: npt.NDArray[np.float64]) -> dict[int, int]:
    if not len(values):
        return {}
    keys = np.floor(np.log2(values) * PER_DOUBLING).astype(np.int64)
    return _counted(keys)


def _linear_histogram(values: npt.NDArray[np.int64], scale: Scale) -> Histogram:
    """Seconds of a year are millions of buckets: they are put together before they become a histogram."""
    level = 0
    keys, counts = np.unique(values, return_counts=True)
    while len(keys) > MOST_BUCKETS:
        level, keys = level + 1, keys >> 1
        first = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
        keys, counts = keys[first], np.add.reduceat(counts, first)
    return Histogram(scale, level, 0, dict(zip(keys.tolist(), counts.tolist(), strict=True)))


def _counted(keys: npt.NDArray[np.int64]) -> dict[int, int]:
    if not len(keys):
        return {}
    lowest = int(keys.min())
    counts = np.bincount(keys - lowest)
    present = np.flatnonzero(counts)
    return {int(key) + lowest: int(counts[key]) for key in present}


def _integers(there: pa.Array) -> npt.NDArray[Any]:
    wide = pa.uint64() if pa.types.is_uint64(there.type) else pa.int64()
    numbers: npt.NDArray[Any] = there.cast(wide).to_numpy()
    return numbers


def _as_floats(there: pa.Array) -> npt.NDArray[np.float64]:
    floats: npt.NDArray[np.float64] = there.cast(pa.float64(), safe=False).to_numpy()
    return floats


def _decimal_words(there: pa.Array) -> npt.NDArray[np.uint64]:
    """The unscaled values, a row each."""
    width = there.type.bit_width // 64
    words = np.frombuffer(there.buffers()[1], np.uint64).reshape(-1, width) if len(there) else np.empty((0, width))
    return words.astype(np.uint64, copy=False)[there.offset : there.offset + len(there)]


def _is_list(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _is_text(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_binary(kind: pa.DataType) -> bool:
    of_any_size = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    return any(is_one(kind) for is_one in (*of_any_size, pa.types.is_fixed_size_binary))
