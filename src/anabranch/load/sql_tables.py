"""Other names for the tables that a SQL query reads; every other character of it stays as it is.

A column may be named with its table, as in `silver.orders.id` and `orders.id`. So a table with a new name gets its old
one as an alias where the query needs it, and columns lose what stands before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anabranch.load.sql_names import NOT_AN_ALIAS, Place, Token, table_places

#: What may stand between a table and its alias, in parentheses.
_BEFORE_ALIAS = ("with", "tablesample", "repeatable")
_Edit = tuple[tuple[int, int], str]


@dataclass(frozen=True, slots=True)
class _Renamed:
    """A table that gets a new name; `alias_at` is the token after which an alias may stand, None if one does."""

    place: Place
    to: str
    parts: list[str]  # of the old name, in small letters
    last: str  # the last of them as it is written
    alias_at: int | None


def with_tables(query: str, new_name: Callable[[str], str | None]) -> str:
    """The query with what `new_name` gives in place of each table it reads; None leaves one alone.

    >>> views = {"silver.orders": "silver__orders", "main.sales.items": "items"}
    >>> with_tables("SELECT o.id FROM silver.orders o JOIN STREAM(main.sales.items)", views.get)
    'SELECT o.id FROM silver__orders o JOIN STREAM(items)'
    >>> with_tables("SELECT silver.orders.id, orders.at FROM silver.orders", views.get)
    'SELECT orders.id, orders.at FROM silver__orders AS orders'
    """
    tokens, places = table_places(query)
    renamed = [_renamed(tokens, place, to) for place in places if (to := new_name(place.name)) is not None]
    if not renamed:
        return query
    edits = {(tokens[r.place.first].start, tokens[r.place.end - 1].end): r.to for r in renamed}
    columns = _columns(tokens, places)
    for one in renamed:
        edits.update(_keeping_columns(tokens, one, renamed, columns))
    for (start, end), text in sorted(edits.items(), reverse=True):
        query = query[:start] + text + query[end:]
    return query


def _renamed(tokens: list[Token], place: Place, to: str) -> _Renamed:
    end = place.end
    if _keys(tokens, place.first - 2, place.first) == ["stream", "("] and _keys(tokens, end, end + 1) == [")"]:
        end += 1
    while end + 1 < len(tokens) and tokens[end].word in _BEFORE_ALIAS and tokens[end + 1].word == "(":
        end = _after_parenthesis(tokens, end + 1)
    after = tokens[end] if end < len(tokens) else None
    has_alias = after is not None and (
        after.word == "as" or (after.kind in ("word", "quoted") and after.word not in NOT_AN_ALIAS)
    )
    by_text = tokens[place.end - 1].word == ")"  # IDENTIFIER('silver.orders')
    last = place.name.rpartition(".")[2] if by_text else tokens[place.end - 1].text
    return _Renamed(place, to, _parts(place.name), last, None if has_alias else end - 1)


def _keeping_columns(
    tokens: list[Token], one: _Renamed, others: list[_Renamed], columns: list[tuple[int, list[str]]]
) -> Iterator[_Edit]:
    """Columns that are named with a table, and the alias that these need."""
    if one.alias_at is None:
        return
    twins = [o for o in others if o.parts[-1] == one.parts[-1] and o.to != one.to and o.alias_at is not None]
    longer = [
        (at, found)
        for at, parts in columns
        # What may be the column of either is left for Spark to refuse.
        if (found := _prefix(parts, one.parts)) > 1 and not any(_prefix(parts, o.parts) == found for o in twins)
    ]
    # Two tables of the same name in one query are told apart by what stands before: by their new names then.
    by_new_name = bool(longer and twins)
    for at, found in longer:
        end = tokens[at + 2 * (found - 1)].end
        yield (tokens[at].start, end), one.to if by_new_name else one.last
    short = any(parts[0] == one.parts[-1] for _, parts in columns)
    if (longer or short) and not by_new_name and _bare(one.to) != one.parts[-1]:
        place = tokens[one.alias_at].end
        yield (place, place), f" AS {one.last}"


def _columns(tokens: list[Token], places: list[Place]) -> list[tuple[int, list[str]]]:
    """Names with dots that are not those of tables: where each begins, and its parts but the last."""
    inside = {at for place in places for at in range(place.first, place.end)}
    found, at = [], 0
    while at < len(tokens):
        start, parts = at, []
        while (
            at + 1 < len(tokens)
            and tokens[at].kind in ("word", "quoted")
            and tokens[at + 1].word == "."
            and at not in inside
        ):
            parts.append(_bare(tokens[at].text))
            at += 2
        if parts:
            found.append((start, parts))
        at += 1
    return found


def _prefix(parts: list[str], table: list[str]) -> int:
    """How many parts of a column's name are those of the table: all of them, or without the catalogue."""
    return next((size for size in range(len(table), 1, -1) if parts[:size] == table[-size:]), 0)


def _after_parenthesis(tokens: list[Token], at: int) -> int:
    depth = 0
    while at < len(tokens):
        depth += {"(": 1, ")": -1}.get(tokens[at].word, 0)
        at += 1
        if depth == 0:
            break
    return at


def _keys(tokens: list[Token], start: int, end: int) -> list[str]:
    return [token.word for token in tokens[max(start, 0) : end]]


def _parts(name: str) -> list[str]:
    return name.replace("`", "").lower().split(".")


def _bare(name: str) -> str:
    return name.strip('`"').lower()
