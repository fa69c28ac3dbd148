"""Numbers, times and values of rows in words. Whatever comes from data is clipped and made harmless here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from typing import Any

#: Characters of a value that a cell shows, and bytes of a binary one.
MOST_TEXT = 160
MOST_BYTES = 24

#: Characters that move the cursor, turn the direction of text or cannot be seen.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Cell:
    """A value in a table of rows; `kind` is null, number, time, bytes, nested or text, `more` what was left out."""

    text: str
    kind: str
    more: str = ""


def cell(value: Any) -> Cell:
    r"""A value as a short text without anything that could disturb a page.

    >>> cell(None).kind, cell(b"\x01\xff").text, cell("a\x1b[31m\u202eb").text
    ('null', '01 ff', 'a\\x1b[31m\\u202eb')
    >>> cell("x" * 5000).more
    '5,000 characters'
    """
    match value:
        case None:
            return Cell("null", "null")
        case bool():
            return Cell(str(value).lower(), "text")
        case int() | float():
            return Cell(str(value), "number")
        case bytes() | bytearray():
            more = f"{len(value):,} bytes" if len(value) > MOST_BYTES else ""
            return Cell(bytes(value[:MOST_BYTES]).hex(" "), "bytes", more)
        case datetime() | date() | time():
            return Cell(value.isoformat(), "time")
        case str():
            return _clipped(value, "text", len(value))
        case _:
            text = json.dumps(value, default=_plain, ensure_ascii=False)
            return _clipped(text, "nested", len(text))


def seen(text: str, most: int | None = None) -> str:
    """Text with what cannot be seen written out, and at most so long."""
    clipped = text if most is None else text[:most]
    return _UNSEEN.sub(lambda found: _written(found[0]), clipped)


def pretty(value: Any, most: int = 20_000) -> str:
    """JSON over several lines; a text that is none stays as it is.

    >>> pretty('{"a":1}')
    '{\\n  "a": 1\\n}'
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return _with_rest(value, most)
    return _with_rest(json.dumps(value, indent=2, default=_plain, ensure_ascii=False), most)


def moment(seconds: float | None) -> str:
    """A time since 1970 in UTC.

    >>> moment(0.5), moment(None)
    ('1970-01-01 00:00:00', '')
    """
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def iso(seconds: float) -> str:
    """The same for machines."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def duration(seconds: float | None) -> str:
    """How long something took.

    >>> [duration(s) for s in (0.0004, 0.25, 3.21, 75, 7300, 200000)]
    ['0.4 ms', '250 ms', '3.2 s', '1 min 15 s', '2 h 1 min', '2 d 7 h']
    """
    if seconds is None:
        return "–"
    if seconds < 1:
        ms = seconds * 1000
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for large, small, name, other in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if seconds >= large:
            return f"{int(seconds // large)} {name} {int(seconds % large // small)} {other}"
    raise AssertionError(seconds)


def number(value: float | None) -> str:
    """A number with separators; "–" for one that is not known.

    >>> number(1234567), number(12.34), number(None)
    ('1,234,567', '12.3', '–')
    """
    if value is None:
        return "–"
    return f"{value:,.1f}" if isinstance(value, float) and abs(value) < 100 and value % 1 else f"{value:,.0f}"


def size(count: float | None) -> str:
    """Bytes.

    >>> size(999), size(1536), size(5_000_000), size(None)
    ('999 B', '1.5 KiB', '4.8 MiB', '–')
    """
    if count is None:
        return "–"
    if count < 1024:
        return f"{count:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


def share(part: int, whole: int) -> str:
    """A part of a whole.

    >>> share(1, 3), share(0, 0), share(1, 100_000)
    ('33.3 %', '0 %', '< 0.1 %')
    """
    if not part or not whole:
        return "0 %"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"


def units(behind: Mapping[str, int]) -> str:
    """How far sources are ahead, by unit."""
    return ", ".join(f"{count:,} {unit}" for unit, count in behind.items())


def _clipped(text: str, kind: str, length: int) -> Cell:
    return Cell(seen(text, MOST_TEXT), kind, f"{length:,} characters" if length > MOST_TEXT else "")


def _with_rest(text: str, most: int) -> str:
    rest = f"\n… {len(text) - most:,} more characters" if len(text) > most else ""
    return seen(text, most) + rest


def _written(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value[:MOST_BYTES]).hex() + ("…" if len(value) > MOST_BYTES else "")
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)
