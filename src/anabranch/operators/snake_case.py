"""Names in snake_case, of columns and of the fields inside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from anabranch.operators.columns import column, refuse_doubles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def snake_case(df: DataFrame) -> DataFrame:
    """Every column and nested field by its name in snake_case; two that become one are an error."""
    refuse_doubles("snake_case", ((name, in_snake_case(name)) for name in df.columns))
    columns = []
    for field in df.schema.fields:
        renamed = _renamed(field.dataType, field.name)
        found = column(field.name)
        # Structs are taken over by position, so a cast to the same types under other names renames.
        found = found if renamed == field.dataType else found.cast(renamed)
        columns.append(found.alias(in_snake_case(field.name)))
    return df.select(*columns)


def in_snake_case(name: str) -> str:
    """A name in snake_case; what it begins with stays, so that `_meta` is still told from `meta`.

    >>> [in_snake_case(n) for n in ("orderId", "HTTPStatus", "Order ID", "unit-price (EUR)", "_meta", "line2Total")]
    ['order_id', 'http_status', 'order_id', 'unit_price_eur', '_meta', 'line2_total']
    """
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])|([a-z0-9])([A-Z])", r"\1\3_\2\4", name)
    words = re.sub(r"[^0-9A-Za-z]+", "_", spaced).rstrip("_").lower()
    return words if name.startswith("_") or not words.startswith("_") else words.lstrip("_") or words


def _renamed(kind: DataType, path: str) -> DataType:
    if isinstance(kind, StructType):
        refuse_doubles("snake_case", ((f"{path}.{f.name}", in_snake_case(f.name)) for f in kind.fields))
        return StructType(
            [
                StructField(in_snake_case(f.name), _renamed(f.dataType, f"{path}.{f.name}"), f.nullable, f.metadata)
                for f in kind.fields
            ]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_renamed(kind.elementType, path), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(_renamed(kind.keyType, path), _renamed(kind.valueType, path), kind.valueContainsNull)
    return kind
