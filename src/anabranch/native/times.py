"""Dates and timestamps in a plain form, as ISO 8601 has them: what every parser of Spark agrees on."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: From 1583 on the calendar is the same everywhere.
_DATE = r"(158[3-9]|159\d|1[6-9]\d\d|[2-9]\d\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"[T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_ZONE = r"(Z|[+-](0\d|1[0-7]):[0-5]\d)"

#: Of more than six digits of a second Spark takes the first six.
_MICROS = r"(\.\d{1,6})?"
_NANOS = r"\.\d{7,9}"

_DATES = (f"^{_DATE}$",)
_LOCAL = (f"^{_DATE}{_TIME}{_MICROS}$", f"^{_DATE}{_TIME}{_NANOS}$")
_ZONED = (f"^{_DATE}{_TIME}{_MICROS}{_ZONE}$", f"^{_DATE}{_TIME}{_NANOS}{_ZONE}$")

DATE = pa.date32()
INSTANT = pa.timestamp("us", "UTC")
LOCAL = pa.timestamp("us")

#: What strings of one length look like if they are plain, by the type they are read as first: d is a digit.
_SHAPES = {
    DATE: ("dddd-dd-dd",),
    LOCAL: tuple(f"dddd-dd-dd?dd:dd:dd{fraction}" for fraction in ("", ".ddd", ".dddddd")),
    INSTANT: tuple(f"dddd-dd-dd?dd:dd:dd{fraction}Z" for fraction in ("", ".ddd", ".dddddd")),
}

#: Rows that are looked at side by side: a short row by itself takes longer to begin with than to look at.
_TOGETHER = 64


def read_times(
    texts: pa.Array, kind: pa.DataType, *, utc: bool, days: bool = False
) -> tuple[pa.Array, np.ndarray | None]:
    """The times in a plain form, the others null; and where others are (None: nowhere).

    An instant without a zone is plain only if it is in `utc`, and so is a mere day of which the first instant is meant;
    with `days` those are taken, too.

    >>> read_times(pa.array(["2026-03-01T00:00:00Z", "now"]), INSTANT, utc=True)[1]
    array([False,  True])
    """
    if _all_plain(texts, kind):
        try:
            return texts.cast(kind), None
        except pa.ArrowInvalid:
            pass  # a day that is not in the calendar
    forms = [(pattern, kind) for pattern in {DATE: _DATES, LOCAL: _LOCAL, INSTANT: _ZONED}[kind]]
    if kind == INSTANT and utc:
        forms += [(pattern, LOCAL) for pattern in _LOCAL]
        forms += [(pattern, DATE) for pattern in _DATES if days]
    times, odd = _cast(texts, *forms[0])
    for form in forms[1:]:
        if odd is None:
            break
        more, odd = _cast(pc.if_else(pa.array(odd), texts, pa.scalar(None, texts.type)), *form)
        times = pc.coalesce(times, more.cast(kind))
    return times, odd


def _all_plain(texts: pa.Array, kind: pa.DataType) -> bool:
    """Whether all have the same plain form, as those that a program wrote have. Else more has to be looked at."""
    texts = texts.drop_null() if texts.null_count else texts
    if not len(texts):
        return True
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    length, total = int(ends[1] - ends[0]), int(ends[-1] - ends[0])
    shape = next((shape for shape in _SHAPES[kind] if len(shape) == length), None)
    if shape is None or total != length * len(texts) or (np.diff(ends) != length).any():
        return False
    letters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    least, most = _extremes(letters, length)
    digits = np.frombuffer(shape.encode(), np.uint8) == ord("d")
    if least[digits].min() < ord("0") or most[digits].max() > ord("9"):
        return False
    signs = bytes(least[~digits])
    if signs != bytes(most[~digits]) or signs not in (shape.replace("d", "").replace("?", s).encode() for s in "T "):
        return False
    # The year is at least 1600, in all of them.
    return bool(least[0] >= ord("2") or (least[0] == most[0] == ord("1") and least[1] >= ord("6")))


def _extremes(letters: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest letter at each place of strings of one length."""
    rows = letters.reshape(-1, length)
    even = len(rows) - len(rows) % _TOGETHER
    wide = letters[: even * length].reshape(-1, _TOGETHER * length)
    lows = [rows[even:], wide.min(axis=0).reshape(-1, length)] if even else [rows]
    highs = [rows[even:], wide.max(axis=0).reshape(-1, length)] if even else [rows]
    return np.concatenate(lows).min(axis=0), np.concatenate(highs).max(axis=0)


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
        return array.cast(kind), wrong if odd is None else odd | wrong


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
