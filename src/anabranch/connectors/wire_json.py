"""Rows as JSON, a whole Arrow batch at a time: every column becomes a column of texts, which are joined row by row.

As Spark's `to_json` does it: fields that are null are left out, nulls inside arrays and maps stay, decimals are
numbers, dates and timestamps are ISO 8601 texts, binary is base64, NaN and infinity are texts. Unlike Spark's,
timestamps are in UTC with all their microseconds.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.connectors.variants import marked
from anabranch.errors import ProjectError

_SPACE, _QUOTE, _BACKSLASH = 32, 34, 92
_NOT_FINITE = {"nan": '"NaN"', "-nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BEFORE_TIME = 10  # characters of a date, in the years that have four digits


def check_json(schema: pa.Schema, sink: str) -> None:
    """Refuse columns that have no form in JSON."""
    for field in schema:
        if kind := _without_form(field.type):
            raise ProjectError(
                "WIRE_TYPE_UNSUPPORTED",
                f'"{sink}": column "{field.name}" is or holds a {kind}, which has no form in JSON here',
                hint="make a text or simpler columns of it in the flow, such as to_json(column) of a variant",
            )


def json_rows(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.Array:
    """One JSON object for each row, as bytes.

    >>> rows = pa.RecordBatch.from_pylist([{"id": 1, "name": 'a "b"'}, {"id": 2, "name": None}])
    >>> json_rows(rows, ["id", "name"]).to_pylist()
    [b'{"id":1,"name":"a \\\\"b\\\\""}', b'{"id":2}']
    """
    return _objects([(name, batch.column(name)) for name in columns], batch.num_rows).cast(pa.binary())


def _objects(fields: Sequence[tuple[str, pa.Array]], rows: int) -> pa.Array:
    """Objects of fields that are left out where they are null."""
    if not fields:
        return pa.array(["{}"] * rows, pa.string())
    parts: list[pa.Array | str] = []
    for name, array in fields:
        mark = f",{json.dumps(name, ensure_ascii=False)}:"
        if array.null_count:
            parts.append(pc.fill_null(_join(mark, _texts(array)), ""))
        else:  # the usual case: nothing but one more part of the one join
            parts += [mark, _texts(array)]
    if isinstance(parts[0], str):
        return _join("{" + parts[0][1:], *parts[1:], "}")
    return _join(pc.binary_replace_slice(_join(*parts), 0, 1, "{"), "}")  # a comma, or nothing, is at the beginning


def _join(*parts: pa.Array | str) -> pa.Array:
    """Texts put together row by row; null where one of them is."""
    return pc.binary_join_element_wise(*parts, "")


def _texts(array: pa.Array) -> pa.Array:
    """Values as JSON; null stays null."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _join('"', _escaped(array.cast(pa.string())), '"')
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_timestamp(kind):
        # The cast of a time without a zone is thirty times as fast, and means the same in UTC.
        moments = pc.binary_replace_slice(
            array.cast(pa.timestamp(kind.unit)).cast(pa.string()), _BEFORE_TIME, _BEFORE_TIME + 1, "T"
        )
        return _join('"', moments, 'Z"' if kind.tz else '"')
    if pa.types.is_date(kind):
        return _join('"', array.cast(pa.string()), '"')
    if pa.types.is_struct(kind):
        inner = [(field.name, child) for field, child in zip(kind, array.flatten(), strict=True)]
        return _where_valid(array, _objects(inner, len(array)))
    if pa.types.is_map(kind):
        return _maps(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _where_valid(array, _join("[", _gathered(array, _texts(_inside(array, array.values))), "]"))
    if pa.types.is_null(kind):
        return array.cast(pa.string())
    return pa.array(
        [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in array.to_pylist()], pa.string()
    )


def _escaped(texts: pa.Array) -> pa.Array:
    """Texts as they are between quotes; the bytes of all are looked at first, since most need nothing."""
    found = _bytes(texts)
    if not ((found < _SPACE) | (found == _QUOTE) | (found == _BACKSLASH)).any():
        return texts
    texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), '"', '\\"')
    if (found < _SPACE).any():
        for character, escape in _SHORT_ESCAPES.items():
            texts = pc.replace_substring(texts, character, escape)
        if (_bytes(texts) < _SPACE).any():
            rare = [None if t is None else _without_control(t) for t in texts.to_pylist()]
            texts = pa.array(rare, pa.string())
    return texts


def _without_control(text: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if ord(c) < _SPACE else c for c in text)


def _bytes(texts: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    _, offsets, data = texts.buffers()
    if data is None or len(texts) == 0:
        return np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)
    return np.frombuffer(data, np.uint8)[ends[texts.offset] : ends[texts.offset + len(texts)]]


def _floats(array: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        texts = pa.array([_NOT_FINITE.get(t, t) for t in texts.to_pylist()], pa.string())
    return texts


def _maps(array: pa.MapArray) -> pa.Array:
    keys, items = _inside(array, array.keys), _inside(array, array.items)
    names = keys if pa.types.is_string(keys.type) else _unquoted(_texts(keys))
    entries = _join('"', _escaped(names.cast(pa.string())), '":', pc.fill_null(_texts(items), "null"))
    return _where_valid(array, _join("{", _gathered(array, entries), "}"))


def _unquoted(texts: pa.Array) -> pa.Array:
    return pc.utf8_trim(texts, '"')


def _inside(array: pa.Array, values: pa.Array) -> pa.Array:
    """Those of the values of a list or map that are the array's own, which may be part of a larger one."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, last - first)


def _gathered(array: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of each list, with commas between them."""
    offsets = pc.subtract(array.offsets, array.offsets[0]).cast(pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, pc.fill_null(texts, "null")), ",")


def _where_valid(array: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), texts, None) if array.null_count else texts


def _without_form(kind: pa.DataType) -> str | None:
    if name := marked(kind):
        return name
    if pa.types.is_map(kind):
        return _without_form(kind.key_type) or _without_form(kind.item_type)
    if pa.types.is_struct(kind):
        return next((name for field in kind if (name := _without_form(field.type))), None)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _without_form(kind.value_type)
    if pa.types.is_duration(kind) or pa.types.is_interval(kind):
        return "length of time"
    return None
