"""Why a value does not fit a column, in words. Types are written as Spark's schemas are in JSON."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal, InvalidOperation
from typing import Any

_WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}


def misfit(kind: Any, value: Any, name: str = "") -> str | None:
    """Why a value of a JSON document is not of a type; None where nothing is wrong that could be told.

    >>> misfit({"type": "struct", "fields": [{"name": "qty", "type": "integer"}]}, {"qty": "abc"})
    "column qty: 'abc' is not an int"
    >>> misfit({"type": "struct", "fields": []}, 5), misfit("string", 5)
    ('5 is not an object', None)
    """
    if value is None:
        return None
    if isinstance(kind, dict):
        return _inside(kind, value, name)
    if kind in _WHOLE:
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2 ** (_WHOLE[kind] - 1)
    elif kind in ("float", "double") or kind.startswith("decimal"):
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    elif kind == "boolean":
        fits = isinstance(value, bool)
    elif kind in ("date", "timestamp", "timestamp_ntz"):
        fits = isinstance(value, str) and _is_time(value)
    else:
        fits = True
    return None if fits else _words(kind, value, name)


def _inside(kind: dict[str, Any], value: Any, name: str) -> str | None:
    if kind["type"] == "struct":
        if not isinstance(value, dict):
            return _words("an object", value, name)
        inner = ((each["type"], value.get(each["name"]), each["name"]) for each in kind["fields"])
    elif kind["type"] == "array":
        if not isinstance(value, list):
            return _words("an array", value, name)
        inner = ((kind["elementType"], each, str(place)) for place, each in enumerate(value))
    elif kind["type"] == "map":
        if not isinstance(value, dict):
            return _words("an object", value, name)
        inner = ((kind["valueType"], each, key) for key, each in value.items())
    else:
        return None
    prefix = f"{name}." if name else ""
    found = (misfit(one, each, prefix + key) for one, each, key in inner)
    return next((words for words in found if words), None)


def text_misfit(kind: Any, value: str, name: str) -> str | None:
    """Why a value of a CSV file is not of a type.

    >>> text_misfit("integer", "abc", "qty"), text_misfit("integer", "12", "qty")
    ("column qty: 'abc' is not an int", None)
    """
    if not isinstance(kind, str):
        return None
    text = value.strip()
    try:
        if kind in _WHOLE:
            fits = abs(int(text)) <= 2 ** (_WHOLE[kind] - 1)
        elif kind in ("float", "double"):
            fits = float(text) is not None
        elif kind.startswith("decimal"):
            fits = Decimal(text) is not None
        elif kind == "boolean":
            fits = text.lower() in ("true", "false")
        elif kind in ("date", "timestamp", "timestamp_ntz"):
            fits = _is_time(text)
        else:
            fits = True
    except (ValueError, InvalidOperation):
        fits = False
    return None if fits else _words(kind, value, name)


def _is_time(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _words(kind: str, value: Any, name: str) -> str:
    shown = repr(value) if isinstance(value, str) else json.dumps(value)
    if len(shown) > 60:
        shown = shown[:57] + "..."
    said = _NAMES.get(kind, kind)
    article = "" if said.startswith(("a ", "an ")) else "an " if said[0] in "aeiou" else "a "
    return f"{f'column {name}: ' if name else ''}{shown} is not {article}{said}"
