"""Versions of the column lineage of datasets: a new one whenever a run finds another than the last, kept for good.

They stand in the history, from which events and runs are removed as they get old, and these are not: rows stay in a
table for longer than the code that made them.

    history = History.of(project.storage)
    found = column_lineage_of(history, "silver.orders")     # the newest; None if no run has looked at it
    found.lineage.columns["total"].direct
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from anabranch.core.column_lineage import DatasetColumns
from anabranch.core.events_data import LineageChanged
from anabranch.store.history import History

_COLUMNS = "dataset, version, run, at, channel, epoch, document"


@dataclass(frozen=True, slots=True)
class LineageVersion:
    """The lineage of a dataset as it holds from an epoch of its channel on, and the run that found it."""

    dataset: str
    version: int
    run: str
    at: float
    channel: str
    epoch: int
    lineage: DatasetColumns


def column_lineage_of(history: History, dataset: str, version: int | None = None) -> LineageVersion | None:
    """The newest lineage of a dataset, or a certain version of it; None if that is not there."""
    query = (
        f"SELECT {_COLUMNS} FROM column_lineage WHERE dataset = ?1 AND (?2 IS NULL OR version = ?2) "
        "ORDER BY version DESC LIMIT 1"
    )
    rows = history.kept("column_lineage", query, dataset, version)
    return _version(rows[0]) if rows else None


def lineage_versions(history: History, dataset: str) -> list[LineageVersion]:
    """Every version of a dataset's lineage, oldest first."""
    query = f"SELECT {_COLUMNS} FROM column_lineage WHERE dataset = ? ORDER BY version"
    return [_version(row) for row in history.kept("column_lineage", query, dataset)]


def newest_lineage(history: History) -> dict[str, LineageVersion]:
    """The newest lineage of every dataset that a run has looked at."""
    query = (
        f"SELECT {_COLUMNS} FROM column_lineage AS one WHERE version = "
        "(SELECT max(version) FROM column_lineage WHERE dataset = one.dataset) ORDER BY dataset"
    )
    return {row["dataset"]: _version(row) for row in history.kept("column_lineage", query)}


def keep_lineage(connection: sqlite3.Connection, run: str, at: float, found: LineageChanged) -> None:
    """Add a version, inside the transaction of whoever calls; nothing if another run was faster with the same."""
    lineage = DatasetColumns.from_record(json.loads(found.document))
    last = connection.execute(
        "SELECT version, digest FROM column_lineage WHERE dataset = ? ORDER BY version DESC LIMIT 1", (found.dataset,)
    ).fetchone()
    if last is not None and last[1] == lineage.digest:
        return
    connection.execute(
        "INSERT INTO column_lineage (dataset, version, run, at, channel, epoch, digest, document) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            found.dataset,
            last[0] + 1 if last else 1,
            run,
            at,
            found.channel,
            found.epoch,
            lineage.digest,
            found.document,
        ),
    )


def _version(row: Any) -> LineageVersion:
    said = dict(row)
    lineage = DatasetColumns.from_record(json.loads(said.pop("document")))
    return LineageVersion(**said, lineage=lineage)
