"""Records with faults for which it is certain what Spark gives: each by itself, with Python's own parser.

A document that never ends gives a record of nulls. Jackson goes on behind some errors, so this holds where it meets the
end of the text as its first error, and not right behind the name of a field of an inner object: there it takes the end
for the end of the outer object, and keeps what it has read of that.

A value of the wrong type gives null for its field; other fields keep theirs, within inner objects as well. In an array,
one such element makes the whole array null. What is left of the document is written anew for the reader.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from anabranch.native.parse_guard import DEEP, LONG_NUMBER, LONG_TEXT
from anabranch.native.parse_schema import Node

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LONG = re.compile(LONG_NUMBER)
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_SIGNED_ZERO = re.compile(r"-0(?![0-9])")
_SPACE = " \t\r\n"

#: What Python says of a text that ends too soon, where it can only be the end that is missing.
_WITHIN_TEXT = "Unterminated string starting at"
_AT_END = ("Expecting ',' delimiter", "Expecting property name enclosed in double quotes")

_SIZES = {"byte": 7, "short": 15, "integer": 31, "long": 63}
_NUMBERS_AS_TEXT = ("NaN", "INF", "Infinity")


class _Doubt(Exception):
    """What Spark gives is not certain."""


class _Misfit(Exception):
    """The value has not the type: Spark gives null for the nearest field around it."""


def never_ends(text: str) -> bool:
    """Whether it is certain that Spark gives a record of nulls, as the document ends too soon.

    >>> never_ends('{"a": "x'), never_ends('{"a": "x"}'), never_ends('{"a": tru, "b'), never_ends('{"a": {"b": ')
    (True, False, False, False)
    """
    if not text.startswith("{") or _odd(text):
        return False
    try:
        _QUICK_DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        if error.msg == _WITHIN_TEXT:
            return True
        if error.pos < len(text.rstrip(_SPACE)):
            return False
        return error.msg in _AT_END or _outermost(text)
    except (ValueError, RecursionError, _Doubt):
        return False
    return False


def _outermost(text: str) -> bool:
    """Whether a text of whole tokens ends in no inner object or array."""
    outside = _TEXT.sub("", text)
    return outside.count("{") == 1 + outside.count("}") and outside.count("[") == outside.count("]")


def repaired(text: str, tree: Node) -> tuple[str, bool] | None:
    """A document that has the values that Spark gives for this one, and whether it has faults; None if not certain.

    `tree`: without the field for bad records.
    """
    text = text.strip(_SPACE)
    if not text.startswith("{") or _odd(text):
        return None
    walk = _Walk(_SIGNED_ZERO.search(text) is not None)
    try:
        found, end = _DECODER.raw_decode(text)
        if end < len(text):
            return None
        again = _ENCODER.encode(walk.fields(found, tree))
        again.encode()
    except (ValueError, RecursionError, _Doubt):  # of a surrogate: a ValueError
        return None
    return again, walk.faults


def _odd(text: str) -> bool:
    """Whether a limit of Jackson's may be met, or half a letter."""
    size = len(text)
    if size > 900 and (size >= LONG_TEXT or _LONG.search(text)):
        return True
    if size > 2 * DEEP and text.count("{") + text.count("[") >= DEEP:
        return True
    return "\\u" in text and _SURROGATE.search(text) is not None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Doubt
    return found


def _no_constant(_: str) -> NoReturn:
    raise _Doubt


_QUICK_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, check_circular=False, allow_nan=False, separators=(",", ":"))


class _Walk:
    """One document, value by value; `zeros`: it may have a zero with a sign."""

    def __init__(self, zeros: bool) -> None:
        self.faults = False
        self._zeros = zeros

    def fields(self, found: dict[str, Any], node: Node) -> dict[str, Any]:
        kept = {}
        for child in node.children:
            if (value := found.get(child.name)) is not None:
                try:
                    kept[child.name] = self._value(value, child)
                except _Misfit:
                    self.faults = True
        return kept

    def _value(self, value: Any, node: Node) -> Any:
        kind = node.kind
        if value is None:
            return None
        if kind == "struct":
            return self.fields(value, node) if isinstance(value, dict) else _misfit()
        if kind == "array":
            return [self._value(each, node.children[0]) for each in value] if isinstance(value, list) else _misfit()
        if kind == "string":
            return value if isinstance(value, str) else self._as_text(value)
        if kind == "boolean":
            return value if isinstance(value, bool) else _misfit()
        if kind in _SIZES:
            return _whole_number(value, kind)
        if kind == "double":
            return self._number(value)
        if kind in ("date", "timestamp", "timestamp_ntz"):
            return _time(value, kind)
        raise _Doubt

    def _as_text(self, value: Any) -> str:
        """Spark writes some numbers in its own way, and other ones in files than elsewhere."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int) and abs(value) < 10**18 and not (value == 0 and self._zeros):
            return str(value)
        raise _Doubt

    def _number(self, value: Any) -> Any:
        if isinstance(value, str) and value.endswith(_NUMBERS_AS_TEXT):
            raise _Doubt
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Misfit
        if value == 0 and self._zeros:
            raise _Doubt
        return value  # without end: the encoder raises


def _misfit() -> NoReturn:
    raise _Misfit


def _whole_number(value: Any, kind: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Misfit
    limit: int = 1 << _SIZES[kind]
    if -limit <= value < limit:
        return value
    if kind == "byte" and 0 < value < 256:
        raise _Doubt  # Jackson takes these for bytes without a sign
    raise _Misfit


def _time(value: Any, kind: str) -> str:
    """Texts are looked at later. A whole number may be seconds."""
    if isinstance(value, str) and value:
        return value
    if kind == "timestamp" and isinstance(value, int) and not isinstance(value, bool):
        raise _Doubt
    raise _Misfit
