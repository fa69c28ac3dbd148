"""A declared schema as DDL text, without needing Spark to be there."""

from __future__ import annotations

from typing import Any

from anabranch.load.standin import StandIn


def as_ddl(schema: Any) -> str | None:
    """DDL text of `schema`: text as it is, a StructType written out, a stand-in (Spark is not there) as None.

    >>> as_ddl("id BIGINT, name STRING")
    'id BIGINT, name STRING'
    """
    if schema is None or isinstance(schema, StandIn):
        return None
    if isinstance(schema, str):
        return schema
    if not hasattr(schema, "fields"):
        raise TypeError(type(schema).__name__)
    return ", ".join(_field(field, " ") for field in schema.fields)


def _field(field: Any, between: str) -> str:
    name = field.name.replace("`", "``")
    needed = "" if field.nullable else " NOT NULL"
    comment = field.metadata.get("comment") if field.metadata else None
    quoted = str(comment).replace("\\", "\\\\").replace("'", "\\'")
    return f"`{name}`{between}{_type(field.dataType)}{needed}" + (f" COMMENT '{quoted}'" if comment else "")


def _type(kind: Any) -> str:
    if hasattr(kind, "fields"):
        return f"STRUCT<{', '.join(_field(field, ': ') for field in kind.fields)}>"
    if hasattr(kind, "elementType"):
        return f"ARRAY<{_type(kind.elementType)}>"
    if hasattr(kind, "keyType"):
        return f"MAP<{_type(kind.keyType)}, {_type(kind.valueType)}>"
    return str(kind.simpleString()).upper()
