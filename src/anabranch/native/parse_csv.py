"""Lines of CSV read in the process of the worker, with the values that Spark's reader of such files has for them.

A line is read here if it is plain: as many values as there are columns, each of them bare or between quotes that have
neither a quote nor an escape in them, and of those that are needed each in the plainest form of its type. Any other
line is doubted, and Spark reads it.

1. a look at all bytes of a block finds lines that are blank, odd or of another width (`parse_csv_lines`);
2. Arrow takes the others apart, as texts;
3. texts become values, and what is not certain is doubted (`parse_csv_values`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from anabranch.native.parse import Parsed
from anabranch.native.parse_csv_lines import look_at
from anabranch.native.parse_csv_shape import CsvShape, read_form
from anabranch.native.parse_csv_values import value_of
from anabranch.native.parse_finish import either
from anabranch.native.parse_guard import text_of
from anabranch.native.parse_pieces import BLOCK
from anabranch.native.parse_schema import is_utc


class CsvParser:
    """Reads lines of one shape; `Refused` if it cannot.

    >>> import json
    >>> types = (("a", "long"), ("b", "string"))
    >>> columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types]
    >>> shape = CsvShape(json.dumps({"type": "struct", "fields": columns}), ("a", "b"))
    >>> parsed = CsvParser(shape).parse(pa.array(["1,x", '2,"x, y"', "x,1", "3,", ""]))
    >>> [record and tuple(record.values()) for record in parsed.records.to_pylist()]
    [(1, 'x'), (2, 'x, y'), None, (3, None), None]
    >>> parsed.doubt.to_pylist()
    [False, False, True, False, False]
    """

    def __init__(self, shape: CsvShape) -> None:
        self._form = form = read_form(shape)
        self._utc = is_utc(shape.options, shape.zone)
        self._names = [str(place) for place in range(form.width)]
        wanted = [str(place) for place in form.places]
        self._convert = arrow_csv.ConvertOptions(
            include_columns=wanted,
            column_types=dict.fromkeys(wanted, pa.string()),
            null_values=["", form.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=True,
            check_utf8=False,  # looked at before
        )

    @property
    def type(self) -> pa.DataType:
        """Of the records: as Spark's own export to Arrow has it."""
        return self._form.record.type

    def parse(self, values: pa.Array | pa.ChunkedArray) -> Parsed:
        """The records of lines; null for those that are no record."""
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        parts = [self._parse(chunk) for chunk in chunks if len(chunk)]
        if len(parts) == 1:
            return parts[0]
        doubts = [np.zeros(len(p.records), dtype=bool) if p.doubt is None else p.doubt for p in parts]
        records = pa.concat_arrays([pa.array([], self.type), *(part.records for part in parts)])
        return Parsed(records, pa.array(np.concatenate([np.zeros(0, dtype=bool), *doubts])))

    def _parse(self, lines: pa.Array) -> Parsed:
        texts, sound = text_of(lines)
        looked = look_at(texts, self._form)
        doubt = looked.odd | ~sound
        good = ~(doubt | looked.blank)
        if not good.any():
            return Parsed(pa.nulls(len(lines), self.type), pa.array(doubt))
        chosen = texts if good.all() else texts.filter(pa.array(good))
        records, odd = self._records(chosen, quoted=looked.quoted)
        if odd is None and len(chosen) == len(texts):
            return Parsed(records, None)
        rows = np.flatnonzero(good)
        places = np.full(len(texts), -1, dtype=np.int64)
        places[rows] = np.arange(len(rows))
        if odd is not None:
            doubt[rows[odd]] = True
            places[rows[odd]] = -1
        return Parsed(records.take(pa.array(places, mask=places < 0)), pa.array(doubt) if doubt.any() else None)

    def _records(self, texts: pa.Array, *, quoted: bool) -> tuple[pa.StructArray, np.ndarray | None]:
        """A record for each line, and which of them are in doubt."""
        longest = pc.max(pc.binary_length(texts)).as_py()
        table = arrow_csv.read_csv(
            pa.BufferReader(_together(texts)),
            arrow_csv.ReadOptions(use_threads=False, block_size=max(BLOCK, longest + 2), column_names=self._names),
            arrow_csv.ParseOptions(
                delimiter=self._form.separator,
                quote_char=self._form.quote if quoted else False,
                double_quote=False,
                escape_char=False,
                newlines_in_values=False,
                ignore_empty_lines=False,
            ),
            self._convert,
        )
        if table.num_rows != len(texts):
            raise AssertionError(f"{table.num_rows} rows of {len(texts)} lines")
        doubt: np.ndarray | None = None
        columns, taken = [], iter(table.columns)
        for child in self._form.record.children:
            if child.name == self._form.corrupt:
                columns.append(pa.nulls(len(texts), child.type))
                continue
            value, odd = value_of(next(taken).combine_chunks(), child, utc=self._utc)
            columns.append(value)
            doubt = either(doubt, odd)
        return pa.StructArray.from_arrays(columns, fields=list(self.type)), doubt


def _together(texts: pa.Array) -> pa.Buffer:
    """The lines as they were in a file."""
    together = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    return pc.binary_join(together, pa.scalar("\n", texts.type))[0].as_buffer()
