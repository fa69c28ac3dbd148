"""Structs, however deep, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from anabranch.operators.columns import column, known_columns, refuse_doubles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_Path = tuple[str, ...]


def flatten(df: DataFrame, separator: str = "_", columns: Sequence[str] | None = None) -> DataFrame:
    """Each field inside a struct as a column named by its path; arrays and maps stay as they are.

    `columns` are those to flatten, all without it.
    """
    chosen = set(df.columns if columns is None else known_columns("flatten", df, columns))
    paths = list(_paths(df.schema, (), chosen))
    refuse_doubles("flatten", ((".".join(path), separator.join(path)) for path in paths))
    return df.select(*(column(*path).alias(separator.join(path)) for path in paths))


def _paths(schema: StructType, above: _Path, chosen: set[str] | None) -> Iterator[_Path]:
    for field in schema.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType) and (chosen is None or field.name in chosen):
            yield from _paths(field.dataType, path, None)
        else:
            yield path
