"""Dates and timestamps, in UTC: calendars of other zones are left to Spark, and so are years outside of 1 to 9999."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from anabranch.native.expressions_sql import (
    UTC,
    Entry,
    Of,
    constant_text,
    either,
    plain,
    require,
    text,
    unknown,
    unless,
)
from anabranch.native.tree import Compiled, Expr, NotKnown

#: Doubts of a date and of a timestamp, as templates.
DATES = unless("{0} BETWEEN DATE '1583-01-01' AND DATE '9999-12-31'")
TIMES = unless("{0} BETWEEN TIMESTAMP '1583-01-01 00:00:00' AND TIMESTAMP '9999-12-31 23:59:59.999999'")

#: A timestamp, or null where it is doubted: of the very first ones there are, DuckDB's casts raise, in spite of TRY.
SURE_TIME = (
    "(CASE WHEN {0} BETWEEN TIMESTAMP '1583-01-01 00:00:00' AND TIMESTAMP '9999-12-31 23:59:59.999999' THEN {0} END)"
)

#: Years of a text, as a regular expression: where the calendars of both parsers that Spark can be set to agree.
YEARS = r"(?:158[3-9]|159\d|1[6-9]\d\d|[2-9]\d\d\d)"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_OFFSET = r"[+-](?:0\d|1[0-7]):[0-5]\d"

_MICROSECONDS = {"SecondsToTimestamp": 1_000_000, "MillisToTimestamp": 1_000, "MicrosToTimestamp": 1}


def instant(sql: str, utc: bool) -> Compiled:
    """The timestamp that a string shows as ISO 8601 has it; without an offset only where the session is in UTC."""
    # A cast to TIMESTAMP leaves an offset out of account, one to TIMESTAMPTZ would take the zone of DuckDB's session.
    # Of the forms below only those with an offset end like this, and LIKE is faster than a regular expression.
    value = (
        f"(CASE WHEN {sql} LIKE '%+__:__' OR {sql} LIKE '%-__:__' THEN timezone('UTC', TRY_CAST({sql} AS TIMESTAMPTZ))"
        f" ELSE TRY_CAST({sql} AS TIMESTAMP) END)"
    )
    zoned = rf"[ T]{_CLOCK}(?:Z|{_OFFSET})"
    forms = rf"{YEARS}-\d\d-\d\d" + (rf"(?:{zoned}|[ T]{_CLOCK})?" if utc else zoned)
    sure = f"(regexp_full_match({sql}, '{forms}') AND TRY_CAST({sql} AS TIMESTAMP) IS NOT NULL)"
    return Compiled(value, unless(sure))


def from_seconds(sql: str, unit: int = 1_000_000) -> Compiled:
    """The timestamp of a number of seconds, or of parts of a second, since 1970."""
    micros = f"CAST({sql} AS HUGEINT) * {unit}"
    fits = unless(f"({micros}) BETWEEN -12000000000000000 AND 253402300799999999")
    # Out of that range, `make_timestamp` raises.
    return Compiled(f"TRY(make_timestamp(TRY_CAST({micros} AS BIGINT)))", fits)


def whole_seconds(sql: str, unit: int = 1_000_000) -> Compiled:
    """The seconds, or parts of a second, since 1970, rounded down."""
    part = {1_000_000: "second", 1_000: "millisecond", 1: "microsecond"}[unit]
    return Compiled(f"TRY(epoch_us(date_trunc('{part}', {sql})) // {unit})", TIMES.format(sql))


def _zoned(sql: str) -> Entry:
    """A field of a timestamp's time."""

    def entry(expr: Expr, of: Of) -> Compiled:
        if expr.children[0].type != "timestamp_ntz" and expr.detail.get("zone") not in UTC:
            raise NotKnown(f"calls `{expr.kind}` in a time zone that is not UTC")
        return plain(sql, ("timestamp", "timestamp_ntz"), doubt=TIMES)(expr, of)

    return entry


def _field(function: str, add: int = 0) -> Entry:
    return plain(f"CAST(TRY({function}({{0}}) + {add}) AS {{type}})", ("date",), doubt=DATES)


def _counted(function: Callable[[str, int], Compiled], unit: int, types: tuple[str, ...]) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        require(expr, types)
        child = of(expr.children[0])
        found = function(child.sql, unit)
        return Compiled(found.sql, either(child.doubt, found.doubt))

    return entry


_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "year"),
    "QUARTER": "quarter",
    **dict.fromkeys(("MONTH", "MM", "MON"), "month"),
    "WEEK": "week",
}
_SMALL_UNITS = {
    **_UNITS,
    **dict.fromkeys(("DAY", "DD"), "day"),
    **{name: name.lower() for name in ("HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")},
}


