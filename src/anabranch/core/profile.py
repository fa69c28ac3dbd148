"""What the columns of a table are like: how often null, how many distinct values, from where to where, how spread.

Profiles of parts of the rows are put together with `+`, in any order, and give the profile of all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from typing import Any

from anabranch.core.sketches import Distinct, Histogram

#: Characters of a text that are kept as least or greatest value.
TEXT_KEPT = 64

#: A column that has not been seen with any value yet, and one that has been seen with values of several kinds.
UNKNOWN, MIXED = "null", "mixed"

#: Kinds whose histogram is one of lengths, not of values.
SIZED = ("text", "binary", "list", "map")

#: Counts that are left out of a record where they are 0.
_COUNTED = ("nulls", "nans", "infinite")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017
_MICROS = 1_000_000
_DAY = 24 * 3600 * _MICROS


@dataclass(frozen=True, slots=True, order=True)
class Text:
    """A text, or the beginning of one that is longer.

    >>> str(Text("abc", cut=True))
    'abc…'
    """

    text: str
    cut: bool = False

    def __str__(self) -> str:
        return f"{self.text}…" if self.cut else self.text


#: Dates are days, timestamps and times microseconds: so those can be told as well that Python has no date for.
Value = int | float | Decimal | Text


@dataclass(frozen=True, slots=True)
class Lengths:
    """Of texts in characters, of binaries in bytes, of lists and maps in elements."""

    low: int
    high: int
    total: int

    def __add__(self, other: Lengths) -> Lengths:
        return Lengths(min(self.low, other.low), max(self.high, other.high), self.total + other.total)


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """One column, or a field or the elements of one. `kind` says how to read its values.

    `nans` and `infinite` are those of numbers; they are not in the histogram, and NaN is neither `low` nor `high`.
    """

    kind: str
    rows: int = 0
    nulls: int = 0
    nans: int = 0
    infinite: int = 0
    low: Value | None = None
    high: Value | None = None
    lengths: Lengths | None = None
    distinct: Distinct | None = None
    histogram: Histogram | None = None

    def __add__(self, other: ColumnProfile) -> ColumnProfile:
        kind = _kind_of_both(self.kind, other.kind)
        counts = self.rows + other.rows, self.nulls + other.nulls
        if kind == MIXED:
            return ColumnProfile(MIXED, *counts)
        lows = [v for v in (self.low, other.low) if v is not None]
        highs = [v for v in (self.high, other.high) if v is not None]
        return ColumnProfile(
            kind,
            *counts,
            self.nans + other.nans,
            self.infinite + other.infinite,
            min(lows, key=_order, default=None),
            max(highs, key=_order, default=None),
            _both(self.lengths, other.lengths),
            _both(self.distinct, other.distinct),
            _both(self.histogram, other.histogram),
        )

    @property
    def null_share(self) -> float:
        """
        >>> ColumnProfile("number", rows=8, nulls=2).null_share
        0.25
        """
        return self.nulls / self.rows if self.rows else 0.0

    def quantile(self, share: float) -> float | None:
        """About the value, or the length, that this share does not exceed."""
        found = self.histogram.quantile(share) if self.histogram else None
        if found is None or self.kind in SIZED or not isinstance(self.low, int | float):
            return found
        unit = _MICROS if self.histogram and self.histogram.scale == "second" else 1
        ends = [float(v) / unit for v in (self.low, self.high) if isinstance(v, int | float)]
        return min(max(found, ends[0]), ends[1]) if all(map(math.isfinite, ends)) else found

    def figures(self) -> dict[str, Any]:
        """What people want to know, as JSON: no sketches, values as text as `shown` has them."""
        middle = self.quantile(0.5)
        sizes = self.lengths
        mean = sizes.total / (self.rows - self.nulls) if sizes and self.rows > self.nulls else None
        return {
            "kind": self.kind,
            "rows": self.rows,
            "nulls": self.nulls,
            "nans": self.nans,
            "distinct": self.distinct.estimate() if self.distinct else None,
            "min": shown(self.kind, self.low),
            "max": shown(self.kind, self.high),
            "median": _shown_middle(self.kind, middle),
            "length": {"min": sizes.low, "max": sizes.high, "mean": mean} if sizes else None,
        }


@dataclass(frozen=True, slots=True)
class TableProfile:
    """The columns of some rows of a table; fields are named `a.b`, the elements of a list `a[]`.

    A column that only some of the rows had counts those alone. `left_out` are columns too many to be profiled.
    """

    rows: int = 0
    columns: Mapping[str, ColumnProfile] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def __add__(self, other: TableProfile) -> TableProfile:
        columns = dict(self.columns)
        for name, column in other.columns.items():
            columns[name] = columns[name] + column if name in columns else column
        left_out = tuple(sorted({*self.left_out, *other.left_out}))
        return TableProfile(self.rows + other.rows, columns, left_out)

    def as_record(self) -> dict[str, Any]:
        """JSON that `from_record` turns back, sketches and all."""
        columns = {name: _record(column) for name, column in self.columns.items()}
        return {"rows": self.rows, "columns": columns, **({"left_out": self.left_out} if self.left_out else {})}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> TableProfile:
        """What `as_record` gave.

        >>> one = TableProfile(2, {"id": ColumnProfile("number", 2, 1, low=7, high=Decimal("7.5"))})
        >>> TableProfile.from_record(json.loads(json.dumps(one.as_record()))) == one
        True
        """
        columns = {name: _column(said) for name, said in record["columns"].items()}
        return cls(record["rows"], columns, tuple(record.get("left_out", ())))


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen of the rows of an epoch, by output; `failures` says of which it could not be seen, and why."""

    profiles: Mapping[str, TableProfile] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)

    def __add__(self, other: Observed) -> Observed:
        """Both together. A profile that lacks rows would be wrong, so one failure is that of the output."""
        failures = dict(self.failures)
        for name, reason in other.failures.items():
            failures[name] = min(reason, failures.get(name, reason))
        profiles = {name: p for name, p in self.profiles.items() if name not in failures}
        for name, profile in other.profiles.items():
            if name not in failures:
                profiles[name] = profiles[name] + profile if name in profiles else profile
        return Observed(profiles, failures)

    def to_json(self) -> str:
        """One line of JSON that `from_json` turns back."""
        profiles = {name: profile.as_record() for name, profile in self.profiles.items()}
        return json.dumps({"profiles": profiles, "failures": dict(self.failures)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Observed:
        """
        >>> Observed.from_json(Observed({"orders": TableProfile(1)}).to_json()).profiles["orders"].rows
        1
        """
        said = json.loads(text)
        profiles = {name: TableProfile.from_record(record) for name, record in said["profiles"].items()}
        return cls(profiles, said["failures"])


def all_observed(found: Iterable[Observed]) -> Observed:
    """What several tasks saw."""
    return reduce(Observed.__add__, found, Observed())


def shown(kind: str, value: Value | None) -> str | None:
    """A value for people.

    >>> shown("date", 0), shown("timestamp", 1_500_000), shown("date", 4_000_000), shown("boolean", 1)
    ('1970-01-01', '1970-01-01T00:00:01.500000', 'day 4000000 after 1970', 'true')
    """
    if value is None:
        return None
    if kind == "date" and isinstance(value, int):
        return _shown_date(value)
    if kind == "timestamp" and isinstance(value, int):
        return _shown_timestamp(value)
    if kind in ("time", "duration") and isinstance(value, int):
        return f"{value / _MICROS:g} s"
    if kind == "boolean":
        return "true" if value else "false"
    return _shown_float(value, 6) if isinstance(value, float) else str(value)


def _shown_float(value: float, digits: int) -> str:
    """So many digits, and never fewer than those before the point.

    >>> _shown_float(47083.7, 4), _shown_float(9999.7, 4), _shown_float(0.5, 4), _shown_float(-6e22, 4)
    ('47084', '10000', '0.5', '-6e+22')
    """
    if not 10 ** (digits - 1) <= abs(value) < 1e15:  # from here on `g` may take to powers of ten
        return f"{value:.{digits}g}"
    return f"{value:.0f}"


def _shown_date(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"day {abs(days)} {'after' if days > 0 else 'before'} 1970"


def _shown_timestamp(micros: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat()
    except OverflowError:
        return f"day {abs(micros) // _DAY} {'after' if micros > 0 else 'before'} 1970"


def _shown_middle(kind: str, middle: float | None) -> str | None:
    if middle is None:
        return None
    if kind == "date":
        return _shown_date(int(middle))
    if kind == "timestamp":
        return _shown_timestamp(int(middle) * _MICROS)
    if kind in ("time", "duration"):
        return f"{middle:g} s"
    return _shown_float(middle, 4)


def _kind_of_both(one: str, other: str) -> str:
    if one == other or other == UNKNOWN:
        return one
    return other if one == UNKNOWN else MIXED


def _order(value: Value) -> tuple[Any, str]:
    # Of equal values of several types always the same is taken, whichever came first.
    return value, type(value).__name__


def _both(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return one + other


def _record(column: ColumnProfile) -> dict[str, Any]:
    said: dict[str, Any] = {
        "kind": column.kind,
        "rows": column.rows,
        "nulls": column.nulls,
        "nans": column.nans,
        "infinite": column.infinite,
        "low": _value_record(column.low),
        "high": _value_record(column.high),
        "lengths": column.lengths and [column.lengths.low, column.lengths.high, column.lengths.total],
        "distinct": column.distinct and column.distinct.as_text(),
        "histogram": column.histogram and column.histogram.as_record(),
    }
    return {name: value for name, value in said.items() if value is not None and (value or name not in _COUNTED)}


def _column(said: Mapping[str, Any]) -> ColumnProfile:
    return ColumnProfile(
        said["kind"],
        said["rows"],
        said.get("nulls", 0),
        said.get("nans", 0),
        said.get("infinite", 0),
        _value(said.get("low")),
        _value(said.get("high")),
        Lengths(*said["lengths"]) if "lengths" in said else None,
        Distinct.from_text(said["distinct"]) if "distinct" in said else None,
        Histogram.from_record(said["histogram"]) if "histogram" in said else None,
    )


def _value_record(value: Value | None) -> Any:
    match value:
        case Text(text, cut):
            return [text, "cut"] if cut else text
        case Decimal():
            return {"decimal": str(value)}
        case float() if not math.isfinite(value):
            return {"float": repr(value)}
    return value


def _value(said: Any) -> Value | None:
    match said:
        case str():
            return Text(said)
        case [text, "cut"]:
            return Text(text, cut=True)
        case {"decimal": text}:
            return Decimal(text)
        case {"float": text}:
            return float(text)
    return said  # type: ignore[no-any-return]
