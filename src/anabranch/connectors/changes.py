"""What changes make of rows: the newest of each key, or its history.

DuckDB is asked which rows of an Arrow table those are; the rows themselves are taken from the table, so that no value
goes through another type. Sequences are compared as Spark compares them: null before all others.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from anabranch.core.changes import DELETES, END_AT, SEQUENCE, START_AT, TRUNCATES, Merge
from anabranch.core.names import quoted

_ROW = "__anabranch_row"
_SEQUENCE, _DELETES, _TRUNCATES = quoted(SEQUENCE), quoted(DELETES), quoted(TRUNCATES)  # as DuckDB reads them


@dataclass(frozen=True, slots=True)
class Replacement:
    """The rows of a table with these keys give way to `rows`; None stands for every row of the table."""

    keys: pa.Table | None
    rows: pa.Table


def table_schema(changes: pa.Schema, merge: Merge) -> pa.Schema:
    """The columns of the table that changes are applied to."""
    own = [f for f in changes if f.name not in (SEQUENCE, DELETES, TRUNCATES)]
    if merge.history:
        sequence = changes.field(SEQUENCE).type
        own += [pa.field(START_AT, sequence), pa.field(END_AT, sequence)]
    return pa.schema(own)


def replacement(merge: Merge, changes: pa.Table, log: Any, before: Any) -> Replacement:
    """What the changes of one epoch do to the table.

    `log` (a dataset) has all changes up to and with this epoch, `before` (None for none) those of the epochs before.
    """
    keys = distinct_keys(merge, changes)
    if TRUNCATES in changes.column_names and before is not None and _truncates(changes):
        every = log.to_table()
        return Replacement(None, newest(merge, filled(merge, _after_truncate(every))))
    if merge.history or merge.keep_when_null:
        events = filled(merge, _after_truncate(of_keys(merge, log, keys), log))
        return Replacement(keys, history(merge, events) if merge.history else newest(merge, events))
    changes = _after_truncate(changes, before)
    winners = _newest_rows(merge, changes)
    if before is not None:
        winners = newer_than(merge, winners, before)
    return Replacement(distinct_keys(merge, winners), _own(winners.filter(_not(winners[DELETES]))))


def distinct_keys(merge: Merge, changes: pa.Table) -> pa.Table:
    """The keys that occur."""
    return changes.select(list(merge.keys)).group_by(list(merge.keys)).aggregate([])


def newest(merge: Merge, events: pa.Table) -> pa.Table:
    """The row of each key that its newest change leaves.

    >>> events = pa.table({"id": [1, 1, 2], "v": ["b", "a", "x"], SEQUENCE: [2, 1, 5], DELETES: [False, False, True]})
    >>> newest(Merge(("id",)), events).to_pylist()
    [{'id': 1, 'v': 'b'}]
    """
    rows = _newest_rows(merge, events)
    return _own(rows.filter(_not(rows[DELETES])))


def newer_than(merge: Merge, winners: pa.Table, before: Any) -> pa.Table:
    """Those of the changes that are newer than every earlier change of their key."""
    found = _ask(
        f"""SELECT w.{_ROW} FROM winners w LEFT JOIN (
              SELECT {_names(merge.keys, "b")}, max(b.{_SEQUENCE}) AS newest, count(*) AS n
              FROM before b SEMI JOIN winners k ON {_same(merge.keys, "b", "k")} GROUP BY ALL) p
            ON {_same(merge.keys, "w", "p")}
            WHERE p.n IS NULL OR (p.newest IS NULL AND w.{_SEQUENCE} IS NOT NULL) OR w.{_SEQUENCE} > p.newest""",
        winners=_numbered(winners).select([_ROW, *merge.keys, SEQUENCE]),
        before=before,
    )
    return winners.take(found[_ROW])


def of_keys(merge: Merge, log: Any, keys: pa.Table) -> pa.Table:
    """Every change of these keys."""
    found = [with_keys(merge, pa.Table.from_batches([batch]), keys) for batch in log.to_batches() if batch.num_rows]
    return pa.concat_tables(found) if found else log.schema.empty_table()


def with_keys(merge: Merge, rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of these keys."""
    return _joined("SEMI", merge, rows, keys)


