"""Documents of one form: DuckDB reads them in half the time of Arrow's reader.

Either each has every field of the schema, and perhaps more; or it has only fields of the schema, and none that is null.
DuckDB makes sure of the one, and a count of the names of the other: so no field comes twice, of which DuckDB takes the
first and Spark the last.

DuckDB casts what Spark refuses ("15" becomes 15). So it is asked for each value as it is written, of which the first
letter tells the type. What is only written in another way than usual is left to the other reader.
"""

from __future__ import annotations

import json
import math
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.expressions_sql import text
from anabranch.native.parse_guard import count_names, plain_letters
from anabranch.native.parse_schema import Node

#: A field for a number or a truth value has a text. Of the texts, Spark takes some words for doubles.
_TEXT = '^"'
_NO_WORD = '^"[^NI+-]'

#: Texts with something escaped in them that are read one by one in any case; else one in twenty.
_FEW = 100

#: Blocks of documents that are not tried after one that was not regular, at most.
_LONGEST_PAUSE = 64

_SCALARS = {"boolean", "byte", "short", "integer", "long", "double", "string", "date", "timestamp", "timestamp_ntz"}


class _Irregular(Exception):
    """Documents that have to be read in another way."""


class Regular:
    """Reads documents of one schema while they are regular."""

    def __init__(self, tree: Node, connection: duckdb.DuckDBPyConnection) -> None:
        self._tree = tree
        #: A regular document without a value.
        self.nothing = json.dumps({child.name: None for child in tree.children}, ensure_ascii=False)
        self._connection = connection
        #: None: fields of some types are not written by DuckDB as they are in the document.
        self._asked = _structure(tree)
        self._complete = True  # every document is thought to have all fields
        self._pause = 0
        self._refused = 0

    def read(self, texts: pa.Array) -> tuple[pa.StructArray, np.ndarray] | None:
        """The records of plain documents (see `sure_objects`), and where a value of the wrong type is null.

        None if they are not regular. Those that come next are then not tried, the longer the more often it was so.
        """
        if self._asked is None:
            return None
        if self._pause:
            self._pause -= 1
            return None
        try:
            found = self._read(texts)
        except _Irregular:
            self._refused += 1
            self._pause = min(_LONGEST_PAUSE, 2**self._refused)
            return None
        self._refused = 0
        return found

    def _read(self, texts: pa.Array) -> tuple[pa.StructArray, np.ndarray]:
        if not plain_letters(texts):
            raise _Irregular
        found = self._found(texts)
        if found is None:
            self._complete = not self._complete
            found = self._found(texts)
        if found is None:
            self._complete = True
            raise _Irregular
        wrong = np.zeros(len(texts), dtype=bool)
        return _built(found, self._tree, wrong), wrong

    def _found(self, texts: pa.Array) -> pa.StructArray | None:
        """What DuckDB reads; None if the documents are not of the form they are thought to have."""
        function = "from_json_strict" if self._complete else "from_json"
        self._connection.register("batch", pa.table({"v": texts}))
        try:
            query = f"SELECT {function}(v, {text(json.dumps(self._asked))}) AS found FROM batch"
            chunks = self._connection.sql(query).to_arrow_table().column(0).chunks
        except (duckdb.InvalidInputException, UnicodeDecodeError):  # what it says of a document may end within a letter
            return None
        finally:
            self._connection.unregister("batch")
        found = chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
        return found if self._complete or count_names(texts) == _count_fields(found, self._tree) else None


def _structure(node: Node) -> Any:
    """What DuckDB is asked for; None if it cannot be."""
    if node.kind == "struct":
        fields = {child.name: _structure(child) for child in node.children}
        return fields if all(fields.values()) and all(fields) else None
    if node.kind == "array":
        element = _structure(node.children[0])
        return [element] if element else None
    return "JSON" if node.kind in _SCALARS else None


