"""JSON records read in the process of the worker, with the values that Spark's `from_json` has for them.

A record is read here if it is plain: one object of valid JSON whose values have the types of the schema. Any other is
doubted, and Spark reads it. So nothing is lost by being strict, and much by being wrong: every step may doubt.

1. null and blank values are null;
2. each value has to be one valid document by itself (`parse_guard`);
3. Arrow reads the documents in blocks. If it refuses one, the documents that it may mean are doubted
   (`parse_misfits`), and the rest is read again;
4. times are cast, and what is not certain doubted (`parse_finish`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from anabranch.native.parse_finish import finish
from anabranch.native.parse_guard import look, plain_documents, sure_objects, text_of
from anabranch.native.parse_misfits import Condition, Misfits, query
from anabranch.native.parse_schema import Node, Refused, corrupt_column, is_utc, read_schema

#: Bytes that the reader is given at once, and that are read again if it refuses them; and the size of its own blocks.
PIECE = 4 << 20
BLOCK = 1 << 20

#: How often a piece is given to the reader before what is left of it is given up.
ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class JsonShape:
    """What `from_json(value, schema, options)` was asked for.

    `schema` is Spark's JSON of the schema, `zone` the time zone of the session. The settings of the session
    `spark.sql.columnNameOfCorruptRecord` (if it is not `_corrupt_record`) has to be among the options, and
    `spark.sql.legacy.timeParserPolicy` must not be LEGACY.
    """

    schema: str
    options: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Parsed:
    """As many records as there were values; null where the value is null or blank, or is doubted.

    `doubt`: true where Spark has to read the value; never null. None: nowhere.
    """

    records: pa.StructArray
    doubt: pa.BooleanArray | None


def refused(shape: JsonShape) -> str | None:
    """Why records of this shape cannot be read natively; None if they can.

    >>> refused(JsonShape('{"type":"struct","fields":[{"name":"a","type":"float","nullable":true,"metadata":{}}]}'))
    'type float of a is not read natively'
    """
    try:
        read_schema(shape.schema, shape.options)
    except Refused as why:
        return str(why)
    return None


class JsonParser:
    """Reads records of one shape; `Refused` if it cannot. Not for several threads at once.

    >>> shape = JsonShape('{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}')
    >>> parsed = JsonParser(shape).parse(pa.array(['{"a": 1}', '{"a": "1"}', None]))
    >>> parsed.records.to_pylist(), parsed.doubt.to_pylist()
    ([{'a': 1}, None, None], [False, True, False])
    """

    def __init__(self, shape: JsonShape) -> None:
        self._tree = read_schema(shape.schema, shape.options)
        corrupt = corrupt_column(shape.options)
        self._utc = is_utc(shape.options, shape.zone)
        #: What is read from the document: all but the field for bad records, which is null in good ones.
        self._read = _without(self._tree, corrupt)
        self._explicit = pa.schema(list(self._read.read))
        self._misfits = Misfits(self._read)
        #: What the last piece was refused for: asked first in the next one.
        self._conditions: set[Condition] = set()
        self._connection = duckdb.connect()
        self._connection.execute("SET threads = 1")

    @property
    def type(self) -> pa.DataType:
        """Of the records: as Spark's own export to Arrow has it."""
        return self._tree.type

    def parse(self, values: pa.Array | pa.ChunkedArray) -> Parsed:
        """The records of values of a string or binary type."""
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        parts = [self._parse(chunk) for chunk in chunks if len(chunk)]
        return _joined(parts) if parts else Parsed(pa.array([], self.type), None)

    def _parse(self, values: pa.Array) -> Parsed:
        texts = None if self._conditions else sure_objects(values)
        if texts is None:
            return self._carefully(values)
        parts = []
        for start, stop in _pieces(texts):
            piece = texts[start:stop]
            records = self._read_together(piece, np.arange(len(piece)))[0]
            if records is None:
                parts.append(self._carefully(piece))
                continue
            finished, odd = finish(records, self._read, utc=self._utc)
            whole = self._whole(finished)
            if odd is not None:
                whole = whole.take(pa.array(np.arange(len(whole)), mask=odd))
            parts.append(Parsed(whole, None if odd is None else pa.array(odd)))
        return _joined(parts)

    def _carefully(self, values: pa.Array) -> Parsed:
        texts, sound = text_of(values)
        texts, plain = plain_documents(texts, self._connection)
        doubt = ~plain & ~(_blank(texts, ~plain) & sound)
        rows = np.flatnonzero(plain)
        parts = [pa.array([], self.type)]
        places = np.full(len(texts), -1, dtype=np.int64)
        doubt[rows] = True
        count = 0
        for read, records in self._documents(texts if len(rows) == len(texts) else texts.take(pa.array(rows))):
            finished, odd = finish(records, self._read, utc=self._utc)
            parts.append(self._whole(finished))
            sure = slice(None) if odd is None else ~odd
            places[rows[read][sure]] = np.arange(count, count + len(records))[sure]
            count += len(records)
        doubt &= places < 0
        records = pa.concat_arrays(parts)
        if not np.array_equal(places, np.arange(count)):
            records = records.take(pa.array(places, mask=places < 0))
        return Parsed(records, pa.array(doubt) if doubt.any() else None)

    def _whole(self, records: pa.StructArray) -> pa.StructArray:
        """With the field for bad records, if the schema has it."""
        if self._read is self._tree:
            return records
        read = {child.name: records.field(number) for number, child in enumerate(self._read.children)}
        nothing = pa.nulls(len(records), pa.string())
        fields = [read.get(child.name, nothing) for child in self._tree.children]
        return pa.StructArray.from_arrays(fields, fields=list(self.type))

    def _documents(self, texts: pa.Array) -> Iterator[tuple[np.ndarray, pa.StructArray]]:
        """Rows, in ascending order, with what the reader gives for them; rows that do not come are doubted."""
        for start, stop in _pieces(texts):
            piece = texts[start:stop]
            rows = np.arange(len(piece))
            if self._conditions:
                rows = self._fitting(piece, rows, self._conditions)
                if len(rows) == len(piece):
                    self._conditions = set()
            for read, records in self._piece(piece, rows):
                yield read + start, records

    def _piece(self, texts: pa.Array, rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.StructArray]]:
        """Those of the rows that can be read, with their records."""
        looked_for = set(self._conditions)
        while len(rows):
            records, error = self._read_together(texts, rows)
            if records is not None:
                yield rows, records
                return
            new = self._misfits.conditions(error, looked_for)
            if not new:
                break
            looked_for |= new
            fitting = self._fitting(texts, rows, new)
            if len(fitting) < len(rows):
                self._conditions |= new
                rows = fitting
        yield from self._by_halves(texts, rows)

    def _by_halves(self, texts: pa.Array, rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.StructArray]]:
        """What can be read of rows that are refused together, for reasons unknown."""
        waiting = _halves(rows)
        for _ in range(ATTEMPTS):
            if not waiting:
                return
            some = waiting.pop()
            records = self._read_together(texts, some)[0]
            if records is not None:
                yield some, records
            else:
                waiting += _halves(some)

    def _fitting(self, texts: pa.Array, rows: np.ndarray, conditions: set[Condition]) -> np.ndarray:
        """The rows for which none of the conditions is true."""
        asked = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        fitting: np.ndarray = rows[~look(self._connection, query(conditions), asked)["misfit"]]
        return fitting

    def _read_together(self, texts: pa.Array, rows: np.ndarray) -> tuple[pa.StructArray | None, str]:
        """One record for each row; or None, and what the reader said."""
        chosen = texts if len(rows) == len(texts) else texts.take(pa.array(rows))
        longest = pc.max(pc.binary_length(chosen)).as_py()
        try:
            table = arrow_json.read_json(
                pa.BufferReader(_lines(chosen)),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(BLOCK, longest + 2)),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._explicit, newlines_in_values=False, unexpected_field_behavior="ignore"
                ),
            )
        except pa.ArrowInvalid as error:
            return None, str(error)
        if table.num_rows != len(rows):
            return None, f"{table.num_rows} records for {len(rows)} documents"
        return table.select(self._explicit.names).to_struct_array().combine_chunks(), ""


