"""Blocks of documents that are regular, as `parse_regular` reads them, but for hostile values; and what they mean."""

# ruff: noqa: E501  (tables of values)
from __future__ import annotations

import json
import random
from typing import Any

from native.json_documents import array, random_document, struct

#: Types whose values DuckDB gives as they are written, and decimals and floats not.
REGULAR = ["boolean", "byte", "short", "integer", "long", "double", "string", "date", "timestamp", "timestamp_ntz"]

NAMES = ["a", "b", "A2", "user id", "x.y", "x/y", "ä", "[]", "$", "a:", "a'b", "😀", "nan", "_corrupt_record"]
ESCAPED = ['q"t', "\0n", "\\", "\n"]

_INTEGERS = [str(edge + step) for size in (8, 16, 32, 64, 65) for edge in (2 ** (size - 1),) for step in (-1, 0, 1)]
_INTEGERS += [f"-{number}" for number in _INTEGERS] + ["0", "-0", "1", "15", "1" + "0" * 18, "9" * 25]

_FRACTIONS = [
    "1.0", "-0.0", "0.0", "0e5", "-0e5", "1e3", "1E+3", "1e-3", "5e-324", "4.9e-324", "2e-324", "3e-324", "2.4703282292062327e-324",
    "2.4703282292062328e-324", "2.2250738585072011e-308", "2.2250738585072014e-308", "1.7976931348623157e308", "1.7976931348623159e308",
    "1e308", "1e309", "-1e400", "1e-400", "-1e-400", "0.1", "0.30000000000000004", "9007199254740993", "9007199254740992.5",
    "9007199254740993.0", "9223372036854775807.5", "1." + "0" * 60 + "1", "1.00000000000000011102230246251565404236316680908203125",
    "1.00000000000000011102230246251565404236316680908203124", "1.00000000000000011102230246251565404236316680908203126",
    "8.41e21", "2.0e-3", "123456789.123456789e-20", "9" * 40 + ".5", "1" + "0" * 150, "0." + "0" * 150 + "1", "7.2057594037927933e16",
]  # fmt: skip

_TEXTS = [
    "", " ", "x", "15", "1.5", "true", "null", "NaN", "Infinity", "-INF", "+INF", "nan", "inf", ", NaN, inf ]", ": x", ":", '":', "a\":1", "{",
    "}", "[1, ]", ",]", "ä€😀", "\0", "\x01", "\x7f", "\u2028", "\ufeff", "\ufffe", "\U0010ffff", "\\", "\\\\", '"', "/", "\b\f\n\r\t",
    "a, \"b\": 1", "Info", "-nan", "N/A", "+1", "-", "2026-01-02", "2026-01-02T03:04:05Z", "$]", "(}", "é" * 40, "x" * 300,
]  # fmt: skip

_TIMES = [
    "2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05", "2026-01-02T03:04:05.123", "2026-01-02T03:04:05.123456Z",
    "2026-02-30", "2026-02-30T00:00:00Z", "2026-01-02T24:00:00Z", "2026-01-02T23:59:60Z", "1599-12-31", "1600-01-01T00:00:00Z",
    "1582-10-04", "9999-12-31T23:59:59.999999Z", "0001-01-01", "2026-01-02T03:04:05+01:00", "2026-1-2", "now", "2024-02-29", "1900-02-29",
]  # fmt: skip

_CONTAINERS = [
    "[]",
    "{}",
    "[1]",
    "[null]",
    '["x"]',
    '{"a":1}',
    '[{"a":1}]',
    "[[]]",
    "[[1],2]",
    '[{"a":1},null,5]',
    '{"a":1,"a":2}',
]

#: Not JSON, to Spark or to any reader.
_NONE = [
    "NaN", "nan", "-Infinity", "INF", "inf", "[1,]", "[1, ]", "[,]", "01", "+1", ".5", "1.", "'x'", "TRUE", "nul", "", '"\\ud800"', '"\\x"',
]  # fmt: skip


