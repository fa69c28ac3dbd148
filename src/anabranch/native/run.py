"""Run a native program over batches of records, in a worker or in the driver.

A record for which some flow is not certain to give what Spark gives is taken out of all flows, and handed back: Spark
computes it in the same epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.database import open_database
from anabranch.native.parse import JsonParser, JsonShape
from anabranch.native.parse_csv import CsvParser
from anabranch.native.parse_csv_shape import CsvShape
from anabranch.native.parse_guard import text_of
from anabranch.native.program import DOUBT, NOW, RECORD, RECORDS, NativeFlow, NativeProgram
from anabranch.native.times import INSTANT, read_times

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a thread keeps from one epoch to the next."""

    thread: threading.Thread
    database: duckdb.DuckDBPyConnection
    parsers: dict[str, JsonParser | CsvParser] = field(default_factory=dict)


#: By the number of the thread. What is local to threads is taken apart in a child that is forked, and DuckDB's
#: connections die of that, and the child with them.
_kept: dict[int, _Kept] = {}


@dataclass(frozen=True, slots=True)
class Passed:
    """What a batch gave: the rows of each flow, and the records that are Spark's to compute."""

    rows: Sequence[pa.Table]
    rest: pa.RecordBatch | None


class NativeRun:
    """A program at work in one thread."""

    def __init__(self, program: NativeProgram, now: datetime | None = None) -> None:
        self._program = program
        own = _own()
        self._parsers = _parsers(own.parsers, [parse.shape for parse in program.parses])
        self._now = pa.scalar(now, pa.timestamp("us", "UTC"))
        self._database = own.database

    def take(self, raw: pa.RecordBatch) -> Passed:
        """The rows of each flow, from a batch of raw records.

        Records that are in doubt stay where they are, and give rows like others, until the rows are given out.
        """
        program = self._program
        records, doubts = self._parsed(raw)
        blank = self._blank(records, _any(doubts)) if program.skips_blank else None
        for instant in program.instants:
            texts = field_of(records, instant.place).combine_chunks()
            times, odd = read_times(texts, INSTANT, utc=instant.utc, days=True)
            records = records.append_column(instant.name, times)
            doubts.append(odd)
        if program.shared:
            found = self._computed(program.shared, self._for_sql(records))
            for name in program.shared.schema.names:
                records = records.append_column(name, found.column(name))
            doubts.append(_doubted(found, raw.num_rows))
        columns = self._for_sql(records)
        flows = [(flow, self._computed(flow, columns) if flow.sql else None) for flow in program.flows]
        doubts += [_doubted(found, raw.num_rows) for _, found in flows if found is not None]
        doubt = _any(doubts)
        if doubt is not None and blank is not None:
            doubt = doubt & ~blank  # whatever a flow may say of what is no record
        certain = _none_of(doubt, blank)
        rows = [_rows(flow, records, found, certain) for flow, found in flows]
        return Passed(rows, None if doubt is None else raw.filter(pa.array(doubt)))

    def _parsed(self, raw: pa.RecordBatch) -> tuple[pa.Table, list[np.ndarray | None]]:
        """The records with what is parsed, and where that is in doubt."""
        names, columns, doubts = list(raw.schema.names), list(raw.columns), []
        for parse, parser in zip(self._program.parses, self._parsers, strict=True):
            found = parser.parse(raw.column(parse.raw))
            names.append(parse.name)
            columns.append(found.records)
            doubts.append(None if found.doubt is None else found.doubt.to_numpy(zero_copy_only=False))
        read = {taken.place[0] for taken in self._program.reads}
        for number, name in enumerate(raw.schema.names):
            if name in read:
                columns[number], odd = _sound(columns[number])
                doubts.append(odd)
        if self._program.asks_time:
            names.append(NOW)
            columns.append(pa.repeat(self._now, raw.num_rows))
        return pa.table(columns, names=names), doubts

    def _blank(self, records: pa.Table, doubt: np.ndarray | None) -> np.ndarray | None:
        """Which values are no records."""
        parsed = records.column(self._program.parses[0].name)
        if not parsed.null_count:
            return None
        nothing: np.ndarray = parsed.is_null().to_numpy()
        return nothing if doubt is None else nothing & ~doubt

    def _for_sql(self, records: pa.Table) -> pa.Table:
        """What SQL reads, numbered; without zones, at which DuckDB would look again for each timestamp."""
        there = [read for read in self._program.reads if read.place[0] in records.column_names]
        columns = [field_of(records, read.place) for read in there]
        columns = [column.cast(_without_zone(column.type)) for column in columns]
        columns.append(pa.chunked_array([np.arange(records.num_rows, dtype=np.int32)]))
        return pa.table(columns, names=[*(read.name for read in there), RECORD])

    def _computed(self, flow: NativeFlow, records: pa.Table) -> pa.Table:
        assert flow.sql is not None, "there is something to compute"
        self._database.register(RECORDS, records)
        try:
            return self._database.sql(flow.sql).to_arrow_table()
        finally:
            self._database.unregister(RECORDS)


