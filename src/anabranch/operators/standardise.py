"""Text in one way of writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from anabranch.operators.columns import column, known_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def standardise(
    df: DataFrame,
    upper: Sequence[str] = (),
    lower: Sequence[str] = (),
    collapse: Sequence[str] = (),
    replace: Mapping[str, Mapping[str, str]] | None = None,
) -> DataFrame:
    """Columns in upper or lower case, with single spaces (`collapse`), or with some values replaced by others.

    Replacing comes last: `{"country": {"UK": "GB"}}` finds what is then there.
    """
    known = {
        what: set(known_columns("standardise", df, list(names)))
        for what, names in {"upper": upper, "lower": lower, "collapse": collapse, "replace": replace or {}}.items()
    }
    replaced = {name.lower(): values for name, values in (replace or {}).items()}

    def standard(name: str) -> Column:
        found = column(name)
        if name in known["collapse"]:
            found = F.regexp_replace(found, r"\s+", " ")
        if name in known["upper"]:
            found = F.upper(found)
        if name in known["lower"]:
            found = F.lower(found)
        if name in known["replace"]:
            found = _replaced(found, replaced[name.lower()])
        return found.alias(name)

    return df.select(*(standard(c) if any(c in names for names in known.values()) else column(c) for c in df.columns))


def _replaced(found: Column, values: Mapping[str, str]) -> Column:
    chosen = found
    for old, new in reversed(list(values.items())):
        chosen = F.when(found == old, F.lit(new)).otherwise(chosen)
    return chosen