#: As they are in a document.
HOSTILE = [*_INTEGERS, *_FRACTIONS, *_CONTAINERS, *_NONE, "true", "false", "null"]
HOSTILE += [json.dumps(text, ensure_ascii=False) for text in (*_TEXTS, *_TIMES)]


def regular_schema(dice: random.Random, depth: int = 0) -> dict[str, Any]:
    """A struct of fields that can be read the regular way."""

    def kind(depth: int) -> Any:
        roll = dice.random()
        if depth < 3 and roll < 0.2:
            return array(kind(depth + 1))
        if depth < 3 and roll < 0.4:
            return regular_schema(dice, depth + 1)
        return dice.choice(REGULAR)

    names = NAMES + ESCAPED if dice.random() < 0.2 else NAMES
    return struct(*((name, kind(depth)) for name in dice.sample(names, dice.randint(1, 5))))


class Block:
    """How the documents of a block are written."""

    def __init__(self, schema: dict[str, Any], dice: random.Random) -> None:
        self._schema = schema
        self._dice = dice
        self._complete = dice.random() < 0.5
        self._wrong = dice.choice((0.0, 0.0, 0.0, 0.01, 0.1))
        self._hostile = dice.choice((0.1, 0.5, 1.0))
        self._shuffled = dice.random() < 0.3
        self._escapes = dice.random() < (0.5 if self._complete else 0.1)
        spaces = ((",", ":"), (", ", ": "), (", ", ":"), (" ,", ": "), ("  ,  ", ":  "), (" , ", " : "))
        self._comma, self._colon = dice.choice(spaces)
        #: A few of the hostile values each: one that no block is regular with is not in every block.
        self._integers, self._fractions = dice.sample(_INTEGERS, 6), dice.sample(_FRACTIONS, 6)
        self._texts, self._times = dice.sample(_TEXTS, 6), dice.sample(_TIMES, 3)

    def documents(self, size: int, odd: float = 0.15) -> list[bytes]:
        """So many, and with some probability one that is another way."""
        texts = [self.document() for _ in range(size)]
        if self._dice.random() < odd:
            texts[self._dice.randrange(size)] = random_document(self._schema, self._dice)
        return texts

    def document(self) -> bytes:
        return self._object(self._schema["fields"]).encode("utf-8", "surrogatepass")

    def _value(self, kind: Any) -> str:
        dice = self._dice
        if dice.random() < self._wrong:
            return self._anything()
        if self._complete and dice.random() < 0.05:
            return "null"
        if isinstance(kind, str):
            return self._leaf(kind)
        if kind["type"] == "array":
            parts = [self._element(kind["elementType"]) for _ in range(dice.choice((0, 1, 2, 5)))]
            return "[" + self._comma.join(parts) + "]"
        return self._object(kind["fields"])

    def _element(self, kind: Any) -> str:
        return "null" if self._dice.random() < 0.1 else self._value(kind)

    def _object(self, fields: list[Any]) -> str:
        dice = self._dice
        chosen = fields if self._complete else [field for field in fields if dice.random() < 0.9]
        parts = [f"{self._name(field['name'])}{self._colon}{self._value(field['type'])}" for field in chosen]
        if self._complete and dice.random() < 0.3:
            name = dice.choice(("z", "", "A", "A2", "a ", "\0"))
            if name not in {field["name"] for field in fields}:
                parts += [f"{self._name(name)}{self._colon}{self._anything()}" for _ in range(dice.randint(1, 2))]
        if parts and dice.random() < self._wrong / 4:
            parts.append(dice.choice(parts))
        if self._shuffled:
            dice.shuffle(parts)
        return "{" + self._comma.join(parts) + "}"

    def _anything(self) -> str:
        if self._dice.random() < self._wrong:
            return self._dice.choice(_NONE)
        texts = [self._text(text) for text in (*self._texts, *self._times)]
        words = ["true", "false", "null"]
        return self._dice.choice(self._dice.choice((self._integers, self._fractions, texts, _CONTAINERS, words)))

    def _leaf(self, kind: str) -> str:
        dice = self._dice
        hostile = dice.random() < self._hostile
        if kind == "boolean":
            return dice.choice(("true", "false"))
        if kind in ("byte", "short", "integer", "long"):
            limit = {"byte": 7, "short": 15, "integer": 31, "long": 63}[kind]
            fitting = [number for number in (*self._integers, "0", "-0") if -(2**limit) <= int(number) < 2**limit]
            return dice.choice(fitting) if hostile else str(dice.randint(-(2**limit), 2**limit - 1))
        if kind == "double":
            number = dice.uniform(-1, 1) * 10.0 ** dice.randint(-320, 308)
            odd = (*self._fractions, *self._integers)
            return dice.choice(odd if hostile else (repr(number), f"{number:.25e}"))
        if kind == "string":
            return self._text(dice.choice(self._texts) if hostile else f"name {dice.randrange(1000)}")
        return self._text(dice.choice(self._times) if hostile and dice.random() < 0.3 else self._time(kind))

    def _time(self, kind: str) -> str:
        dice = self._dice
        day = f"{dice.randint(1999, 2030)}-{dice.randint(1, 12):02d}-{dice.randint(1, 29):02d}"
        ends = {"date": "", "timestamp": f"T{dice.randrange(24):02d}:00:59.{dice.randrange(1000):03d}Z"}
        return day + ends.get(kind, f" {dice.randrange(24):02d}:59:01")

    def _name(self, name: str) -> str:
        return self._text(name) if self._escapes else json.dumps(name, ensure_ascii=False)

    def _text(self, text: str) -> str:
        """As JSON. Without escapes, letters that need them are left out."""
        if self._escapes:
            shown = json.dumps(text, ensure_ascii=self._dice.random() < 0.5)
            return shown.replace("/", "\\/") if self._dice.random() < 0.1 else shown
        return '"' + "".join(letter for letter in text if letter >= " " and letter not in '"\\') + '"'


