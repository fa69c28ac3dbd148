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

from anabranch.native.parse import JsonParser, JsonShape
from anabranch.native.program import DOUBT, NOW, RECORD, RECORDS, NativeFlow, NativeProgram

if TYPE_CHECKING:
    import duckdb

#: One thread per worker, as Spark counts its cores; and no way out of the process.
_SETTINGS = (
    "SET threads = 1",
    "SET TimeZone = 'UTC'",
    "SET preserve_insertion_order = true",
    "SET autoinstall_known_extensions = false",
    "SET autoload_known_extensions = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a thread keeps from one epoch to the next."""

    thread: threading.Thread
    database: duckdb.DuckDBPyConnection
    parsers: dict[str, JsonParser] = field(default_factory=dict)


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
        """The rows of each flow, from a batch of raw records."""
        records, doubt = self._parsed(raw)
        rest: list[pa.RecordBatch] = []
        if doubt is not None:
            rest.append(raw.filter(doubt))
            raw, records = raw.filter(pc.invert(doubt)), records.filter(pc.invert(doubt))
        if self._program.skips_blank and (parsed := records.column(self._program.parses[0].name)).null_count:
            raw, records = raw.filter(parsed.is_valid()), records.filter(parsed.is_valid())
        if self._program.shared:
            found = self._computed(self._program.shared, _for_sql(records))
            for name in self._program.shared.schema.names:
                records = records.append_column(name, found.column(name))
            doubted = _doubted([found], raw.num_rows)
            if doubted is not None:
                rest.append(raw.filter(doubted))
                raw, records = raw.filter(pc.invert(doubted)), records.filter(pc.invert(doubted))
        columns = _for_sql(records)
        flows = [(flow, self._computed(flow, columns) if flow.sql else None) for flow in self._program.flows]
        doubted = _doubted([found for _, found in flows if found is not None], raw.num_rows)
        if doubted is not None:
            rest.append(raw.filter(doubted))
        certain = None if doubted is None else pc.invert(doubted)
        return Passed(
            [_rows(flow, records, found, certain) for flow, found in flows], one_batch(rest) if rest else None
        )

    def _parsed(self, raw: pa.RecordBatch) -> tuple[pa.Table, pa.Array | None]:
        """The records with what is parsed, and where that is in doubt."""
        names, columns, doubt = list(raw.schema.names), list(raw.columns), None
        for parse, parser in zip(self._program.parses, self._parsers, strict=True):
            found = parser.parse(raw.column(parse.raw))
            names.append(parse.name)
            columns.append(found.records)
            if found.doubt is not None:
                doubt = found.doubt if doubt is None else pc.or_(doubt, found.doubt)
        if self._program.asks_time:
            names.append(NOW)
            columns.append(pa.repeat(self._now, raw.num_rows))
        return pa.table(columns, names=names), doubt

    def _computed(self, flow: NativeFlow, records: pa.Table) -> pa.Table:
        assert flow.sql is not None, "there is something to compute"
        self._database.register(RECORDS, records)
        try:
            return self._database.sql(flow.sql).to_arrow_table()
        finally:
            self._database.unregister(RECORDS)


def _for_sql(records: pa.Table) -> pa.Table:
    """Numbered, and without zones: a timestamp that has one costs DuckDB a look at the zone for each value."""
    types = pa.schema([pa.field(field.name, _without_zone(field.type)) for field in records.schema])
    numbers = pa.array(np.arange(records.num_rows, dtype=np.int32))
    return records.cast(types).append_column(RECORD, numbers)


def _without_zone(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us")
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_zone(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _without_zone(kind.value_type)))
    return kind


def _doubted(found: Sequence[pa.Table], records: int) -> pa.Array | None:
    """Which records some flow is in doubt about; None if there are none."""
    numbers = [t.column(RECORD).filter(t.column(DOUBT)) for t in found if DOUBT in t.column_names]
    if not any(len(some) for some in numbers):
        return None
    flags = np.zeros(records, dtype=bool)
    for some in numbers:
        flags[some.to_numpy()] = True
    return pa.array(flags)


def _rows(flow: NativeFlow, records: pa.Table, found: pa.Table | None, certain: pa.Array | None) -> pa.Table:
    """The rows of a flow that are certain, with the very types that Spark would give."""
    if certain is not None:
        if found is not None and RECORD in found.column_names:
            found = found.filter(certain.take(found.column(RECORD)))
        elif found is not None:
            found = found.filter(certain)
        if not flow.chosen:
            records = records.filter(certain)
    numbers = found.column(RECORD) if flow.chosen and found is not None else None
    columns = dict(zip(found.column_names, found.columns, strict=True)) if found is not None else {}
    for taken in flow.taken:
        column = records.column(taken.place[0])
        for name in taken.place[1:]:
            # By its place: Arrow takes a name that begins with a dot or a bracket for a path.
            column = pc.struct_field(column, column.type.get_field_index(name))
        columns[taken.name] = column if numbers is None else column.take(numbers)
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
    import duckdb

    thread, number = threading.current_thread(), threading.get_ident()
    found = _kept.get(number)
    if found is None or found.thread is not thread:
        for other in [n for n, kept in list(_kept.items()) if not kept.thread.is_alive()]:
            _kept.pop(other, None)
        found = _kept[number] = _Kept(thread, duckdb.connect(":memory:"))
        for setting in _SETTINGS:
            found.database.execute(setting)
    return found


def _parsers(known: dict[str, JsonParser], shapes: Sequence[JsonShape]) -> list[JsonParser]:
    wanted = {repr(shape): shape for shape in shapes}
    for key in known.keys() - wanted.keys():  # a worker that meets another program has done with the one before
        del known[key]
    known |= {key: JsonParser(shape) for key, shape in wanted.items() if key not in known}
    return [known[repr(shape)] for shape in shapes]


def one_batch(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches as one."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
