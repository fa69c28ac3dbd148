"""Which documents made the reader give up: it names a column or a kind, not the documents.

The reader refuses a block for one document. Its message says what to look for; DuckDB looks for that in all documents
of the block at once. What this overlooks is found by halving (see `parse`), so nothing here has to be complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from anabranch.native.parse_schema import Node

_CHANGED = re.compile(r"Column\((.*)\) changed from ")
_TWICE = re.compile(r"Column\((.*)/[^/]*\) was specified twice")
_NOT_CONVERTED = re.compile(r"Failed to convert JSON to (int\d+), couldn't parse:(\S+)")


_NUMBERS = ("BIGINT", "UBIGINT", "HUGEINT", "UHUGEINT", "DOUBLE")
_INTEGERS = {"byte": "TINYINT", "short": "SMALLINT", "integer": "INTEGER", "long": "BIGINT"}
_EXPECTED = {"boolean": ("BOOLEAN",), "float": _NUMBERS, "double": _NUMBERS, "array": ("ARRAY",), "struct": ("OBJECT",)}

#: Names that stand between quotes in a path of DuckDB's as they are.
_SIMPLE_NAME = re.compile(r'[^"\\*\x00-\x1f]+')

_TWO_ALIKE = "len($x) <> len(list_distinct($x))"


@dataclass(frozen=True, slots=True)
class _Place:
    node: Node
    path: str
    many: bool


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """On `$x`: what a function of DuckDB gives at a path, or with `many` any of the values there; else the document.

    With a name, the condition is about the type or the size of a value, and the field of this name is at the path.
    """

    function: str
    path: str
    on_x: str
    many: bool
    name: str = ""
    kind: str = ""


#: A comma too many, which DuckDB lets pass: looked for in the quick way first.
_COMMA = Condition("", "", "contains($x, ',}') OR contains($x, ',]')", many=False)
_COMMA_AND_SPACE = Condition("", "", r"regexp_matches($x, ',\s*[}\]]')", many=False)
_TOO_BIG = Condition("", "", r"regexp_matches($x, '[eE]\+?\d{3}|\d{300}')", many=False)


class Misfits:
    """Conditions that find the documents behind an error of the reader."""

    def __init__(self, tree: Node) -> None:
        self._places = dict(_places(tree, "", "$", many=False))

    def conditions(self, error: str, tried: set[Condition]) -> set[Condition]:
        """True for the documents that may have caused it, and perhaps for others; without those that were tried."""
        return self._conditions(error, tried) - tried

    def _conditions(self, error: str, tried: set[Condition]) -> set[Condition]:
        if changed := _CHANGED.search(error):
            place = self._places.get(changed[1])
            return {_wrong_type(place)} if place else set()
        if twice := _TWICE.search(error):
            place = self._places.get(twice[1])
            return {Condition("json_keys", place.path, _TWO_ALIKE, place.many)} if place else set()
        if number := _NOT_CONVERTED.search(error):
            places = [place for place in self._places.values() if str(place.node.read) == number[1]]
            in_range = not number[2].lstrip("-").isdigit()
            return {_wrong_type(place) if in_range else _out_of_range(place) for place in places}
        if "decimal256" in error:
            return {_no_decimal(place) for place in self._places.values() if pa.types.is_decimal(place.node.read)}
        if "Number too big" in error:
            return {_TOO_BIG}
        return {_COMMA_AND_SPACE if _COMMA in tried else _COMMA}


def query(conditions: set[Condition], *, checked: bool = True) -> str:
    """Asks of each value of `batch` whether one of the conditions holds.

    A function that is given a list of paths reads each document once for all of them. It raises if one is not valid,
    so where this has not been `checked`, none holds for those.
    """
    batch = "batch" if checked else "(SELECT CASE WHEN json_valid(v) THEN v END AS v FROM batch)"
    columns = ["v"]
    tests = [condition.on_x.replace("$x", "v") for condition in conditions if not condition.function]
    conditions = {condition for condition in conditions if condition.function}
    for function in sorted({condition.function for condition in conditions}):
        single = sorted(c for c in conditions if c.function == function and not c.many)
        if single:
            paths = ", ".join(_quoted(condition.path) for condition in single)
            columns.append(f"{function}(v, [{paths}]) AS {function}_")
        for number, condition in enumerate(single, 1):
            tests.append(condition.on_x.replace("$x", f"{function}_[{number}]"))
    for number, condition in enumerate(sorted(c for c in conditions if c.many)):
        columns.append(f"{condition.function}(v, {_quoted(condition.path)}) AS many_{number}")
        tests.append(f"len(list_filter(many_{number}, lambda x: {condition.on_x.replace('$x', 'x')})) > 0")
    each = " OR ".join(f"coalesce({test}, false)" for test in tests)
    return f"SELECT {each} AS misfit FROM (SELECT {', '.join(columns)} FROM {batch})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _places(node: Node, shown: str, path: str, *, many: bool) -> Iterator[tuple[str, _Place]]:
    """By the names that the reader's messages have for them."""
    yield shown, _Place(node, path, many)
    for child in node.children:
        if node.kind == "array":
            yield from _places(child, f"{shown}/[]", f"{path}[*]", many=True)
        elif _SIMPLE_NAME.fullmatch(child.name):
            yield from _places(child, f"{shown}/{child.name}", f'{path}."{child.name}"', many=many)


def _wrong_type(place: _Place) -> Condition:
    kind = place.node.kind
    if pa.types.is_decimal(place.node.read):
        return Condition("json_type", place.path, f"$x NOT IN {(*_NUMBERS, 'VARCHAR', 'NULL')}", place.many)
    expected = (*_EXPECTED.get(kind, ("BIGINT", "UBIGINT") if kind in _INTEGERS else ("VARCHAR",)), "NULL")
    return Condition("json_type", place.path, f"$x NOT IN {expected}", place.many, place.node.name, kind)


def _no_decimal(place: _Place) -> Condition:
    """Too many digits before or behind the point, or not written plainly."""
    precision, scale = place.node.type.precision, place.node.type.scale
    fraction = rf"(\.\d{{1,{scale}}})?" if scale else ""
    plain = rf"-?\d{{1,{max(1, precision - scale)}}}{fraction}"
    on_x = f"$x IS NOT NULL AND NOT regexp_full_match($x, '{plain}')"
    return Condition("json_extract_string", place.path, on_x, place.many)


def _out_of_range(place: _Place) -> Condition:
    kind = _INTEGERS[place.node.kind]
    fits = f"regexp_matches($x, '[^0-9-]') OR TRY_CAST($x AS {kind}) IS NOT NULL"
    on_x = f"$x IS NOT NULL AND NOT ({fits})"
    return Condition("json_extract_string", place.path, on_x, place.many, place.node.name, place.node.kind)
