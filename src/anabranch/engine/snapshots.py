"""Snapshots as changes: what is new or different in a state of a whole table, and what is gone from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from anabranch.core.changes import DELETES, END_AT, SEQUENCE, START_AT, Changes
from anabranch.core.declarations import Flow
from anabranch.engine.changes import names_in
from anabranch.engine.user_code import user_code
from anabranch.errors import UserCodeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def changes_between(current: DataFrame | None, snapshot: DataFrame, changes: Changes, version: Any) -> DataFrame:
    """The changes that make a table (None for one that is new) the table of a snapshot, ordered by its version."""
    keys = names_in(snapshot, changes.keys)
    columns = snapshot.columns if changes.columns is None else names_in(snapshot, changes.columns)
    left_out = names_in(snapshot, changes.except_columns)
    rows = snapshot.select(*(f"`{c}`" for c in dict.fromkeys([*keys, *columns]) if c not in left_out or c in keys))
    if current is None:
        return _marked(rows, version, deletes=False)
    held = _newest(current, changes)
    for column in [c for c in rows.columns if c not in held.columns]:
        held = held.withColumn(column, F.lit(None).cast(rows.schema[column].dataType))
    held = held.select(*(f"`{c}`" for c in rows.columns))
    changed = rows.exceptAll(held)
    same = [held[c].eqNullSafe(rows[c]) for c in keys]
    gone = held.join(rows, same, "left_anti")
    return _marked(changed, version, deletes=False).unionByName(_marked(gone, version, deletes=True))


def _newest(current: DataFrame, changes: Changes) -> DataFrame:
    return current.where(F.col(END_AT).isNull()).drop(START_AT, END_AT) if changes.keeps_history else current


def _marked(rows: DataFrame, version: Any, *, deletes: bool) -> DataFrame:
    return rows.select("*", F.lit(version).alias(SEQUENCE), F.lit(deletes).alias(DELETES))


def snapshots(flow: Flow, latest: Any) -> Iterator[tuple[DataFrame, Any]]:
    """What the user's function gives, from the version after `latest` on, until it gives nothing more."""
    assert flow.changes is not None
    ask: Callable[[Any], Any] = flow.changes.source  # type: ignore[assignment]
    while True:
        with user_code(f'snapshots of flow "{flow.name}"', flow.where):
            found = ask(latest)
        if found is None:
            return
        if not (isinstance(found, tuple) and len(found) == 2):
            raise UserCodeError(
                "SNAPSHOT_INVALID",
                f'the function of flow "{flow.name}" returned {type(found).__name__}, not a snapshot and its version',
                where=flow.where,
                hint="return (DataFrame, version) for the next snapshot, None when there is no other",
            )
        frame, version = found
        if latest is not None and not version > latest:
            raise UserCodeError(
                "SNAPSHOT_INVALID",
                f'the function of flow "{flow.name}" gave version {version!r} after {latest!r}: it must grow',
                where=flow.where,
                hint="give each snapshot once, in the order of their versions",
            )
        yield frame, version
        latest = version
