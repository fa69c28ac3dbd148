"""Columns by name: quoted, nested, and never two of one name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from anabranch.errors import UserCodeError, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def column(*path: str) -> Column:
    """A column, or a field inside of it, whatever characters are in the names."""
    first, *rest = path
    found = F.col(quoted(first))
    for name in rest:
        found = found.getField(name)
    return found


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return f"`{name.replace('`', '``')}`"


def refuse_doubles(what: str, named: Iterable[tuple[str, str]]) -> None:
    """An error if two things get one name; `named` are (where it comes from, its new name)."""
    seen: dict[str, str] = {}
    for origin, name in named:
        first = seen.setdefault(name.lower(), origin)
        if first != origin:
            raise UserCodeError(
                "COLUMNS_COLLIDE",
                f'{what} would give two columns the name "{name}": {first} and {origin}',
                hint="rename or drop one of them before",
            )


def known_columns(what: str, df: DataFrame, wanted: Sequence[str]) -> list[str]:
    """The columns as the frame spells them; an error for one that it does not have."""
    by_lower = {name.lower(): name for name in df.columns}
    for name in wanted:
        if name.lower() not in by_lower:
            hint = did_you_mean(name, df.columns) or f"columns there: {', '.join(df.columns)}"
            raise UserCodeError("COLUMN_UNKNOWN", f'{what} names "{name}", which is no column here', hint=hint)
    return [by_lower[name.lower()] for name in wanted]
