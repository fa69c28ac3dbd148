"""Schemas of entities as DDL: from text, from Spark's JSON, or from a list of fields. Needs no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_SIMPLE = {"integer": "INT", "long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}


def as_ddl_text(value: Any) -> str:
    """DDL of what a file says under `schema`; ValueError says what is wrong.

    >>> as_ddl_text({"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": False}]})
    '`id` BIGINT NOT NULL'
    >>> as_ddl_text(" id BIGINT ")
    'id BIGINT'
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ValueError(f"is not JSON: {error}") from error
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, Mapping) and value.get("type") == "struct":
        return _columns(value, " ")
    raise ValueError("must be DDL text, or a struct as Spark writes it in JSON")


def fields_as_ddl(fields: Any) -> str:
    """DDL of columns given one by one, each by its type or with more about it; ValueError says what is wrong.

    >>> fields_as_ddl({"id": {"type": "bigint", "nullable": False}, "name": "string"})
    '`id` bigint NOT NULL, `name` string'
    """
    if not isinstance(fields, Mapping) or not fields:
        raise ValueError("must be a mapping of names to types")
    parts = []
    for name, said in fields.items():
        more = said if isinstance(said, Mapping) else {"type": said}
        if unknown := sorted(map(str, more.keys() - {"type", "nullable", "description"})):
            raise ValueError(f"column {name} has an unknown field: {', '.join(unknown)}")
        if not isinstance(more.get("type"), str) or not isinstance(more.get("nullable", True), bool):
            raise ValueError(f"column {name} has no type that can be read")
        needed = "" if more.get("nullable", True) else " NOT NULL"
        parts.append(f"{_quoted(str(name))} {more['type']}{needed}{_comment(more.get('description'))}")
    return ", ".join(parts)


def _columns(struct: Mapping[str, Any], between: str) -> str:
    fields = struct.get("fields")
    if not isinstance(fields, list) or not all(isinstance(f, Mapping) and "name" in f and "type" in f for f in fields):
        raise ValueError("has a struct whose fields lack a name or a type")
    return ", ".join(_field(field, between) for field in fields)


def _field(field: Mapping[str, Any], between: str) -> str:
    needed = "" if field.get("nullable", True) else " NOT NULL"
    comment = (field.get("metadata") or {}).get("comment")
    return f"{_quoted(str(field['name']))}{between}{_type(field['type'])}{needed}{_comment(comment)}"


def _type(kind: Any) -> str:
    if isinstance(kind, str):
        return _SIMPLE.get(kind, kind.upper())
    if isinstance(kind, Mapping):
        if kind.get("type") == "struct":
            return f"STRUCT<{_columns(kind, ': ')}>"
        if kind.get("type") == "array" and "elementType" in kind:
            return f"ARRAY<{_type(kind['elementType'])}>"
        if kind.get("type") == "map" and "keyType" in kind and "valueType" in kind:
            return f"MAP<{_type(kind['keyType'])}, {_type(kind['valueType'])}>"
    raise ValueError(f"has a type that cannot be read: {kind!r}")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _comment(text: str | None) -> str:
    quoted = str(text).replace("\\", "\\\\").replace("'", "\\'")
    return f" COMMENT '{quoted}'" if text else ""