def _sound(column: pa.Array) -> tuple[pa.Array, np.ndarray | None]:
    """A raw column as DuckDB can read it, and where it is not the same: of what is not UTF-8 its functions die."""
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column, None
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        texts, sound = text_of(column)
        return pc.if_else(column.is_valid(), texts, pa.scalar(None, texts.type)), ~sound
    return column, None


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_zone(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _without_zone(kind.value_type)))
    return kind


def field_of(records: pa.Table, place: Sequence[str]) -> pa.ChunkedArray:
    """A column of the records, or a field of one."""
    column = records.column(place[0])
    for name in place[1:]:
        # By its place: Arrow takes a name that begins with a dot or a bracket for a path.
        column = pc.struct_field(column, column.type.get_field_index(name))
    return column


def _doubted(found: pa.Table, records: int) -> np.ndarray | None:
    """Which records a flow is in doubt about; None if there are none."""
    if DOUBT not in found.column_names:
        return None
    numbers = found.column(RECORD).filter(found.column(DOUBT))
    if not len(numbers):
        return None
    flags = np.zeros(records, dtype=bool)
    flags[numbers.to_numpy()] = True
    return flags


def _any(flags: Sequence[np.ndarray | None]) -> np.ndarray | None:
    some = [each for each in flags if each is not None]
    return np.logical_or.reduce(some) if some else None


def _none_of(*flags: np.ndarray | None) -> np.ndarray | None:
    found = _any(flags)
    return None if found is None else ~found


def _rows(flow: NativeFlow, records: pa.Table, found: pa.Table | None, certain: np.ndarray | None) -> pa.Table:
    """The rows of a flow that are certain, with the very types that Spark would give."""
    numbers = None  # of the records that rows are of; None: each is a row
    if flow.mask:
        chosen = records.column(flow.mask).to_numpy()
        numbers = pa.array(np.flatnonzero(chosen if certain is None else chosen & certain))
    elif found is not None and RECORD in found.column_names:
        if certain is not None:
            found = found.filter(pa.array(certain[found.column(RECORD).to_numpy()]))
        numbers = found.column(RECORD) if flow.chosen else None
    elif found is not None and certain is not None:
        found = found.filter(pa.array(certain))
    columns = dict(zip(found.column_names, found.columns, strict=True)) if found is not None else {}
    kept = None if certain is None or numbers is not None else pa.array(certain)
    for taken in flow.taken:
        column = field_of(records, taken.place)
        if numbers is not None:
            column = column.take(numbers)
        columns[taken.name] = column if kept is None else column.filter(kept)
    return pa.table([_cast(columns[f.name], f.type) for f in flow.schema], schema=flow.schema)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type == kind:
        return column
    return pa.chunked_array([_typed(chunk, kind) for chunk in column.chunks], kind)


def _typed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as another type. Arrow's own cast refuses a field that is never null, in a struct that is."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        fields = [_typed(array.field(number), field.type) for number, field in enumerate(kind)]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
        mask = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(offsets, _typed(array.flatten(), kind.value_type), type=kind, mask=mask)
    return array.cast(kind)


def _own() -> _Kept:
    """What this thread keeps; that of threads that are over is let go."""
    thread, number = threading.current_thread(), threading.get_ident()
    found = _kept.get(number)
    if found is None or found.thread is not thread:
        for other in [n for n, kept in list(_kept.items()) if not kept.thread.is_alive()]:
            _kept.pop(other, None)
        found = _kept[number] = _Kept(thread, open_database())
    return found


def _parsers(
    known: dict[str, JsonParser | CsvParser], shapes: Sequence[JsonShape | CsvShape]
) -> list[JsonParser | CsvParser]:
    wanted = {repr(shape): shape for shape in shapes}
    for key in known.keys() - wanted.keys():  # a worker that meets another program has done with the one before
        del known[key]
    for key in wanted.keys() - known.keys():
        shape = wanted[key]
        known[key] = CsvParser(shape) if isinstance(shape, CsvShape) else JsonParser(shape)
    return [known[repr(shape)] for shape in shapes]


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one; there must be some row, and no column may be larger than an array of its type."""
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