class NotRegular(Exception):
    """A document that must not be read the regular way."""


class _Number(str):
    __slots__ = ()


def meaning(kind: Any, document: bytes) -> Any:
    """What a document is read as the regular way, times as texts; `NotRegular` if it must not be.

    Of numbers Python has the same opinion as Spark, and it takes nothing but JSON.
    """
    try:
        value = json.loads(document, parse_float=_Number, parse_int=_Number, parse_constant=_refuse)
    except ValueError as error:
        raise NotRegular from error
    return _meaning(kind, value, listed=False)


def _refuse(word: str) -> Any:
    raise NotRegular(word)


def _meaning(kind: Any, value: Any, *, listed: bool) -> Any:
    if value is None:
        return None
    if isinstance(kind, str):
        return _leaf_meaning(kind, value, listed=listed)
    if kind["type"] == "array" and isinstance(value, list):
        return [_meaning(kind["elementType"], element, listed=True) for element in value]
    if kind["type"] == "struct" and isinstance(value, dict):
        return {f["name"]: _meaning(f["type"], value.get(f["name"]), listed=listed) for f in kind["fields"]}
    raise NotRegular(kind, value)


def _leaf_meaning(kind: str, value: Any, *, listed: bool) -> Any:
    sizes = {"byte": 7, "short": 15, "integer": 31, "long": 63}
    if isinstance(value, _Number):
        if kind == "double":
            return 0.0 if value == "-0" else float(value)
        if kind in sizes and set(value) <= set("-0123456789") and -(2 ** sizes[kind]) <= int(value) < 2 ** sizes[kind]:
            return int(value)
    elif isinstance(value, bool):
        if kind == "boolean":
            return value
    elif isinstance(value, str):
        if kind in ("string", "date", "timestamp", "timestamp_ntz"):
            return value
        if not listed and not (kind == "double" and value[:1] in tuple("NI+-")):
            return None  # as any text where there should be a number or a truth value
    raise NotRegular(kind, value)
