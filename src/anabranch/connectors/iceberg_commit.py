"""Taking an epoch into Iceberg tables: in one SQL transaction for all of them, or one by one through a REST server.

1. which of the sinks have the epoch is looked up;
2. the others' new metadata is written and made durable, beside what readers see;
3. one transaction moves every table and writes the record of the epoch.

A table that somebody else has moved since 2 is looked at anew. Whatever else goes wrong in 3 is looked up, never sent
again blindly. Killed before 3 has committed, some metadata stays that nothing names; `vacuum` removes it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from anabranch.connectors.iceberg_catalog import SqlTables
from anabranch.connectors.iceberg_moves import Move
from anabranch.connectors.iceberg_rest import RestTables
from anabranch.connectors.iceberg_table import IcebergTable
from anabranch.connectors.iceberg_versions import version_name
from anabranch.connectors.object_store import plain
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.errors import CommitUnknown, ProjectError, SinkError, StateError

_WAITS = (0.05, 0.2, 0.8, 2.0)  # seconds before each new try


class Takes(Protocol):
    """A sink that is one or more tables of a catalogue."""

    name: str
    own: tuple[IcebergTable, ...]  # the first has the sink's version

    def moves(self, key: EpochKey, receipt: Receipt) -> list[Move]:
        """What an epoch makes of the tables, as they stand now."""


def take_all(tables: SqlTables, key: EpochKey, taken: Sequence[tuple[Takes, Receipt]]) -> list[Applied]:
    """Let all these sinks take an epoch at one moment, but for those that have it."""
    error: Exception | None = None
    fresh: dict[str, str] = {}
    for wait in (0.0, *_WAITS):
        if wait:
            time.sleep(wait)
        found = _looked_up(tables, key, taken, error)  # 1
        waiting = [(s, r) for s, r in taken if s.name not in found and (r.files or r.replace)]
        if not waiting:
            return [_applied(sink, found, fresh) for sink, _ in taken]
        try:
            moves = [(sink, move) for sink, receipt in waiting for move in sink.moves(key, receipt)]
            staged = [(move, tables.stage(move)) for _, move in moves]  # 2
            tables.swap(key, staged)  # 3
        except (ProjectError, StateError):
            raise
        except Exception as refused:  # noqa: BLE001 - whatever it was, the catalogue is asked before anything else
            error = refused
            _forget(taken)
            continue
        for sink, _ in waiting:
            crash.point("committed", sink.name)
        by_name = {table.name(): table for _, table in staged}
        for sink, _ in waiting:
            for own in sink.own:
                own.moved(by_name.get(own.identifier))
        fresh = {move.sink: table.metadata_location for move, table in staged if move.sink is not None}
        return [_applied(sink, {**found, **fresh}, fresh) for sink, _ in taken]
    raise refusal(key, [sink.name for sink, _ in taken], error)


def take_alone(tables: RestTables, key: EpochKey, sink: Takes, receipt: Receipt) -> Applied:
    """Let one sink take an epoch through a REST server, unless it has it."""
    own, error = sink.own[0], None
    for wait in (0.0, *_WAITS):
        if wait:
            time.sleep(wait)
        try:
            place = tables.found(key, sink.name, own.fresh())
        except SinkError as lost:
            if error is None:
                raise
            raise _unknown(key, [sink.name], lost) from lost
        if place is not None:
            return Applied(version_name(own.location, place), already=True)
        if not receipt.files and not receipt.replace:
            return Applied(own.version())
        try:
            (move,) = sink.moves(key, receipt)
            place = tables.commit(key, move)
        except (ProjectError, StateError):
            raise
        except Exception as refused:  # noqa: BLE001 - whatever it was, the server is asked before anything else
            error = refused
            continue
        crash.point("committed", sink.name)
        return Applied(version_name(own.location, place))
    raise refusal(key, [sink.name], error)


def refusal(key: EpochKey, names: Sequence[str], error: Exception | None) -> SinkError:
    """The tables did not take an epoch."""
    if isinstance(error, SinkError):
        return error
    refused = SinkError(
        "COMMIT_REFUSED",
        f"{_listed(names)} did not take epoch {key.epoch}: {plain(error) if error else 'no answer'}",
        hint="the staged files are kept: run again once the cause is gone",
        retryable=True,
    )
    refused.__cause__ = error
    return refused


def _looked_up(
    tables: SqlTables, key: EpochKey, taken: Sequence[tuple[Takes, Receipt]], error: Exception | None
) -> dict[str, str]:
    names = [sink.name for sink, _ in taken]
    try:
        return tables.found(key, names)
    except SinkError as lost:
        if error is None:
            raise
        raise _unknown(key, names, lost) from lost


def _unknown(key: EpochKey, names: Sequence[str], lost: SinkError) -> CommitUnknown:
    return CommitUnknown(
        "COMMIT_UNKNOWN",
        f"epoch {key.epoch} was sent to {_listed(names)}, the catalogue cannot be asked for it: {lost.message}",
        hint="run again when the catalogue answers: the epoch is looked up before anything is sent",
        retryable=True,
    )


def _applied(sink: Takes, found: dict[str, str], fresh: dict[str, str]) -> Applied:
    own = sink.own[0]
    if sink.name not in found:
        return Applied(own.version())  # an epoch without rows leaves no trace
    return Applied(version_name(own.location, found[sink.name]), already=sink.name not in fresh)


def _forget(taken: Sequence[tuple[Takes, Receipt]]) -> None:
    for sink, _ in taken:
        for own in sink.own:
            own.moved(None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
