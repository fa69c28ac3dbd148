"""Casts. What a cast refuses, wraps or makes null by its mode is doubted, so that the mode itself does not matter."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.native.expressions_decimals import fitted, from_double, rounded, shown
from anabranch.native.expressions_numbers import limits
from anabranch.native.expressions_sql import FLOATS, INTEGERS, UTC, Entry, Of, decimal_of, either, sql_type, unless
from anabranch.native.expressions_time import DATES, SURE_TIME, TIMES, YEARS, from_seconds, instant, whole_seconds
from anabranch.native.tree import Compiled, Expr, NotKnown

_DATE_TEXT = rf"{YEARS}-\d\d-\d\d"
_NUMBER_TEXT = {
    **dict.fromkeys(INTEGERS, r"-?\d{1,19}"),
    # Both round to the nearest; more digits, and words for infinity, are left to Spark.
    **dict.fromkeys(FLOATS, r"-?\d{1,30}(\.\d{1,30})?([eE][+-]?\d\d?)?"),
}


def _cast(expr: Expr, of: Of) -> Compiled:
    child = expr.children[0]
    if child.type == "void":
        return Compiled(f"CAST(NULL AS {sql_type(expr.type)})")
    if child.type == expr.type:
        return of(child)
    given = of(child)
    found = _converted(expr, child.type, given.sql)
    if found is None:
        raise NotKnown(f"casts {child.type} to {expr.type}, which is not known to be equal")
    return Compiled(found.sql, either(given.doubt, found.doubt))


def _converted(expr: Expr, old: str, sql: str) -> Compiled | None:
    new, utc = expr.type, expr.detail.get("zone") in UTC
    if old == "string":
        return _from_string(expr, sql)
    if new == "string":
        return _to_string(expr, old, sql)
    if new in INTEGERS:
        return _to_whole(new, old, sql)
    if new in FLOATS:
        return _to_float(new, old, sql)
    if room := decimal_of(new):
        return _to_decimal(new, room, old, sql)
    if new == "boolean" and old in INTEGERS:
        return Compiled(f"({sql} <> 0)")
    if new == "timestamp" and old in INTEGERS:
        return from_seconds(sql)
    if new == "timestamp" and old == "double":  # both multiply, and cut off what is behind the point
        found = from_seconds(f"TRY_CAST(trunc({sql} * 1e6) AS BIGINT)", 1)
        return Compiled(found.sql, either(found.doubt, unless(f"abs({sql}) < 1e12")))
    if new in ("timestamp", "timestamp_ntz") and old in ("timestamp", "timestamp_ntz") and utc:
        return Compiled(sql)
    if new == "date" and (old == "timestamp_ntz" or (old == "timestamp" and utc)):
        return Compiled(f"TRY_CAST({SURE_TIME.format(sql)} AS DATE)", TIMES.format(sql))
    if old == "date" and (new == "timestamp_ntz" or (new == "timestamp" and utc)):
        return Compiled(f"TRY_CAST({sql} AS TIMESTAMP)", DATES.format(sql))
    return None


def _text(sql: str, pattern: str, kind: str) -> Compiled:
    """A string of a form that both read in the same way."""
    value = f"TRY_CAST({sql} AS {kind})"
    sure = f"(regexp_full_match({sql}, '{pattern}') AND {value} IS NOT NULL)"
    return Compiled(value, unless(sure))


def _from_string(expr: Expr, sql: str) -> Compiled | None:
    new = expr.type
    if new in _NUMBER_TEXT:
        return _text(sql, _NUMBER_TEXT[new], sql_type(new))
    if new == "boolean":
        return Compiled(f"({sql} = 'true')", unless(f"{sql} IN ('true', 'false')"))
    if new == "date":
        return _text(sql, _DATE_TEXT, "DATE")
    if new == "timestamp":
        return instant(sql, expr.detail.get("zone") in UTC)
    room = decimal_of(new)
    if room and room[0] > room[1]:
        fraction = rf"(\.\d{{1,{room[1]}}})?" if room[1] else ""
        return _text(sql, rf"-?\d{{1,{room[0] - room[1]}}}{fraction}", sql_type(new))
    return None


def _to_string(expr: Expr, old: str, sql: str) -> Compiled | None:
    if old in INTEGERS or old == "boolean":
        return Compiled(f"CAST({sql} AS VARCHAR)")
    if room := decimal_of(old):
        text = shown(sql, room, plain=expr.detail.get("mode") == "ANSI")
        return Compiled(text) if text else None
    if old == "date":
        return Compiled(f"CAST({sql} AS VARCHAR)", DATES.format(sql))
    if old == "timestamp_ntz" or (old == "timestamp" and expr.detail.get("zone") in UTC):
        return Compiled(f"CAST({SURE_TIME.format(sql)} AS VARCHAR)", TIMES.format(sql))
    return None


def _to_whole(new: str, old: str, sql: str) -> Compiled | None:
    kind = sql_type(new)
    least, largest = limits(new)
    if old in INTEGERS:
        if INTEGERS[old] <= INTEGERS[new]:
            return Compiled(f"CAST({sql} AS {kind})")
        return Compiled(f"TRY_CAST({sql} AS {kind})", unless(f"{sql} BETWEEN {least} AND {largest}"))
    if old in FLOATS:  # DuckDB rounds, Spark cuts off
        edge = min(largest, 9 * 10**18)
        return Compiled(f"TRY_CAST(trunc({sql}) AS {kind})", unless(f"abs({sql}) < CAST({edge} AS DOUBLE)"))
    if old == "boolean":
        return Compiled(f"CAST({sql} AS {kind})")
    if room := decimal_of(old):
        value = f"TRY_CAST(trunc({sql}) AS {kind})"
        fits = f"({sql} IS NOT NULL AND {value} IS NULL)"
        if new != "bigint" and room[0] > 15 and room[1]:  # Spark makes it a double first, which may be the next number
            double = f"trunc(TRY_CAST(CAST({sql} AS VARCHAR) AS DOUBLE))"
            return Compiled(value, f"({fits} OR {double} IS DISTINCT FROM CAST({value} AS DOUBLE))")
        return Compiled(value, fits)
    if old == "timestamp" and new == "bigint":
        return whole_seconds(sql)
    return None


def _to_float(new: str, old: str, sql: str) -> Compiled | None:
    kind = sql_type(new)
    if new == "float" and old in ("int", "bigint"):
        # Where it is cast further, to a double, Spark's optimizer may leave the float out, and what it rounds.
        return Compiled(f"CAST({sql} AS {kind})", unless(f"{sql} BETWEEN -16777216 AND 16777216"))
    if old in INTEGERS or (old == "float" and new == "double"):
        return Compiled(f"CAST({sql} AS {kind})")
    if old == "double":
        return Compiled(f"TRY_CAST({sql} AS {kind})", unless(f"abs({sql}) < 3.4e38"))
    if old == "boolean":
        return Compiled(f"CAST(CAST({sql} AS INTEGER) AS {kind})")
    if old == "timestamp" and new == "double":
        return Compiled(f"(CAST(epoch_us({SURE_TIME.format(sql)}) AS DOUBLE) / 1e6)", TIMES.format(sql))
    room = decimal_of(old)
    if room and room[0] <= 15 and new == "double":  # digits and power of ten are exact: one division, rounded once
        return Compiled(f"CAST({sql} AS DOUBLE)")
    if room:  # what is read from a text is rounded once
        return Compiled(f"TRY_CAST(CAST({sql} AS VARCHAR) AS {kind})")
    return None


def _to_decimal(new: str, room: tuple[int, int], old: str, sql: str) -> Compiled | None:
    digits = room[0] - room[1]
    kind = sql_type(new)
    if old in INTEGERS:
        fits = unless(f"abs(CAST({sql} AS HUGEINT)) < {10**digits}")
        return Compiled(f"TRY_CAST({sql} AS {kind})", fits if digits < 19 else None)
    if had := decimal_of(old):
        exact = fitted(sql, had, room)
        return exact if exact.doubt is None else rounded(sql, room)
    return from_double(sql, room) if old in FLOATS else None


CASTS: Mapping[str, Entry] = {"Cast": _cast}
