"""From what the reader gives to what Spark gives: times, zeros with a sign, names of the parts of a list."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.parse_schema import Node

#: From 1583 on the calendar is the same everywhere.
_DATE = r"(158[3-9]|159\d|1[6-9]\d\d|[2-9]\d\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_ZONE = r"(Z|[+-](0\d|1[0-7]):[0-5]\d)"

#: Of more than six digits of a second Spark takes the first six.
_MICROS = r"(\.\d{1,6})?"
_NANOS = r"\.\d{7,9}"

_DATES = [f"^{_DATE}$"]
_LOCAL = [f"^{_DATE}{_TIME}{_MICROS}$", f"^{_DATE}{_TIME}{_NANOS}$"]
_ZONED = [f"^{_DATE}{_TIME}{_MICROS}{_ZONE}$", f"^{_DATE}{_TIME}{_NANOS}{_ZONE}$"]


def finish(array: pa.Array, node: Node, *, utc: bool) -> tuple[pa.Array, np.ndarray | None]:
    """The array as Spark's type, and where its values are not certain to be Spark's (None: nowhere).

    `utc`: timestamps without a zone are in UTC; else they are not certain.
    """
    if node.kind == "struct":
        return _struct(array, node, utc=utc)
    if node.kind == "array":
        return _list(array, node, utc=utc)
    if node.kind == "double":
        return array, _odd_doubles(array)
    if node.kind in ("date", "timestamp", "timestamp_ntz"):
        return _times(array, node, utc=utc)
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


def _odd_doubles(array: pa.Array) -> np.ndarray | None:
    """-0 is 0.0 to Jackson and -0.0 is not: the reader makes no difference. Not finite: words that are no numbers."""
    numbers = array.to_numpy(zero_copy_only=False)
    valid = True if not array.null_count else array.is_valid().to_numpy(zero_copy_only=False)
    odd = (((numbers == 0) & np.signbit(numbers)) | ~np.isfinite(numbers)) & valid
    return odd if odd.any() else None


def _times(array: pa.Array, node: Node, *, utc: bool) -> tuple[pa.Array, np.ndarray | None]:
    """Those in a plain form as the type, the others null; and where others are."""
    if node.kind == "date":
        forms = [(pattern, node.type) for pattern in _DATES]
    elif node.kind == "timestamp_ntz":
        forms = [(pattern, node.type) for pattern in _LOCAL]
    else:
        forms = [(pattern, node.type) for pattern in _ZONED]
        forms += [(pattern, pa.timestamp("us")) for pattern in _LOCAL if utc]
    times, odd = _cast(array, *forms[0])
    for form in forms[1:]:
        if odd is None:
            break
        more, odd = _cast(pc.if_else(pa.array(odd), array, pa.scalar(None, array.type)), *form)
        times = pc.coalesce(times, more.cast(node.type))
    return times, odd


def _cast(array: pa.Array, pattern: str, kind: pa.DataType) -> tuple[pa.Array, np.ndarray | None]:
    """Those in one of the forms as the type, the others null; and where others are."""
    plain = pc.match_substring_regex(array, pattern)
    odd = _some(~pc.fill_null(plain, True).to_numpy(zero_copy_only=False))
    if odd is not None:
        array = pc.if_else(plain, array, pa.scalar(None, array.type))
    if _NANOS in pattern:
        array = pc.replace_substring_regex(array, r"(\.\d{6})\d+", r"\1")
    try:
        return array.cast(kind), odd
    except pa.ArrowInvalid:
        wrong = _not_in_the_calendar(array)
        array = pc.if_else(pa.array(wrong), pa.scalar(None, array.type), array)
        return array.cast(kind), either(odd, wrong)


def _some(odd: np.ndarray) -> np.ndarray | None:
    return odd if odd.any() else None


def _not_in_the_calendar(times: pa.Array) -> np.ndarray:
    days = pc.utf8_slice_codeunits(times, 0, 10).dictionary_encode()
    wrong = np.array([not _is_day(day) for day in days.dictionary.to_pylist()], dtype=bool)
    rows = pc.fill_null(days.indices, 0).to_numpy(zero_copy_only=False)
    odd: np.ndarray = wrong[rows] & times.is_valid().to_numpy(zero_copy_only=False)
    return odd


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True
