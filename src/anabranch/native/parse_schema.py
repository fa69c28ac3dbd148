"""Which schemas and options of `from_json` can be read here, and the types of Arrow they are read with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import available_timezones

import pyarrow as pa

#: Spark's types that are read as they are: what Arrow's reader refuses for them, Spark need not, but never vice versa.
_PLAIN = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
}

#: Read as strings, then checked and cast.
_TIMES = {"date": pa.date32(), "timestamp": pa.timestamp("us", tz="UTC"), "timestamp_ntz": pa.timestamp("us")}

#: Options (lower case) that say which odd documents are read, and how bad records show: all of these are doubted.
_BOOLEAN_OPTIONS = {
    "allowcomments",
    "allowunquotedfieldnames",
    "allowsinglequotes",
    "allownumericleadingzeros",
    "allownonnumericnumbers",
    "allowbackslashescapinganycharacter",
    "allowunquotedcontrolchars",
    "enabledatetimeparsingfallback",  # of values that are not in a plain form
    # What follows is for guessing a schema, for writing or for reading files, and not looked at by `from_json`.
    "primitivesasstring",
    "prefersdecimal",
    "dropfieldifallnull",
    "ignorenullfields",
    "multiline",
    "pretty",
    "infertimestamp",
    "writenonasciicharacterascodepoint",
}

#: Formats matter only to a schema that has fields of the type.
_FORMATS = {"dateformat": "date", "timestampformat": "timestamp", "timestampntzformat": "timestamp_ntz"}

_UTC = {"UTC", "Z", "Etc/UTC", "GMT", "Etc/GMT", "+00:00", "Zulu", "Etc/Zulu", "UCT", "Etc/UCT"}

#: Metadata that changes what a type or a missing field means.
_TELLING_METADATA = ("EXISTS_DEFAULT", "CURRENT_DEFAULT", "__")


class Refused(Exception):
    """Why a schema or its options cannot be read natively."""


@dataclass(frozen=True, slots=True)
class Node:
    """A field of the schema, the element of an array, or (without a name) the record itself.

    `read` is the type that the reader is asked for, `type` the one that Spark's own export to Arrow has.
    """

    name: str
    kind: str
    read: pa.DataType
    type: pa.DataType
    children: tuple[Node, ...] = ()


def options_of(options: Mapping[str, str]) -> dict[str, str]:
    """The options as Spark looks them up: names in any case."""
    return {name.lower(): value for name, value in options.items()}


def corrupt_column(options: Mapping[str, str]) -> str:
    """The name of the field that takes the text of bad records."""
    return options_of(options).get("columnnameofcorruptrecord", "_corrupt_record")


def is_utc(options: Mapping[str, str], zone: str) -> bool:
    """Whether timestamps without a zone are in UTC."""
    return options_of(options).get("timezone", zone) in _UTC


def is_zone(name: str) -> bool:
    """Whether a name is certain to be that of a time zone: of another one Spark may raise.

    >>> is_zone("Europe/Berlin"), is_zone("+00:00"), is_zone("Nonsense")
    (True, True, False)
    """
    return name in _UTC or ("/" in name and name in available_timezones())


def read_schema(schema: str, options: Mapping[str, str]) -> Node:
    """The tree of a schema; `Refused` if there is something in it, or in the options, that is not known here.

    >>> read_schema('{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}', {}).type
    StructType(struct<a: int64>)
    """
    declared = json.loads(schema)
    if not isinstance(declared, dict) or declared.get("type") != "struct":
        raise Refused("the schema is not a struct")
    corrupt = corrupt_column(options)
    for field in declared["fields"]:
        if field["name"] == corrupt and (field["type"] != "string" or not field["nullable"]):
            raise Refused(f"the field {corrupt} for bad records is not a nullable string")
    tree = _node("", declared)
    if all(child.name == corrupt for child in tree.children):
        raise Refused("there is no field to read")
    _check_options(options_of(options), {node.kind for node in _all(tree)})
    return tree


def _node(name: str, declared: Any) -> Node:
    if isinstance(declared, str):
        if declared in _PLAIN:
            return Node(name, declared, _PLAIN[declared], _PLAIN[declared])
        if declared in _TIMES:
            return Node(name, declared, pa.string(), _TIMES[declared])
        if found := re.fullmatch(r"decimal\((\d+),(\d+)\)", declared):
            return _decimal(name, declared, int(found[1]), int(found[2]))
        raise Refused(f"type {declared} of {name or 'the record'} is not read natively")
    kind = declared["type"]
    if kind == "array":
        element = _node("element", declared["elementType"])
        read, result = (pa.field("element", of) for of in (element.read, element.type))
        return Node(name, "array", pa.list_(read), pa.list_(result), (element,))
    if kind == "struct":
        return _struct(name, declared["fields"])
    raise Refused(f"type {kind} of {name or 'the record'} is not read natively")


def _decimal(name: str, declared: str, precision: int, scale: int) -> Node:
    """Read as a wider type: the reader does not look whether a number still fits when it has its scale.

    It takes 38 digits at the most, and has room for 38 zeros behind them.
    """
    if not 0 <= scale <= precision <= 38:
        raise Refused(f"type {declared} of {name or 'the record'} is not read natively")
    return Node(name, declared, pa.decimal256(38, scale), pa.decimal128(precision, scale))


def _struct(name: str, fields: list[Any]) -> Node:
    if not fields:
        raise Refused(f"{name or 'the record'} is a struct without fields")
    seen: set[str] = set()
    for field in fields:
        if field["name"].lower() in seen:
            raise Refused(f"two fields are named {field['name']}, up to upper and lower case")
        seen.add(field["name"].lower())
        if any(key.startswith(_TELLING_METADATA) for key in field.get("metadata", {})):
            raise Refused(f"the field {field['name']} has a default, a collation or a length")
    children = tuple(_node(field["name"], field["type"]) for field in fields)
    read = pa.struct([pa.field(child.name, child.read) for child in children])
    return Node(name, "struct", read, pa.struct([pa.field(child.name, child.type) for child in children]), children)


def _check_options(options: Mapping[str, str], kinds: set[str]) -> None:
    for name, value in options.items():
        if name in _BOOLEAN_OPTIONS:
            if value.lower() not in ("true", "false"):
                raise Refused(f"option {name} is neither true nor false")
        elif name == "mode":
            if value.upper() not in ("PERMISSIVE", "FAILFAST"):
                raise Refused(f"mode {value} is not one of from_json")
        elif name in _FORMATS:
            if _FORMATS[name] in kinds:
                raise Refused(f"option {name} is set")
        elif name == "timezone":
            if not is_zone(value):
                raise Refused(f"time zone {value} is not known")
        elif name != "columnnameofcorruptrecord":
            raise Refused(f"option {name} is not known")


def _all(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _all(child)
