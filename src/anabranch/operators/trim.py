"""Text without blanks around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from anabranch.operators.columns import column, known_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def trim(df: DataFrame, columns: Sequence[str] | None = None, empty_to_null: bool = True) -> DataFrame:
    """Columns of text without blanks at their ends, all of them or those in `columns`; what is then empty is null."""
    chosen = df.columns if columns is None else known_columns("trim", df, columns)
    texts = {f.name for f in df.schema.fields if isinstance(f.dataType, StringType) and f.name in chosen}

    def trimmed(name: str) -> Column:
        text = F.trim(column(name))
        return (F.when(text != "", text) if empty_to_null else text).alias(name)

    return df.select(*(trimmed(c) if c in texts else column(c) for c in df.columns))