def without_keys(merge: Merge, rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have none of these keys."""
    return _joined("ANTI", merge, rows, keys)


def _joined(how: str, merge: Merge, rows: pa.Table, keys: pa.Table) -> pa.Table:
    found = _ask(
        f"SELECT r.{_ROW} FROM all_rows r {how} JOIN keys k ON {_same(merge.keys, 'r', 'k')} ORDER BY 1",
        all_rows=_numbered(rows).select([_ROW, *merge.keys]),
        keys=keys,
    )
    return rows if found.num_rows == rows.num_rows else rows.take(found[_ROW])


def filled(merge: Merge, events: pa.Table) -> pa.Table:
    """Changes in which a null that leaves a column as it is has the value the column had, back to the last delete.

    >>> events = pa.table({"id": [1, 1], "v": [None, "a"], SEQUENCE: [2, 1], DELETES: [False, False]})
    >>> filled(Merge(("id",), keep_when_null=("v",)), events)["v"].to_pylist()
    ['a', 'a']
    """
    if not merge.keep_when_null or not events.num_rows:
        return events
    order = f"ORDER BY {_SEQUENCE} NULLS FIRST, {_ROW}"
    lives = f"""SELECT *, sum({_DELETES}::INT) OVER (PARTITION BY {_names(merge.keys)} {order}) AS life FROM events"""
    sources = ", ".join(
        f"last_value(CASE WHEN {quoted(c)} IS NOT NULL AND NOT {_DELETES} THEN {_ROW} END IGNORE NULLS) OVER w "
        f"AS {quoted('from_' + c)}"
        for c in merge.keep_when_null
    )
    found = _ask(
        f"""SELECT {_ROW}, {sources} FROM ({lives})
            WINDOW w AS (PARTITION BY {_names(merge.keys)}, life {order} ROWS UNBOUNDED PRECEDING) ORDER BY {_ROW}""",
        events=_numbered(events),
    )
    for column in merge.keep_when_null:
        position = events.column_names.index(column)
        events = events.set_column(position, events.field(column), events[column].take(found["from_" + column]))
    return events


def history(merge: Merge, events: pa.Table) -> pa.Table:
    """The rows of each key with the sequences between which they were valid.

    >>> events = pa.table({"id": [1, 1, 1], "v": ["a", "b", None], SEQUENCE: [1, 3, 7], DELETES: [False, False, True]})
    >>> [tuple(r.values()) for r in history(Merge(("id",), history=True, tracked=("v",)), events).to_pylist()]
    [(1, 'a', 1, 3), (1, 'b', 3, 7)]
    """
    keys = _names(merge.keys)
    tracked = " OR ".join(f"{quoted(c)} IS DISTINCT FROM lag({quoted(c)}) OVER w" for c in merge.tracked) or "false"
    found = _ask(
        f"""WITH once AS (SELECT * FROM events QUALIFY
                row_number() OVER (PARTITION BY {keys}, {_SEQUENCE} ORDER BY {_ROW} DESC) = 1),
              placed AS (SELECT *, row_number() OVER w AS place,
                (lag({_ROW}) OVER w IS NULL OR {_DELETES} OR lag({_DELETES}) OVER w OR {tracked}) AS begins
                FROM once WINDOW w AS (PARTITION BY {keys} ORDER BY {_SEQUENCE} NULLS FIRST)),
              runs AS (SELECT *, sum(begins::INT) OVER (PARTITION BY {keys} ORDER BY place) AS run FROM placed),
              rows AS (SELECT {keys}, run, bool_or({_DELETES}) AS gone,
                arg_min({_ROW}, place) AS first, arg_max({_ROW}, place) AS last FROM runs GROUP BY ALL),
              valid AS (SELECT *, lead(first) OVER (PARTITION BY {keys} ORDER BY run) AS next FROM rows)
            SELECT first, last, next FROM valid WHERE NOT gone ORDER BY first""",
        events=_numbered(events),
    )
    sequence = events[SEQUENCE]
    rows = _own(events.take(found["last"]))
    rows = rows.append_column(START_AT, sequence.take(found["first"]))
    return rows.append_column(END_AT, sequence.take(found["next"]))


def _newest_rows(merge: Merge, changes: pa.Table) -> pa.Table:
    found = _ask(
        f"""SELECT {_ROW} FROM changes QUALIFY row_number() OVER (
              PARTITION BY {_names(merge.keys)} ORDER BY {_SEQUENCE} DESC NULLS LAST, {_ROW} DESC) = 1
            ORDER BY {_ROW}""",
        changes=_numbered(changes).select([_ROW, *merge.keys, SEQUENCE]),
    )
    return changes.take(found[_ROW])


def _truncates(changes: pa.Table) -> bool:
    return any(changes[TRUNCATES].to_pylist())


def _after_truncate(changes: pa.Table, before: Any = None) -> pa.Table:
    """The changes that came after the last one that emptied the table."""
    if TRUNCATES not in changes.column_names:
        return changes
    sources = {"changes": _numbered(changes).select([_ROW, SEQUENCE, TRUNCATES])}
    emptied = f"SELECT {_SEQUENCE} AS moment FROM changes WHERE {_TRUNCATES}"
    if before is not None:
        sources["before"] = before
        emptied += f" UNION ALL SELECT {_SEQUENCE} FROM before WHERE {_TRUNCATES}"
    found = _ask(
        f"""WITH emptied AS (SELECT max(moment) AS moment, count(*) AS n FROM ({emptied}))
            SELECT {_ROW} FROM changes, emptied WHERE n = 0 OR {_SEQUENCE} > moment ORDER BY {_ROW}""",
        **sources,
    )
    return changes.take(found[_ROW])


def _own(events: pa.Table) -> pa.Table:
    """Without the columns that say how a row changes."""
    return events.select([c for c in events.column_names if c not in (SEQUENCE, DELETES, TRUNCATES)])


def _not(flags: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.compute.invert(flags)


def _numbered(table: pa.Table) -> pa.Table:
    return table.append_column(_ROW, pa.arange(0, table.num_rows))


_databases = threading.local()  # sinks are applied by several threads


@contextmanager
def asking() -> Iterator[duckdb.DuckDBPyConnection]:
    """One database for all questions inside: opening it takes longer than most of them."""
    if (opened := getattr(_databases, "mine", None)) is not None:
        yield opened
        return
    with closing(duckdb.connect(config={"threads": 1})) as database:
        _databases.mine = database
        try:
            yield database
        finally:
            _databases.mine = None


def _ask(query: str, **tables: Any) -> pa.Table:
    with asking() as database:
        for name, table in tables.items():
            database.register(name, table)
        try:
            return database.sql(query).to_arrow_table()
        finally:
            for name in tables:
                database.unregister(name)


def _names(columns: Iterable[str], table: str = "") -> str:
    start = f"{table}." if table else ""
    return ", ".join(f"{start}{quoted(column)}" for column in columns)


def _same(keys: Sequence[str], one: str, other: str) -> str:
    return " AND ".join(f"{one}.{quoted(key)} IS NOT DISTINCT FROM {other}.{quoted(key)}" for key in keys)