def _joined(parts: list[Parsed]) -> Parsed:
    if len(parts) == 1:
        return parts[0]
    records = pa.concat_arrays([part.records for part in parts])
    if all(part.doubt is None for part in parts):
        return Parsed(records, None)
    doubts = [pa.array(np.zeros(len(p.records), dtype=bool)) if p.doubt is None else p.doubt for p in parts]
    return Parsed(records, pa.concat_arrays(doubts))


def _without(tree: Node, name: str) -> Node:
    """The record without one of its fields; the same object if it has none of this name."""
    children = tuple(child for child in tree.children if child.name != name)
    if len(children) == len(tree.children):
        return tree
    read = pa.struct([pa.field(child.name, child.read) for child in children])
    return replace(tree, read=read, type=pa.struct([pa.field(c.name, c.type) for c in children]), children=children)


def _halves(rows: np.ndarray) -> list[np.ndarray]:
    """The second half and the first; of one row, which is refused by itself, nothing."""
    middle = len(rows) // 2
    return [rows[middle:], rows[:middle]] if middle else []


def _blank(texts: pa.Array, among: np.ndarray) -> np.ndarray:
    """Which of some of the texts have nothing but space: no document at all."""
    blank = np.zeros(len(texts), dtype=bool)
    rows = np.flatnonzero(among)
    if len(rows):
        trimmed = pc.utf8_trim(texts.take(pa.array(rows)), " \t\r\n")
        blank[rows] = pc.equal(trimmed, "").to_numpy(zero_copy_only=False)
    return blank


def _pieces(texts: pa.Array) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `PIECE` bytes each."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + PIECE, side="right")))
        yield start, stop
        start = stop


def _lines(texts: pa.Array) -> pa.Buffer:
    """The texts, one in a line."""
    together = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    return pc.binary_join(together, pa.scalar("\n", texts.type))[0].as_buffer()