def _count_fields(found: pa.Array, node: Node, *, inner: bool = False) -> float:
    """How many fields have a value, in all records together; more than there can be names if that is not certain.

    An inner record that has none may have been something else: DuckDB makes such a one of whatever is no object. And it
    makes null of what is no list; in a list of lists no name is counted for it.
    """
    if node.kind == "array":
        values = found.flatten()
        if node.children[0].kind == "array" and values.null_count:
            return math.inf
        return _count_fields(values, node.children[0], inner=True)
    if node.kind != "struct":
        return 0
    fields = found.flatten()  # null where the record is
    if inner:
        empty = found.is_valid()
        for field in fields:
            empty = pc.and_not(empty, field.is_valid())
        if pc.any(empty).as_py():
            return math.inf
    count: float = sum(len(field) - field.null_count for field in fields)
    return count + sum(_count_fields(f, child, inner=True) for f, child in zip(fields, node.children, strict=True))


def _built(found: pa.Array, node: Node, wrong: np.ndarray | None) -> pa.Array:
    """What was found as the reader would have given it; `wrong` is told where records have null for another type."""
    mask = found.is_null() if found.null_count and pa.types.is_nested(found.type) else None
    if node.kind == "struct":
        fields = [_built(found.field(number), child, wrong) for number, child in enumerate(node.children)]
        return pa.StructArray.from_arrays(fields, fields=list(node.read), mask=mask)
    if node.kind == "array":
        values = _built(found.values, node.children[0], None)
        return pa.ListArray.from_arrays(pa.array(found.offsets.to_numpy()), values, type=node.read, mask=mask)
    if pa.types.is_string(node.read):
        return _texts(found)
    if pa.types.is_boolean(node.read):
        return _truths(found, wrong)
    return _numbers(found, node, wrong)


def _texts(found: pa.Array) -> pa.Array:
    """Without the quotes, which each must have, and with what is escaped."""
    _, places, data = found.buffers()
    starts = np.frombuffer(places, np.int32)[found.offset : found.offset + len(found)]
    if found.null_count:
        starts = starts[found.is_valid().to_numpy(zero_copy_only=False)]
    if len(starts) and (np.frombuffer(data, np.uint8)[starts] != ord('"')).any():
        raise _Irregular
    bare = pc.binary_slice(found.cast(pa.binary()), 1, -1)
    valid, places, data = bare.buffers()
    texts = pa.StringArray.from_buffers(len(bare), places, data, valid, bare.null_count, bare.offset)
    if data is None or not (np.frombuffer(data, np.uint8) == ord("\\")).any():
        return texts
    escaped = pc.fill_null(pc.match_substring(texts, "\\"), False)
    if pc.sum(escaped).as_py() > max(_FEW, len(texts) // 20):
        raise _Irregular
    plain = [json.loads(value) for value in found.filter(escaped).to_pylist()]
    return pc.replace_with_mask(texts, escaped, pa.array(plain, pa.string()))


def _truths(found: pa.Array, wrong: np.ndarray | None) -> pa.Array:
    found = _without(found, pc.match_substring_regex(found, _TEXT), wrong)
    if not pc.all(pc.is_in(found, pa.array(["true", "false"])), skip_nulls=False, min_count=0).as_py():
        others = pc.and_(pc.invert(pc.is_in(found, pa.array(["true", "false"]))), found.is_valid())
        if pc.any(others).as_py():
            raise _Irregular
    return pc.equal(found, "true")


def _numbers(found: pa.Array, node: Node, wrong: np.ndarray | None) -> pa.Array:
    try:
        return found.cast(node.read)
    except pa.ArrowInvalid:
        pattern = _NO_WORD if node.kind == "double" else _TEXT
        found = _without(found, pc.match_substring_regex(found, pattern), wrong)
    try:
        return found.cast(node.read)
    except pa.ArrowInvalid as error:
        raise _Irregular from error


def _without(found: pa.Array, texts: pa.Array, wrong: np.ndarray | None) -> pa.Array:
    """What was found, and null where there is a text for something else."""
    where = pc.fill_null(texts, False)
    if not pc.any(where).as_py():
        return found
    if wrong is None:  # in a list: whose records they are is not known here
        raise _Irregular
    wrong |= where.to_numpy(zero_copy_only=False)
    return pc.if_else(where, pa.scalar(None, found.type), found)
