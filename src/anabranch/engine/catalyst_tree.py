"""An expression of Catalyst's, resolved, as the plain tree of `native.tree`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from anabranch.engine.catalyst_nodes import Node, children_of, identity, items, kind
from anabranch.native.tree import Expr


def tree(node: Node, types: dict[int, str] | None = None) -> Expr:
    """An expression as a tree; what a node stands for takes its place, and names of results are left out.

    `types` are those of attributes that were met before: a record with many fields is an attribute of each of them, and
    it takes long to say its type.
    """
    # Each call into the JVM costs: what holds for the root need not be asked of what is below.
    return _Reader(bool(node.deterministic()), {} if types is None else types).read(node, {})


class _Reader:
    def __init__(self, deterministic: bool, types: dict[int, str]) -> None:
        self._deterministic = deterministic
        self._types = types

    def read(self, node: Node, given: Mapping[str, Expr]) -> Expr:
        name = kind(node)
        if name == "AttributeReference":
            number = identity(node)
            if number not in self._types:
                self._types[number] = _type(node)
            return Expr(name, self._types[number], name=str(number))
        if name == "Alias":
            return self.read(node.child(), given)
        if name == "CommonExpressionRef":
            return given[node.id().toString()]
        if name == "With":
            before = []
            for one in items(node.defs()):
                before.append(self.read(one.child(), given))
                given = {**given, one.id().toString(): before[-1]}
            found = self.read(node.child(), given)
            return found if found.kind == "Literal" else Expr(name, found.type, (found, *before))
        patterns = "" if name in _PLAIN else node.nodePatterns().toString()
        if "RUNTIME_REPLACEABLE" in patterns:
            return self.read(node.replacement(), given)
        children = tuple(self.read(child, given) for child in children_of(node))
        found = _described(node, name, children)
        if children and all(child.kind == "Literal" or "constant" in child.detail for child in children):
            found = _constant(node, found)
        if "CURRENT_LIKE" in patterns:
            return replace(found, detail={**found.detail, "never": "asks for the current time"})
        if not self._deterministic and name not in _PLAIN and not node.deterministic():
            return replace(found, detail={**found.detail, "never": "is not deterministic"})
        return found


def _constant(node: Node, found: Expr) -> Expr:
    """What Spark makes of a call whose arguments are constants, as it would when it plans the query."""
    if not node.foldable() or not node.deterministic():
        return found
    try:
        evaluated = node.eval(None)
    except (Py4JJavaError, PySparkException):
        # Of some of these Spark raises where the call is reached, of others whatever the rows are, when it optimizes.
        return replace(found, detail={**found.detail, "never": f"calls `{found.kind}` of constants, which may raise"})
    value, known = _value(evaluated, found.type)
    if value is None and found.kind == "Cast" and found.type in _TIMES and found.children[0].value is not None:
        # Before it makes null of it, Spark's optimizer takes "today", "now" and their kin for what they say.
        return replace(found, detail={**found.detail, "never": f"casts a word to {found.type}, which may be a time"})
    if known:
        return Expr("Literal", found.type, value=value)
    return replace(found, detail={**found.detail, "constant": "of a type that is not known"})


def _described(node: Node, name: str, children: tuple[Expr, ...]) -> Expr:
    type_ = _type(node)
    if name == "Literal":
        value, known = _value(node.value(), type_)
        return Expr(name, type_, value=value, detail={} if known else {"value": "not known"})
    if name == "InSet":
        found = [_value(one, children[0].type) for one in items(node.hset().toSeq())]
        among = [Expr("Literal", children[0].type, value=v, detail={} if k else {"value": "?"}) for v, k in found]
        return Expr(name, type_, (*children, *among))
    field = _FIELD[name](node) if name in _FIELD else ""
    detail = _DETAILS[name](node) if name in _DETAILS else {}
    return Expr(name, type_, children, name=field, detail=detail)


def _type(node: Node) -> str:
    """The catalog string of a type; not of a struct with a name by which the string could be misread."""
    data_type = node.dataType()
    shown: str = data_type.catalogString()
    if "struct<" in shown and any(set(name) & set(":,<>") for name in _names(json.loads(data_type.json()))):
        return "struct with signs in its names"
    return shown


def _names(type_: Any) -> list[str]:
    """The names of all fields in a type, which is given as in Spark's JSON."""
    if not isinstance(type_, dict):
        return []
    inner = [type_.get(place) for place in ("elementType", "keyType", "valueType")]
    fields = type_.get("fields", [])
    names = [field["name"] for field in fields]
    return names + [name for one in [*inner, *(field["type"] for field in fields)] for name in _names(one)]


