"""Structs and arrays."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.native.expressions_sql import (
    ORDERED,
    Entry,
    Of,
    constant_text,
    decimal_of,
    either,
    identifier,
    sql_type,
    text,
    unknown,
    unless,
    when,
    without_zone,
)
from anabranch.native.tree import Compiled, Expr


def _field(expr: Expr, of: Of) -> Compiled:
    sql_type(expr.children[0].type)
    child = of(expr.children[0])
    return Compiled(without_zone(expr.type, f"struct_extract({child.sql}, {text(expr.name)})"), child.doubt)


def _fields_of_each(expr: Expr, of: Of) -> Compiled:
    sql_type(expr.children[0].type)
    child = of(expr.children[0])
    return Compiled(f"list_transform({child.sql}, lambda e: struct_extract(e, {text(expr.name)}))", child.doubt)


def _named_struct(expr: Expr, of: Of) -> Compiled:
    sql_type(expr.type)
    names = [constant_text(child, "a field's name") for child in expr.children[::2]]
    values = [of(child) for child in expr.children[1::2]]
    fields = ", ".join(f"{identifier(name)} := {value.sql}" for name, value in zip(names, values, strict=True))
    return Compiled(f"CAST(struct_pack({fields}) AS {sql_type(expr.type)})", either(*(one.doubt for one in values)))


def _array(expr: Expr, of: Of) -> Compiled:
    values = [of(child) for child in expr.children]
    listed = ", ".join(one.sql for one in values)
    return Compiled(f"CAST([{listed}] AS {sql_type(expr.type)})", either(*(one.doubt for one in values)))


def _size(expr: Expr, of: Of) -> Compiled:
    if not expr.children[0].type.startswith("array<"):
        raise unknown(expr)
    child = of(expr.children[0])
    sql = f"CAST(len({child.sql}) AS INTEGER)"
    return Compiled(f"COALESCE({sql}, -1)" if expr.detail.get("of null") == "-1" else sql, child.doubt)


def _element(first: int) -> Entry:
    """The element at a place; `first` is the place of the first one. Spark raises of others, or gives null."""

    def entry(expr: Expr, of: Of) -> Compiled:
        array, place = expr.children[:2]
        if not array.type.startswith("array<") or place.type not in ("tinyint", "smallint", "int") or expr.children[2:]:
            raise unknown(expr)
        values, at = of(array), of(place)
        there = f"CAST({at.sql} AS BIGINT)"
        number = f"({there} + 1)" if first == 0 else there
        least = "0" if first == 0 else f"-len({values.sql})"
        largest = f"len({values.sql})" if expr.detail.get("fails") == "true" else "2147483647"
        found = f"({number} BETWEEN {least} AND {largest} AND {number} <> 0)"
        value = without_zone(expr.type, f"({values.sql})[{number}]")
        # Of an array without nulls, Spark's generated code takes a null place for -1, and raises.
        nowhere = f"({at.sql} IS NULL)" if place.kind != "Literal" else None
        return Compiled(value, either(values.doubt, at.doubt, nowhere, unless(found)))

    return entry


def _contains(expr: Expr, of: Of) -> Compiled:
    array, value = expr.children
    if array.type != f"array<{value.type}>" or (value.type not in ORDERED and not decimal_of(value.type)):
        raise unknown(expr)
    values, one = of(array), of(value)
    found = f"list_contains({values.sql}, {one.sql})"
    # Null, where it might have been the null element.
    open_question = when(f"(NOT {found} AND list_count({values.sql}) < len({values.sql}))")
    return Compiled(found, either(values.doubt, one.doubt, open_question))


NESTED: Mapping[str, Entry] = {
    "GetStructField": _field,
    "GetArrayStructFields": _fields_of_each,
    "CreateNamedStruct": _named_struct,
    "CreateArray": _array,
    "Size": _size,
    "GetArrayItem": _element(0),
    "ElementAt": _element(1),
    "ArrayContains": _contains,
}
