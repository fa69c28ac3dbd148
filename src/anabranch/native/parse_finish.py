"""From what the reader gives to what Spark gives: times, zeros with a sign, names of the parts of a list."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.parse_schema import Node
from anabranch.native.times import read_times

#: Whole numbers of 19 digits and more are made doubles by Jackson before they become floats, and so rounded twice.
_FLOATS = 9e17


def finish(array: pa.Array, node: Node, *, utc: bool) -> tuple[pa.Array, np.ndarray | None]:
    """The array as Spark's type, and where its values are not certain to be Spark's (None: nowhere).

    `utc`: timestamps without a zone are in UTC; else they are not certain.
    """
    if node.kind == "struct":
        return _struct(array, node, utc=utc)
    if node.kind == "array":
        return _list(array, node, utc=utc)
    if node.kind in ("float", "double"):
        return array, _odd_floats(array, _FLOATS if node.kind == "float" else np.inf)
    if pa.types.is_decimal(node.type):
        return _decimals(array, node)
    if node.kind in ("date", "timestamp", "timestamp_ntz"):
        return read_times(array, node.type, utc=utc)
    return array, None


def _struct(array: pa.Array, node: Node, *, utc: bool) -> tuple[pa.Array, np.ndarray | None]:
    doubt: np.ndarray | None = None
    fields = []
    for number, child in enumerate(node.children):
        field, odd = finish(array.field(number), child, utc=utc)
        fields.append(field)
        doubt = either(doubt, odd)
    return pa.StructArray.from_arrays(fields, fields=list(node.type), mask=_nulls(array)), doubt


def _list(array: pa.Array, node: Node, *, utc: bool) -> tuple[pa.Array, np.ndarray | None]:
    values, odd = finish(array.values, node.children[0], utc=utc)
    offsets = array.offsets
    doubt = None
    if odd is not None:
        doubt = np.zeros(len(array), dtype=bool)
        starts = offsets.to_numpy()
        places = np.flatnonzero(odd)
        places = places[(places >= starts[0]) & (places < starts[-1])]
        doubt[np.searchsorted(starts, places, side="right") - 1] = True
    finished = pa.ListArray.from_arrays(pa.array(offsets.to_numpy()), values, type=node.type, mask=_nulls(array))
    return finished, doubt


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def either(one: np.ndarray | None, other: np.ndarray | None) -> np.ndarray | None:
    """True where one of them is; None is false everywhere."""
    if one is None or other is None:
        return other if one is None else one
    both: np.ndarray = one | other
    return both


def _odd_floats(array: pa.Array, below: float) -> np.ndarray | None:
    """-0 is 0.0 to Jackson and -0.0 is not: the reader makes no difference. Not finite: words that are no numbers."""
    numbers = array.to_numpy(zero_copy_only=False)
    valid = True if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    odd = (((numbers == 0) & np.signbit(numbers)) | ~(np.abs(numbers) < below)) & valid
    return odd if odd.any() else None


def _decimals(array: pa.Array, node: Node) -> tuple[pa.Array, np.ndarray | None]:
    """Those that fit the type, the others null; and where others are."""
    try:
        return array.cast(node.type), None
    except pa.ArrowInvalid:
        largest = Decimal((0, (9,) * node.type.precision, -node.type.scale))
        limits = pa.scalar(largest, array.type), pa.scalar(largest.copy_negate(), array.type)
        wrong = pc.fill_null(pc.or_(pc.greater(array, limits[0]), pc.less(array, limits[1])), False)
        fitting = pc.if_else(wrong, pa.scalar(None, array.type), array)
        return fitting.cast(node.type), wrong.to_numpy(zero_copy_only=False)
