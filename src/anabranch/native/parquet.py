"""Columns of Parquet files as Spark's reader gives them: only of files in which every column has a known form.

What a file has for a column is looked up in a table. A file with anything else is odd, and so is one with a value that
DuckDB or Spark's calendar could take for something else; Spark then reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: Rows that are read at once, and bytes of a column that are read from the file at once.
ROWS = 65_536
_BUFFER = 1 << 20

#: The last bytes of a file: the length of its footer, and a word.
_TAIL = 8

#: Forms of a column in a file, by the type that it is declared to have.
_FORMS: Mapping[pa.DataType, frozenset[str]] = {
    pa.bool_(): frozenset({"BOOLEAN"}),
    pa.int8(): frozenset({"INT32 int 8"}),
    pa.int16(): frozenset({"INT32 int 16"}),
    pa.int32(): frozenset({"INT32", "INT32 int 32"}),
    pa.int64(): frozenset({"INT64", "INT64 int 64", "INT32", "INT32 int 32"}),
    pa.float32(): frozenset({"FLOAT"}),
    pa.float64(): frozenset({"DOUBLE"}),
    pa.string(): frozenset({"BYTE_ARRAY string", "BYTE_ARRAY"}),
    pa.binary(): frozenset({"BYTE_ARRAY"}),
    pa.date32(): frozenset({"INT32 date"}),
    # What a clock shows is taken for UTC.
    pa.timestamp("us", "UTC"): frozenset(
        {f"INT64 {how} {unit}seconds" for how in ("utc", "clock") for unit in ("milli", "micro")} | {"INT96"}
    ),
    pa.timestamp("us"): frozenset({"INT64 clock milliseconds", "INT64 clock microseconds"}),
}

#: Years 1 to 9999, in days and in microseconds: outside of them are values that mean infinity to DuckDB.
_DAYS = -719_162, 2_932_896
_MICROS = -62_135_596_800_000_000, 253_402_300_799_999_999

#: What Spark writes into a file: its version, and that the calendar is the old one.
_VERSION = b"org.apache.spark.version"
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_FIRST_VERSION = b"3.1.0"  # with the calendar of today for every form of a time


class OddFile(Exception):
    """A file that only Spark may read; the text says why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A column: its name in the files, and its type, which is one of those that `known` knows."""

    name: str
    type: pa.DataType


def known(kind: pa.DataType) -> bool:
    """Whether columns of a type can be read.

    >>> known(pa.list_(pa.int64())), known(pa.map_(pa.string(), pa.int64()))
    (True, False)
    """
    if pa.types.is_struct(kind):
        return kind.num_fields > 0 and all(known(field.type) for field in kind)
    if pa.types.is_list(kind):
        return known(kind.value_type)
    return kind in _FORMS or pa.types.is_decimal128(kind)


def read_part(path: str, wanted: Sequence[Wanted], start: int, length: int, size: int) -> Iterator[pa.RecordBatch]:
    """The wanted columns of the row groups in a part of a local file of that size.

    Each row group is in one part. What the file does not have is null.
    """
    with pa.OSFile(path) as opened:
        if opened.size() != size:
            raise OddFile("it has changed")
        file = pq.ParquetFile(opened, buffer_size=_BUFFER, coerce_int96_timestamp_unit="us")
        _check_not_signed(opened, file.metadata)
        found = Layout(file.metadata, file.schema_arrow, wanted)
        for number, place in enumerate(_places(file.metadata, size)):
            if start <= place < start + length:
                yield from _group(file, number, found)


def _places(metadata: pq.FileMetaData, size: int) -> list[int]:
    """A byte of the file for each row group, about where it begins.

    Where it does begin is said of its columns, and Arrow's Python dies of a look at those where the footer is damaged.
    """
    sizes = [max(1, metadata.row_group(number).total_byte_size) for number in range(metadata.num_row_groups)]
    return [before * size // sum(sizes) for before in [*accumulate(sizes, initial=0)][:-1]]


def _check_not_signed(opened: pa.OSFile, metadata: pq.FileMetaData) -> None:
    """Refuse a footer with a signature after it: columns may be encrypted, and Arrow dies of a look at these."""
    opened.seek(opened.size() - _TAIL)
    if int.from_bytes(opened.read(4), "little") != metadata.serialized_size:
        raise OddFile("it is signed")


def _group(file: pq.ParquetFile, number: int, layout: Layout) -> Iterator[pa.RecordBatch]:
    rows = file.metadata.row_group(number).num_rows
    if not layout.names:
        for first in range(0, rows, ROWS):
            yield layout.batch(None, min(ROWS, rows - first))
        return
    read = 0
    for batch in file.iter_batches(ROWS, row_groups=[number], columns=layout.names, use_threads=False):
        read += batch.num_rows
        yield layout.batch(batch, batch.num_rows)
    if read != rows:
        raise OddFile(f"it has {read} of {rows} rows")


class Layout:
    """Where a file has the wanted columns. `OddFile` if it has one in a form that is not known."""

    def __init__(self, metadata: pq.FileMetaData, schema: pa.Schema, wanted: Sequence[Wanted]) -> None:
        self._metadata = metadata
        self._wanted = wanted
        written = metadata.metadata or {}
        self._by_spark = _VERSION in written
        if any(key in written for key in _LEGACY) or written.get(_VERSION, _FIRST_VERSION) < _FIRST_VERSION:
            raise OddFile("its calendar is an old one")
        firsts = _firsts(schema)
        if firsts[-1] != metadata.num_columns:
            raise OddFile("its columns are of unusual kinds")
        self.names: list[str] = []  # of the columns that are there
        self._of: list[str | None] = []  # for each wanted one
        for one in wanted:
            place = _place(schema.names, one.name)
            self._of.append(None if place is None else schema.names[place])
            if place is not None:
                self.names.append(schema.names[place])
                self._check(schema.field(place).type, one.type, [schema.names[place]], firsts[place])

    def batch(self, read: pa.RecordBatch | None, rows: int) -> pa.RecordBatch:
        """The wanted columns, with the types that they are wanted in."""
        columns = []
        for one, name in zip(self._wanted, self._of, strict=True):
            if name is None or read is None:
                columns.append(pa.nulls(rows, one.type))
                continue
            (place,) = read.schema.get_all_field_indices(name)
            columns.append(_typed(read.column(place), one.type))
        return pa.record_batch(columns, names=[str(number) for number in range(len(columns))])

    def _check(self, found: pa.DataType, kind: pa.DataType, path: list[str], leaf: int) -> None:
        """Compare what is there, from a leaf of the file on, with what is wanted."""
        if pa.types.is_struct(kind):
            if not pa.types.is_struct(found):
                raise OddFile(f"{'.'.join(path)} is no struct")
            firsts = _firsts(found)
            for field in kind:
                place = _place([own.name for own in found], field.name)
                if place is None:
                    raise OddFile(f"{'.'.join(path)} has no field {field.name}")
                own = found.field(place)
                self._check(own.type, field.type, [*path, own.name], leaf + firsts[place])
            return
        if pa.types.is_list(kind):
            if not (pa.types.is_list(found) or pa.types.is_large_list(found)):
                raise OddFile(f"{'.'.join(path)} is no list")
            element = found.value_field.name
            if element not in ("element", "item"):
                raise OddFile(f"{'.'.join(path)} is a list of an old kind")
            self._check(found.value_type, kind.value_type, [*path, "list", element], leaf)
            return
        column = self._metadata.schema.column(leaf)
        form = _form(column)
        if column.path != ".".join(path) or column.max_repetition_level != sum(name == "list" for name in path[1:-1]):
            raise OddFile(f"{column.path} is nested in an unusual way")
        if form not in _forms(kind) or (form == "INT96" and not self._by_spark):
            raise OddFile(f"{column.path} is {form}, which is not the usual form of {kind}")
        if not _is_plain(found):
            raise OddFile(f"{column.path} was {found}")


def _firsts(fields: Iterable[pa.Field]) -> list[int]:
    """The number of the first leaf of each field, and how many there are."""
    return [*accumulate((_leaves(field.type) for field in fields), initial=0)]


def _leaves(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaves(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return _leaves(kind.value_type)
    return sum(_leaves(kind.field(n).type) for n in range(kind.num_fields)) if kind.num_fields else 1


def _place(names: Sequence[str], wanted: str) -> int | None:
    """Where a name is, in whatever case; None if it is not. Two are an error to Spark, who says so."""
    found = [n for n, name in enumerate(names) if name.casefold() == wanted.casefold()]
    if not found:
        return None
    if len(found) > 1 or (names[found[0]] != wanted and not (names[found[0]] + wanted).isascii()):
        raise OddFile(f"it has {wanted} in other letters")
    return found[0]


def _forms(kind: pa.DataType) -> frozenset[str]:
    if pa.types.is_decimal128(kind):
        whole = "INT32" if kind.precision <= 9 else "INT64" if kind.precision <= 18 else None
        physical = [one for one in (whole, "FIXED_LEN_BYTE_ARRAY") if one]
        return frozenset(f"{one} decimal {kind.precision} {kind.scale}" for one in physical)
    return _FORMS[kind]


def _form(column: Any) -> str:
    """What a column of a file physically is, and what that stands for."""
    said: dict[str, Any] = json.loads(column.logical_type.to_json())
    match said["Type"].lower():
        case "none":
            words: list[object] = []
        case "int":
            words = ["int" if said["isSigned"] else "unsigned", said["bitWidth"]]
        case "timestamp":
            words = ["utc" if said["isAdjustedToUTC"] else "clock", said["timeUnit"]]
        case "decimal":
            words = ["decimal", said["precision"], said["scale"]]
        case other:
            words = [other]
    return " ".join(map(str, [column.physical_type, *words]))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a type that was kept beside the columns is no other than what they are; or only another container."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return not (isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind) or pa.types.is_duration(kind))


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """What was read as the type that is wanted; raises what Arrow raises, or `OddFile`, for values that are odd."""
    if pa.types.is_struct(kind):
        names = [field.name for field in array.type]
        fields = [_typed(array.field(_place(names, field.name)), field.type) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        values = _typed(array.values, kind.value_type)
        mask = array.is_null() if array.null_count else None
        offsets = pa.array(array.offsets.to_numpy()).cast(pa.int32())
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)
    if pa.types.is_timestamp(kind):
        times = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
        _check_within(times, *_MICROS)
        return times.cast(kind)
    found = array if array.type == kind else array.cast(kind)
    if pa.types.is_date32(kind):
        _check_within(found.cast(pa.int32()), *_DAYS)
    elif pa.types.is_decimal(kind):
        largest = Decimal((0, (9,) * kind.precision, -kind.scale))
        _check_within(found, -largest, largest)
    elif pa.types.is_string(kind):
        found.validate(full=True)
    return found


def _check_within(array: pa.Array, least: object, most: object) -> None:
    found = pc.min_max(array)
    low, high = found["min"].as_py(), found["max"].as_py()
    if low is not None and not (least <= low and high <= most):
        raise OddFile(f"it has values from {low} to {high}")
