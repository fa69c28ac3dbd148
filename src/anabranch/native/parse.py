"""JSON records read in the process of the worker, with the values that Spark's `from_json` has for them.

A record is read here if it is plain: one object of valid JSON whose values have the types of the schema; or if it has
faults of which it is certain what Spark makes of them. Any other is doubted, and Spark reads it. So nothing is lost by
being strict, and much by being wrong: every step may doubt.

1. null and blank values are null;
2. each value has to be one valid document by itself (`parse_guard`);
3. DuckDB reads the documents if all of them are regular (`parse_regular`);
4. else Arrow reads the documents in blocks. If it refuses one, the documents that it may mean (`parse_misfits`) are
   changed to some that are read as Spark reads these (`parse_faults`, `parse_faults_fields`), or doubted, and the rest
   is read again;
5. times are cast, and what is not certain doubted (`parse_finish`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from anabranch.native.database import open_database
from anabranch.native.parse_faults import never_ends, repaired
from anabranch.native.parse_faults_fields import can_mend, mended
from anabranch.native.parse_faults_found import Found, blank, flags, spaced, with_nothing
from anabranch.native.parse_finish import finish
from anabranch.native.parse_guard import edges, look, plain_documents, sure_objects, text_of
from anabranch.native.parse_misfits import Condition, Misfits, query
from anabranch.native.parse_pieces import BLOCK, bounded, halves, lines, pieces
from anabranch.native.parse_regular import Regular
from anabranch.native.parse_schema import Node, Refused, corrupt_column, is_utc, options_of, read_schema

#: How often a piece is given to the reader before what is left of it is given up.
ATTEMPTS = 60


@dataclass(frozen=True, slots=True)
class JsonShape:
    """What `from_json(value, schema, options)` was asked for.

    `schema` is Spark's JSON of the schema, `zone` the time zone of the session. The settings of the session
    `spark.sql.columnNameOfCorruptRecord` (if it is not `_corrupt_record`) has to be among the options, and
    `spark.sql.legacy.timeParserPolicy` must not be LEGACY. `partial`: as ever, a value of the wrong type is null,
    also if it is an empty text, and takes nothing else with it (`spark.sql.json.enablePartialResults`,
    `spark.sql.legacy.json.allowEmptyString.enabled`). `filtered`: Spark may leave out a record of which it has read the
    beginning only, as it does in files, by a filter that is true for one that is cut and hence all null.
    """

    schema: str
    options: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"
    partial: bool = True
    filtered: bool = False


@dataclass(frozen=True, slots=True)
class Parsed:
    """As many records as there were values; null where the value is null or blank, or is doubted.

    `doubt`: true where Spark has to read the value; never null. None: nowhere.
    """

    records: pa.StructArray
    doubt: pa.BooleanArray | None


def refused(shape: JsonShape) -> str | None:
    """Why records of this shape cannot be read natively; None if they can.

    >>> refused(JsonShape('{"type":"struct","fields":[{"name":"a","type":"binary","nullable":true,"metadata":{}}]}'))
    'type binary of a is not read natively'
    """
    try:
        read_schema(shape.schema, shape.options)
    except Refused as why:
        return str(why)
    return None


class JsonParser:
    """Reads records of one shape; `Refused` if it cannot. Not for several threads at once.

    >>> shape = JsonShape('{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}')
    >>> parsed = JsonParser(shape).parse(pa.array(['{"a": 1}', '{"a": "1"}', '{"a": 1, "a": 2}', None]))
    >>> parsed.records.to_pylist(), parsed.doubt.to_pylist()
    ([{'a': 1}, {'a': None}, None, None], [False, False, True, False])
    """

    def __init__(self, shape: JsonShape) -> None:
        self._tree = read_schema(shape.schema, shape.options)
        corrupt = corrupt_column(shape.options)
        self._utc = is_utc(shape.options, shape.zone)
        self._failfast = options_of(shape.options).get("mode", "").upper() == "FAILFAST"
        #: What is read from the document: all but the field for bad records, which is null in good ones.
        self._read = _without(self._tree, corrupt)
        self._cuts_certain = not shape.filtered and not self._failfast
        #: Spark asks for fewer fields than the schema has where it needs fewer. So whether a value of the wrong type is
        #: noted down in the field for bad records depends on what is done with the records.
        self._types_certain = shape.partial and self._read is self._tree and not self._failfast
        self._explicit = pa.schema(list(self._read.read))
        self._misfits = Misfits(self._read)
        #: What the last piece was refused for: asked first in the next one.
        self._conditions: set[Condition] = set()
        self._connection = open_database()
        self._regular = Regular(self._read, self._connection)

    @property
    def type(self) -> pa.DataType:
        """Of the records: as Spark's own export to Arrow has it."""
        return self._tree.type

    def parse(self, values: pa.Array | pa.ChunkedArray) -> Parsed:
        """The records of values of a string or binary type."""
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        parts = [self._parse(part) for chunk in chunks for part in bounded(chunk)]
        return _joined(parts) if parts else Parsed(pa.array([], self.type), None)

    def _parse(self, values: pa.Array) -> Parsed:
        texts = None if self._conditions else sure_objects(values)
        if texts is None:
            return self._carefully(values)
        if (read := self._regular.read(texts)) is not None:
            nowhere = np.zeros(len(texts), dtype=bool)
            return self._certain(Found(texts, nowhere, nowhere.copy()), *read)
        parts = []
        for start, stop in pieces(texts):
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
        """Values of which some are no plain documents. Without those, the others may be read as quickly as any."""
        texts, sound = text_of(values)
        first, last = edges(texts)
        strange = (first != ord("{")) | (last != ord("}"))
        found = Found(texts, ~sound, blank(texts, strange) & sound)
        rows = np.flatnonzero(strange & sound & ~found.absent)
        if spaced(texts, rows).any():
            return self._slowly(texts, sound)
        found.faulty[rows] = self._never_end(texts, rows)
        found.doubt[rows] = ~found.faulty[rows]
        sure = sure_objects(with_nothing(texts, strange, self._regular.nothing) if strange.any() else texts)
        if sure is not None and (read := self._regular.read(sure)) is not None:
            self._conditions = set()
            return self._certain(found, *read)
        if sure is None or not all(map(can_mend, self._conditions)):
            return self._slowly(texts, sound)
        known, self._conditions = self._conditions, set()
        sure, changed = self._mended(sure, known)
        parts = []
        for start, stop in pieces(sure):
            records = self._quickly(sure[start:stop], changed[start:stop], known)
            if records is None:
                parts.append(self._slowly(texts[start:stop], sound[start:stop]))
            else:
                parts.append(self._certain(found.part(start, stop), records, changed[start:stop]))
        return _joined(parts)

    def _never_end(self, texts: pa.Array, rows: np.ndarray) -> np.ndarray:
        if not self._cuts_certain:
            return np.zeros(len(rows), dtype=bool)
        some = texts.take(pa.array(rows)).to_pylist()
        return np.fromiter((never_ends(text) for text in some), dtype=bool, count=len(rows))

    def _mended(self, texts: pa.Array, conditions: set[Condition]) -> tuple[pa.Array, np.ndarray]:
        """The texts with null for values of a wrong type, and where they are changed; remembers what was found."""
        changed = np.zeros(len(texts), dtype=bool)
        for condition in sorted(conditions):
            found = mended(texts, condition, self._connection)
            if found is not None:
                self._conditions.add(condition)
                changed[found[0]] = True
                texts = pc.replace_with_mask(texts, pa.array(flags(len(texts), found[0])), found[1])
        return texts, changed

    def _quickly(self, texts: pa.Array, changed: np.ndarray, tried: set[Condition]) -> pa.StructArray | None:
        """The records; `changed` is then true also where more values are null. None: they cannot be read like this."""
        new = self._conditions - tried
        while all(map(can_mend, new)):
            tried = tried | new
            texts, more = self._mended(texts, new)
            changed |= more
            records, error = self._read_together(texts, np.arange(len(texts)))
            if records is not None:
                return records
            new = self._misfits.conditions(error, tried)
            if not new:
                break
        return None

    def _certain(self, found: Found, records: pa.StructArray, changed: np.ndarray) -> Parsed:
        """The records in their places, as Spark has them."""
        finished, odd = finish(records, self._read, utc=self._utc)
        found.doubt |= changed & (not self._types_certain)
        found.doubt |= (found.faulty | changed) & self._failfast
        if odd is not None:
            found.doubt |= odd
        found.faulty |= changed
        return self._given(found, finished)

    def _given(self, found: Found, records: pa.StructArray) -> Parsed:
        null = found.doubt | found.absent
        if self._read is not self._tree and found.faulty.any():
            faulty = pc.if_else(pa.array(found.faulty), found.texts.cast(pa.string()), pa.scalar(None, pa.string()))
            records = self._whole(records, faulty, null)
        elif self._read is not self._tree or null.any():
            records = self._whole(records, pa.nulls(len(records), pa.string()), null)
        return Parsed(records, pa.array(found.doubt) if found.doubt.any() else None)

    def _slowly(self, values: pa.Array, sound: np.ndarray) -> Parsed:
        """Each document is looked at by itself; what the reader refuses is repaired one by one where it can be."""
        texts, plain = plain_documents(values, self._connection)
        found = Found(values, np.ones(len(values), dtype=bool), blank(values, ~plain) & sound)
        rows = np.flatnonzero(plain)
        parts, count = [pa.array([], self._read.type)], 0
        places = np.full(len(texts), -1, dtype=np.int64)

        def put(read: np.ndarray, records: pa.StructArray) -> None:
            nonlocal count
            finished, odd = finish(records, self._read, utc=self._utc)
            parts.append(finished)
            places[read] = np.arange(count, count + len(records))
            found.doubt[read] = False if odd is None else odd
            count += len(records)

        for read, records in self._documents(texts if len(rows) == len(texts) else texts.take(pa.array(rows))):
            put(rows[read], records)
        left = np.flatnonzero((places < 0) & sound & ~found.absent)
        for read, records, faulty in self._repaired(values, left):
            put(read, records)
            found.faulty[read] = faulty
        found.doubt &= ~found.absent
        records = pa.concat_arrays(parts)
        if not np.array_equal(places, np.arange(count)):
            records = records.take(pa.array(places, mask=places < 0))
        return self._given(found, records)

    def _repaired(self, texts: pa.Array, rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.StructArray, np.ndarray]]:
        """Of some of the rows that cannot be read as they are: their records, and which have faults."""
        kept, again, faulty = [], [], []
        for row, text in zip(rows, [] if self._failfast else texts.take(pa.array(rows)).to_pylist(), strict=False):
            if self._cuts_certain and never_ends(text):
                new: tuple[str, bool] | None = ("{}", True)
            else:
                new = repaired(text, self._read) if self._types_certain else None
            if new is not None:
                kept.append(row)
                again.append(new[0])
                faulty.append(new[1])
        if kept:
            changed, where, have_faults = pa.array(again, pa.string()), np.array(kept), np.array(faulty)
            for read, records in self._readable(changed, np.arange(len(kept))):
                yield where[read], records, have_faults[read]

    def _readable(self, texts: pa.Array, rows: np.ndarray) -> Iterator[tuple[np.ndarray, pa.StructArray]]:
        records = self._read_together(texts, rows)[0]
        if records is not None:
            yield rows, records
        else:
            yield from self._by_halves(texts, rows)

    def _whole(
        self, records: pa.StructArray, faulty: pa.Array | None = None, null: np.ndarray | None = None
    ) -> pa.StructArray:
        """With the field for bad records, if the schema has it, and null where they are not certain."""
        if self._read is self._tree and null is None:
            return records
        read = {child.name: records.field(number) for number, child in enumerate(self._read.children)}
        nothing = pa.nulls(len(records), pa.string()) if faulty is None else faulty
        fields = [read.get(child.name, nothing) for child in self._tree.children]
        mask = pa.array(null) if null is not None and null.any() else None
        return pa.StructArray.from_arrays(fields, fields=list(self.type), mask=mask)

    def _documents(self, texts: pa.Array) -> Iterator[tuple[np.ndarray, pa.StructArray]]:
        """Rows, in ascending order, with what the reader gives for them; rows that do not come are doubted."""
        for start, stop in pieces(texts):
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
        waiting = halves(rows)
        for _ in range(ATTEMPTS):
            if not waiting:
                return
            some = waiting.pop()
            records = self._read_together(texts, some)[0]
            if records is not None:
                yield some, records
            else:
                waiting += halves(some)

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
                pa.BufferReader(lines(chosen)),
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