def _value(value: Any, type_: str) -> tuple[object, bool]:
    """What a literal holds, and whether Python has it: dates are days, timestamps microseconds since 1970."""
    if value is None or isinstance(value, bool):
        return value, True
    if type_ in ("tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz"):
        return int(value), True
    if type_.startswith("interval ") and not ("year" in type_ or "month" in type_):
        return int(value), True  # microseconds
    if type_ in ("float", "double"):
        return float(value), True
    if type_ == "string":
        text = value if isinstance(value, str) else value.toString()
        return (None, False) if "\ufffd" in text else (text, True)  # may stand for bytes that are no UTF-8
    if type_.startswith("decimal("):
        return Decimal(value.toString()), True
    return None, False


def _option(option: Any) -> str:
    return str(option.get()) if option.isDefined() else ""


def _zone(node: Node) -> dict[str, str]:
    return {"zone": _option(node.timeZoneId())}


def _cast(node: Node) -> dict[str, str]:
    return {**_zone(node), "mode": node.evalMode().toString()}


def _mode(node: Node) -> dict[str, str]:
    return {"mode": node.evalMode().toString()}


def _fails(node: Node) -> dict[str, str]:
    return {"fails": str(node.failOnError()).lower()}


def _json(node: Node) -> dict[str, str]:
    pairs = items(node.options().toSeq())
    options = {pair._1(): pair._2() for pair in pairs}  # noqa: SLF001
    return {**_zone(node), "schema": node.schema().json(), "options": json.dumps(options, sort_keys=True)}


def _size(node: Node) -> dict[str, str]:
    return {"of null": "-1"} if node.legacySizeOfNull() else {}


def _least(node: Node) -> dict[str, str]:
    return {"least": str(node.n())}


def _like(node: Node) -> dict[str, str]:
    return {"escape": str(node.escapeChar())}


_ZONED = (
    "Hour",
    "Minute",
    "Second",
    "TruncTimestamp",
    "UnixTimestamp",
    "ToUnixTimestamp",
    "GetTimestamp",
    "TimestampAddInterval",
)
_TIMES = ("date", "timestamp", "timestamp_ntz")
_ARITHMETIC = ["Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder", "Pmod"]

_DETAILS: Mapping[str, Callable[[Node], dict[str, str]]] = {
    "Cast": _cast,
    **dict.fromkeys(_ARITHMETIC, _mode),
    **dict.fromkeys(("UnaryMinus", "Abs", "GetArrayItem", "ElementAt"), _fails),
    **dict.fromkeys((*_ZONED, "DateFormatClass", "FromUnixTime", "StructsToJson"), _zone),
    "JsonToStructs": _json,
    "Size": _size,
    "Like": _like,
    "AtLeastNNonNulls": _least,
}

_FIELD: Mapping[str, Callable[[Node], str]] = {
    "GetStructField": lambda node: str(node.childSchema().apply(node.ordinal()).name()),
    "GetArrayStructFields": lambda node: str(node.field().name()),
}

#: Kinds that stand for nothing else, which then need not be asked.
_PLAIN = frozenset(
    [*_DETAILS, *_FIELD, "AttributeReference", "Literal", "And", "Or", "Not", "EqualTo", "If", "CaseWhen", "Coalesce"]
)
