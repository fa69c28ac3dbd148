"""Epoch records as rows: how they are found and read back, with every checksum compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, FromClause, Select, and_, select

from anabranch.core.epoch import Applied, EpochKey, Receipt, State
from anabranch.core.quality import FlowQuality, from_json
from anabranch.errors import StateError
from anabranch.store.records import EpochRecord, OutputRecord
from anabranch.store.schema import damaged, epochs, intact, outputs, quality, seal, sinks

Row = Mapping[Any, Any]
Query = Select[Any]


def at_key(table: FromClause, key: EpochKey) -> ColumnElement[bool]:
    """The condition that a row belongs to this epoch."""
    return and_(
        table.c.pipeline_id == key.pipeline,
        table.c.channel == key.channel,
        table.c.generation == key.generation,
        table.c.epoch == key.epoch,
    )


def key_of(row: Row) -> EpochKey:
    """The epoch a row belongs to."""
    return EpochKey(row["pipeline_id"], row["channel"], row["generation"], row["epoch"])


def key_columns(key: EpochKey) -> dict[str, Any]:
    """The epoch as the columns every row of it starts with."""
    return {
        "pipeline_id": key.pipeline,
        "channel": key.channel,
        "generation": key.generation,
        "epoch": key.epoch,
    }


def named(key: EpochKey) -> str:
    """An epoch as errors call it."""
    return f'epoch {key.epoch} of channel "{key.channel}" (generation {key.generation})'


def receipt_seal(key: EpochKey, sink: str, receipt: str) -> str:
    """The checksum of a receipt, which holds for this epoch and this sink only."""
    return seal(*key_columns(key).values(), sink, receipt)


def applied_seal(row: Row) -> str:
    """The checksum of everything in a sink's row but the receipt, which is large and has its own."""
    names = ("sink", "format", "location", "version", "already", "restaging", "applied_at")
    return seal(*key_columns(key_of(row)).values(), *(row[name] for name in names))


def outputs_of(connection: Connection, pipeline_id: str, channel: str) -> tuple[OutputRecord, ...]:
    """The outputs a channel has now."""
    query = select(outputs).where(outputs.c.pipeline_id == pipeline_id, outputs.c.channel == channel)
    rows = connection.execute(query.order_by(outputs.c.name)).mappings().all()
    for row in rows:
        intact(outputs, row, f'output "{row["name"]}"')
    return tuple(OutputRecord(row["name"], row["format"], row["location"]) for row in rows)


def stored(connection: Connection, key: EpochKey) -> Row:
    """The epoch's own row. One that was never decided, or was pruned, is refused."""
    row = connection.execute(select(epochs).where(at_key(epochs, key))).mappings().one_or_none()
    if row is None:
        raise StateError(
            "EPOCH_UNKNOWN",
            f"{named(key)} is not in the ledger",
            hint="see `anabranch status` for the epochs that are",
        )
    intact(epochs, row, named(key))
    return row


def newest(connection: Connection, pipeline_id: str, channel: str, *only: ColumnElement[bool]) -> Row | None:
    """The newest epoch's own row, among all of the channel or only some."""
    query = select(epochs).where(epochs.c.pipeline_id == pipeline_id, epochs.c.channel == channel, *only)
    query = query.order_by(epochs.c.generation.desc(), epochs.c.epoch.desc()).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    if row is not None:
        intact(epochs, row, named(key_of(row)))
    return row


def sinks_of(connection: Connection, key: EpochKey) -> dict[str, Row]:
    """Each sink's row of the epoch, without the receipts."""
    columns = [c for c in sinks.columns if c.name not in ("receipt", "receipt_checksum")]
    rows = connection.execute(select(*columns).where(at_key(sinks, key))).mappings().all()
    for row in rows:
        if row["applied_checksum"] != applied_seal(row):
            raise damaged(f'sink "{row["sink"]}" of {named(key)}')
    return {row["sink"]: row for row in rows}


def load(connection: Connection, query: Query) -> tuple[EpochRecord, ...]:
    """The records of the epochs that `query` (over `epochs`) selects, in its order."""
    rows = connection.execute(query).mappings().all()
    if not rows:
        return ()
    chosen = query.subquery()
    belongs = and_(*(sinks.c[name] == chosen.c[name] for name in ("pipeline_id", "channel", "generation", "epoch")))
    parts: dict[EpochKey, list[Row]] = {}
    for part in connection.execute(select(sinks).select_from(sinks.join(chosen, belongs))).mappings():
        parts.setdefault(key_of(part), []).append(part)
    found = _quality(connection, chosen)
    return tuple(_record(row, parts.get(key_of(row), []), found.get(key_of(row), ())) for row in rows)


def _quality(connection: Connection, chosen: FromClause) -> dict[EpochKey, tuple[FlowQuality, ...]]:
    belongs = and_(*(quality.c[name] == chosen.c[name] for name in ("pipeline_id", "channel", "generation", "epoch")))
    rows = connection.execute(select(quality).select_from(quality.join(chosen, belongs))).mappings().all()
    for row in rows:
        intact(quality, row, f"the quality of {named(key_of(row))}")
    return {key_of(row): from_json(row["found"]) for row in rows}


def _record(row: Row, parts: Sequence[Row], found: tuple[FlowQuality, ...]) -> EpochRecord:
    key = key_of(row)
    intact(epochs, row, named(key))
    if sorted(p["sink"] for p in parts) != json.loads(row["sinks"]):
        raise damaged(f"the list of sinks of {named(key)}")
    for part in parts:
        sealed_as = receipt_seal(key, part["sink"], part["receipt"])
        if part["receipt_checksum"] != sealed_as or part["applied_checksum"] != applied_seal(part):
            raise damaged(f'the receipt of sink "{part["sink"]}" in {named(key)}')
    taken = [p for p in parts if p["version"] is not None]
    return EpochRecord(
        key=key,
        state=State(row["state"]),
        offsets=row["offsets"],
        token=row["token"],
        decided_at=row["decided_at"],
        published_at=row["published_at"],
        times=json.loads(row["times"]),
        window=row["torn_window"],
        receipts={p["sink"]: Receipt.from_json(p["receipt"]) for p in parts},
        outputs={p["sink"]: OutputRecord(p["sink"], p["format"], p["location"]) for p in parts},
        applied={p["sink"]: Applied(p["version"], bool(p["already"])) for p in taken},
        applied_at={p["sink"]: p["applied_at"] for p in taken},
        restaging=tuple(sorted(p["sink"] for p in parts if p["restaging"])),
        reason=row["reason"],
        quality=found,
    )