def _truncated(expr: Expr, of: Of) -> Compiled:
    if expr.kind == "TruncDate":
        subject, unit, units = expr.children[0], expr.children[1], _UNITS
    else:
        subject, unit, units = expr.children[1], expr.children[0], _SMALL_UNITS
        if expr.detail.get("zone") not in UTC:
            raise NotKnown("truncates timestamps in a time zone that is not UTC")
    name = units.get(constant_text(unit, "a unit").upper())
    if name is None or subject.type not in ("date", "timestamp") or (subject.type == "date") != (units is _UNITS):
        raise unknown(expr)
    child = of(subject)
    doubt = (DATES if subject.type == "date" else TIMES).format(child.sql)
    sql = f"TRY_CAST(TRY(date_trunc('{name}', {child.sql})) AS {'DATE' if units is _UNITS else 'TIMESTAMP'})"
    return Compiled(sql, either(child.doubt, doubt))


def _parsed(expr: Expr, of: Of) -> Compiled:
    """A string read by a pattern."""
    subject, pattern = expr.children[:2]
    if subject.type != "string":
        raise unknown(expr)
    child = of(subject)
    found = _by_pattern(child.sql, constant_text(pattern, "a pattern"), expr)
    return Compiled(found.sql, either(child.doubt, found.doubt))


_FIELDS = {
    "yyyy": ("%Y", YEARS),
    "MM": ("%m", r"\d\d"),
    "dd": ("%d", r"\d\d"),
    "HH": ("%H", r"(?:[01]\d|2[0-3])"),
    "mm": ("%M", r"[0-5]\d"),
    "ss": ("%S", r"[0-5]\d"),
    "SSS": ("%g", r"\d\d\d"),
    "SSSSSS": ("%f", r"\d{6}"),
}
_CLOCKS = ("", "HH mm", "HH mm ss", "HH mm ss SSS", "HH mm ss SSSSSS")


def _by_pattern(sql: str, pattern: str, expr: Expr) -> Compiled:
    """Only strings with each field at its full width, of which every parser makes the same."""
    tokens = [found[0] for found in re.finditer(r"([A-Za-z])\1*|'T'|'Z'|.", pattern, re.DOTALL)]
    fields = [token for token in tokens if token in _FIELDS]
    offset = tokens[-1:] == ["XXX"]
    others = set(tokens) - set(_FIELDS) - {"'T'", "'Z'", "-", "/", ":", ".", " "}
    dates, clock = sorted(fields[:3]), fields[3:]
    if dates != ["MM", "dd", "yyyy"] or " ".join(clock) not in _CLOCKS or others - ({"XXX"} if offset else set()):
        raise NotKnown(f"reads times by the pattern `{pattern}`, which is not known to be equal")
    if offset:
        regular = re.sub(r"\.S+", "", pattern)
        if regular not in ("yyyy-MM-dd'T'HH:mm:ssXXX", "yyyy-MM-dd HH:mm:ssXXX"):
            raise NotKnown(f"reads times by the pattern `{pattern}`, which is not known to be equal")
    elif expr.type != "timestamp_ntz" and expr.detail.get("zone") not in UTC:
        raise NotKnown("reads times in a time zone that is not UTC")
    form = "".join(_FIELDS[t][1] if t in _FIELDS else re.escape(t.strip("'")) for t in tokens if t != "XXX")
    if offset:
        whole = instant(sql, True)
        matches = f"regexp_full_match({sql}, {text(form + f'(?:Z|{_OFFSET})')})"
        return Compiled(whole.sql, either(whole.doubt, unless(matches)))
    read = "".join(_FIELDS[t][0] if t in _FIELDS else t.strip("'") for t in tokens)
    value = f"try_strptime({sql}, '{read}')"
    return Compiled(value, unless(f"(regexp_full_match({sql}, {text(form)}) AND {value} IS NOT NULL)"))


def _shown(expr: Expr, of: Of) -> Compiled:
    """A timestamp, or one that is given in seconds, as a text by a pattern."""
    subject, right = expr.children[:2]
    pattern = constant_text(right, "a pattern")
    tokens = [found[0] for found in re.finditer(r"([A-Za-z])\1*|'T'|'Z'|.", pattern, re.DOTALL)]
    if set(tokens) - set(_FIELDS) - {"'T'", "'Z'", "-", "/", ":", ".", " ", "_", ","} or not tokens:
        raise NotKnown(f"shows times by the pattern `{pattern}`, which is not known to be equal")
    if expr.detail.get("zone") not in UTC:
        raise NotKnown("shows times in a time zone that is not UTC")
    child = of(subject)
    if subject.type == "bigint":
        time = from_seconds(child.sql)
    elif subject.type == "timestamp":
        time = Compiled(child.sql)
    else:
        raise unknown(expr)
    form = "".join(_FIELDS[t][0] if t in _FIELDS else t.strip("'") for t in tokens)
    sql = f"strftime({SURE_TIME.format(time.sql)}, '{form}')"
    return Compiled(sql, either(child.doubt, time.doubt, TIMES.format(time.sql)))


