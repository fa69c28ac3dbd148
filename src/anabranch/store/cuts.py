"""Cuts: which published epoch of every channel, and so which version of every table, belong together."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, and_, delete, func, not_, or_, select

from anabranch.core.epoch import OPEN, CutRecord, CutTable, EpochKey, State
from anabranch.errors import StateError, did_you_mean
from anabranch.store.epoch_rows import Row, applied_seal, key_of, named, newest, sinks_of
from anabranch.store.schema import channels, damaged, epochs, intact, outputs, sinks

_PUBLISHED = epochs.c.state == State.PUBLISHED.value


def read_cut(connection: Connection, pipeline_id: str, at: Mapping[str, int]) -> CutRecord:
    """The newest cut, or the one that the given epochs make. A channel without a published epoch has no part in it."""
    query = select(channels.c.channel).where(channels.c.pipeline_id == pipeline_id)
    known = sorted(connection.execute(query).scalars())
    for channel in at:
        if channel not in known:
            hint = did_you_mean(channel, known) or f"the channels are: {', '.join(known) or 'none yet'}"
            raise StateError("CUT_NOT_FOUND", f'there is no channel "{channel}"', hint=hint)
    owners = _owners(connection, pipeline_id)
    found: dict[str, int] = {}
    tables: dict[str, CutTable] = {}
    for channel in known:
        row = _chosen(connection, pipeline_id, channel, at.get(channel))
        if row is None:
            continue
        parts = _tables(connection, row)
        if not parts:  # all that it had was dropped
            continue
        found[channel] = row["epoch"]
        for table in parts:
            # An output that moved to another channel is named by both until the old one's epochs are forgotten.
            if table.name not in tables or owners.get(table.name) == channel:
                tables[table.name] = table
    return CutRecord(pipeline_id, found, tables)


def _owners(connection: Connection, pipeline_id: str) -> dict[str, str]:
    rows = connection.execute(select(outputs).where(outputs.c.pipeline_id == pipeline_id)).mappings().all()
    for row in rows:
        intact(outputs, row, f'output "{row["name"]}"')
    return {row["name"]: row["channel"] for row in rows}


def _chosen(connection: Connection, pipeline_id: str, channel: str, epoch: int | None) -> Row | None:
    last = newest(connection, pipeline_id, channel, _PUBLISHED)
    if epoch is None or (last is not None and last["epoch"] == epoch):
        return last
    if last is None:
        raise StateError(
            "CUT_NOT_FOUND",
            f'channel "{channel}" has published nothing yet',
            hint="run the pipeline; see `anabranch status` for what is published",
        )
    same = epochs.c.generation == last["generation"]
    row = newest(connection, pipeline_id, channel, _PUBLISHED, same, epochs.c.epoch == epoch)
    if row is None:
        mine = and_(epochs.c.pipeline_id == pipeline_id, epochs.c.channel == channel, same, _PUBLISHED)
        first = connection.execute(select(func.min(epochs.c.epoch)).where(mine)).scalar_one()
        raise StateError(
            "CUT_NOT_FOUND",
            f'channel "{channel}" has no published epoch {epoch}',
            hint=f"epochs {first} to {last['epoch']} can be read",
        )
    return row


def _tables(connection: Connection, row: Row) -> list[CutTable]:
    key = key_of(row)
    parts = sinks_of(connection, key)
    if sorted(parts) != json.loads(row["sinks"]) or any(p["version"] is None for p in parts.values()):
        raise damaged(f"the list of sinks of {named(key)}")
    return [_table(part) for part in parts.values()]


def _table(part: Row) -> CutTable:
    return CutTable(part["sink"], part["format"], part["location"], part["version"], part["channel"], part["epoch"])


def forget(
    connection: Connection, pipeline_id: str, channel: str, keep_from: int | None, published_before: float | None
) -> int:
    """Delete ended epochs outside every limit given; the newest published one always stays."""
    gone = _outside(connection, pipeline_id, channel, keep_from, published_before)
    return connection.execute(delete(epochs).where(*gone)).rowcount if gone else 0


def forgettable(connection: Connection, pipeline_id: str, published_before: float) -> set[EpochKey]:
    """The epochs that `forget` would delete."""
    names = connection.execute(select(channels.c.channel).where(channels.c.pipeline_id == pipeline_id)).scalars().all()
    gone = [_outside(connection, pipeline_id, name, None, published_before) for name in names]
    return {key_of(row) for g in gone if g for row in connection.execute(select(epochs).where(*g)).mappings()}


def _outside(
    connection: Connection, pipeline_id: str, channel: str, keep_from: int | None, published_before: float | None
) -> list[ColumnElement[bool]] | None:
    """What holds for the epochs that may be forgotten; None when none may."""
    last = newest(connection, pipeline_id, channel, _PUBLISHED)
    if last is None or (keep_from is None and published_before is None):
        return None
    same = epochs.c.generation == last["generation"]
    gone = [
        epochs.c.pipeline_id == pipeline_id,
        epochs.c.channel == channel,
        epochs.c.state.not_in(OPEN),
        not_(and_(same, epochs.c.epoch == last["epoch"])),
    ]
    if keep_from is not None:
        gone.append(or_(epochs.c.generation < last["generation"], and_(same, epochs.c.epoch < keep_from)))
    if published_before is not None:
        ended_at = func.coalesce(epochs.c.published_at, epochs.c.decided_at)  # a discarded one was never published
        gone.append(ended_at < published_before)
    return gone


def pinned(connection: Connection, pipeline_id: str, published_since: float | None = None) -> tuple[CutTable, ...]:
    """Every version of every table that some epoch names, once, with the newest epoch that names it.

    Epochs that are still open count: they will be the next cut. Discarded ones do not: they are in none. With
    `published_since` those are left out that `forget` would delete.
    """
    columns = [c for c in sinks.columns if c.name not in ("receipt", "receipt_checksum")]
    belongs = and_(*(sinks.c[name] == epochs.c[name] for name in ("pipeline_id", "channel", "generation", "epoch")))
    query = select(*columns).join(epochs, belongs)
    query = query.where(sinks.c.pipeline_id == pipeline_id, sinks.c.version.is_not(None))
    query = query.where(epochs.c.state != State.DISCARDED.value)
    without = set() if published_since is None else forgettable(connection, pipeline_id, published_since)
    found: dict[tuple[str, str, str], CutTable] = {}
    for part in connection.execute(query.order_by(sinks.c.generation, sinks.c.epoch)).mappings():
        if part["applied_checksum"] != applied_seal(part):
            raise damaged(f'sink "{part["sink"]}" of {named(key_of(part))}')
        if key_of(part) not in without:
            found[part["sink"], part["location"], part["version"]] = _table(part)
    return tuple(found.values())
