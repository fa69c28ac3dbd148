"""Durations as people write them: `10 seconds`, `1 hour 30 minutes`, `500ms`."""

from __future__ import annotations

import re

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), _SECONDS["ms"]),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), _SECONDS["s"]),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), _SECONDS["m"]),
    **dict.fromkeys(("h", "hour", "hours"), _SECONDS["h"]),
    **dict.fromkeys(("d", "day", "days"), _SECONDS["d"]),
    **dict.fromkeys(("w", "week", "weeks"), _SECONDS["w"]),
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*,?", re.ASCII)


def parse_duration(text: str) -> float:
    """The duration in seconds; ValueError says what was expected.

    >>> parse_duration("10 seconds"), parse_duration("1 hour 30 minutes"), parse_duration("500ms")
    (10.0, 5400.0, 0.5)
    >>> parse_duration("10")
    Traceback (most recent call last):
    ValueError: "10" has no unit: write "10 seconds", "10 minutes", "10 hours" or "10 days"
    """
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text, re.ASCII):
        bare = text.strip()
        raise ValueError(
            f'"{text}" has no unit: write "{bare} seconds", "{bare} minutes", "{bare} hours" or "{bare} days"'
        )
    total, at = 0.0, 0
    while part := _PART.match(text, at):
        number, unit = part.groups()
        if unit.lower() not in _UNITS:
            raise ValueError(f'"{unit}" in "{text}" is no unit of time: use ms, seconds, minutes, hours, days or weeks')
        total += float(number) * _UNITS[unit.lower()]
        at = part.end()
    if at == 0 or text[at:].strip():
        raise ValueError(f'"{text}" is no duration: write a number and a unit, such as "10 seconds" or "7 days"')
    return total