def _later(expr: Expr, of: Of) -> Compiled:
    """A timestamp and a constant number of microseconds; days are of the calendar, and so of a zone."""
    subject, interval = expr.children
    micros = interval.value
    if interval.kind != "Literal" or not isinstance(micros, int) or subject.type not in ("timestamp", "timestamp_ntz"):
        raise unknown(expr)
    if subject.type == "timestamp" and expr.detail.get("zone") not in UTC and abs(micros) >= 86_400_000_000:
        raise NotKnown("adds days to a timestamp in a time zone that is not UTC")
    child = of(subject)
    moved = from_seconds(f"(CAST(epoch_us({SURE_TIME.format(child.sql)}) AS HUGEINT) + {micros})", 1)
    return Compiled(moved.sql, either(child.doubt, TIMES.format(child.sql), moved.doubt))


def _months(expr: Expr, of: Of) -> Compiled:
    require(expr, _DAYS)
    day, months = (of(child) for child in expr.children)
    sure = f"({day.sql} BETWEEN DATE '1583-01-01' AND DATE '9999-12-31' AND {months.sql} BETWEEN -100000 AND 100000)"
    few = f"(CASE WHEN {sure} THEN {months.sql} END)"
    sql = f"TRY_CAST(TRY({day.sql} + to_months(CAST({few} AS INTEGER))) AS DATE)"
    return Compiled(sql, either(day.doubt, months.doubt, unless(sure), DATES.format(sql)))


def _unix_timestamp(expr: Expr, of: Of) -> Compiled:
    """Seconds, rounded towards zero: unlike a cast and `unix_seconds`, which round down."""
    if expr.children[0].type == "timestamp":
        given = of(expr.children[0])
        given = Compiled(given.sql, either(given.doubt, TIMES.format(given.sql)))
    else:
        given = _parsed(expr, of)
    return Compiled(f"TRY(epoch_us({given.sql}) // 1000000)", given.doubt)


_DAYS = ("date", "int", "smallint", "tinyint")
_moved = unless("({0} BETWEEN DATE '1583-01-01' AND DATE '9999-12-31' AND {1} BETWEEN -3000000 AND 3000000)")
_apart = either(DATES, DATES.replace("{0}", "{1}")) or ""

TIME: Mapping[str, Entry] = {
    "Year": _field("year"),
    "Quarter": _field("quarter"),
    "Month": _field("month"),
    "DayOfMonth": _field("day"),
    "DayOfYear": _field("dayofyear"),
    "WeekOfYear": _field("weekofyear"),
    "DayOfWeek": _field("dayofweek", 1),
    "WeekDay": _field("isodow", -1),
    "LastDay": plain("TRY(last_day({0}))", ("date",), doubt=DATES),
    "Hour": _zoned("CAST(TRY(hour({0})) AS INTEGER)"),
    "Minute": _zoned("CAST(TRY(minute({0})) AS INTEGER)"),
    "Second": _zoned("CAST(TRY(second({0})) AS INTEGER)"),
    "TruncDate": _truncated,
    "TruncTimestamp": _truncated,
    "DateAdd": plain("TRY({0} + {1})", _DAYS, doubt=_moved),
    "DateSub": plain("TRY({0} - {1})", _DAYS, doubt=_moved),
    "DateDiff": plain("TRY_CAST(TRY({0} - {1}) AS INTEGER)", ("date",), doubt=_apart),
    "UnixDate": plain("TRY_CAST(TRY({0} - DATE '1970-01-01') AS INTEGER)", ("date",), doubt=DATES),
    "DateFromUnixDate": plain(
        "TRY(DATE '1970-01-01' + {0})", ("int",), doubt=unless("{0} BETWEEN -3000000 AND 3000000")
    ),
    **{kind: _counted(from_seconds, unit, ("int", "bigint")) for kind, unit in _MICROSECONDS.items()},
    "UnixSeconds": _counted(whole_seconds, 1_000_000, ("timestamp",)),
    "UnixMillis": _counted(whole_seconds, 1_000, ("timestamp",)),
    "UnixMicros": _counted(whole_seconds, 1, ("timestamp",)),
    "AddMonths": _months,
    "TimestampAddInterval": _later,
    "DateFormatClass": _shown,
    "FromUnixTime": _shown,
    "GetTimestamp": _parsed,
    "UnixTimestamp": _unix_timestamp,
    "ToUnixTimestamp": _unix_timestamp,
}
