"""A row for each element of an array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from anabranch.errors import UserCodeError
from anabranch.operators.columns import column, known_columns, refuse_doubles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def explode(df: DataFrame, column: str, outer: bool = False, prefix: str = "") -> DataFrame:
    """The other columns and, for each element of the array, its fields; or the element itself if it is no struct.

    With `outer`, a row whose array is empty or null stays, with nulls; without, it is left out. `prefix` stands before
    the names of the fields.
    """
    (name,) = known_columns("explode", df, [column])
    kind = df.schema[name].dataType
    if not isinstance(kind, ArrayType):
        raise UserCodeError(
            "EXPLODE_NO_ARRAY",
            f'explode names "{name}", which is {kind.simpleString()} and no array',
            hint="name a column that holds an array",
        )
    return _exploded(df, name, kind, outer, prefix)


def _exploded(df: DataFrame, name: str, kind: ArrayType, outer: bool, prefix: str) -> DataFrame:
    others = [c for c in df.columns if c != name]
    generate = F.explode_outer if outer else F.explode
    rows = df.select(*(column(c) for c in others), generate(column(name)).alias(name))
    if not isinstance(kind.elementType, StructType):
        return rows
    inside = kind.elementType.fieldNames()
    refuse_doubles("explode", [*((c, c) for c in others), *((f"{name}.{f}", prefix + f) for f in inside)])
    return rows.select(*(column(c) for c in others), *(column(name, f).alias(prefix + f) for f in inside))
