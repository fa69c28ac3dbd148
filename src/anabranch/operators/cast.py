"""Text to types, without a value lost in silence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from anabranch.core.origin import BEFORE_CAST
from anabranch.operators.columns import column, known_columns, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def cast(df: DataFrame, types: Mapping[str, str]) -> DataFrame:
    """Columns as other types; a value that cannot be is null, and stays in the column `_uncast_<name>`."""
    known = dict(zip(known_columns("cast", df, list(types)), types.values(), strict=True))
    columns = [F.expr(f"try_cast({quoted(c)} AS {known[c]})").alias(c) if c in known else column(c) for c in df.columns]
    return df.select(*columns, *(column(name).alias(BEFORE_CAST + name) for name in known))
