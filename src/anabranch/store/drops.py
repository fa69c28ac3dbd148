"""Outputs that leave a pipeline for good: out of its channel and its newest cut, before their files are removed.

What is being removed is noted until it is gone, so that it can be finished by whoever asks again.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection, and_, delete, insert, select, update

from anabranch.core.epoch import OPEN, State
from anabranch.store.database import Database
from anabranch.store.epoch_rows import applied_seal, at_key, key_of, named, newest, outputs_of, sinks_of
from anabranch.store.epochs import still_open
from anabranch.store.lease import locked_channel, write_channel
from anabranch.store.records import OutputRecord
from anabranch.store.schema import channels, damaged, epochs, intact, meta, outputs, sealed, sinks


@dataclass(frozen=True, slots=True)
class Known:
    """An output that the ledger knows, and the channel that has it or had it last."""

    channel: str
    output: OutputRecord


def find(connection: Connection, pipeline_id: str, name: str) -> Known | None:
    """An output that a channel has, that an epoch still names, or whose removal was begun."""
    note = connection.execute(select(meta).where(meta.c.name == _note(pipeline_id, name))).mappings().one_or_none()
    if note is not None:
        intact(meta, note, f'the removal of "{name}"')
        found = json.loads(note["value"])
        return Known(found["channel"], OutputRecord(name, found["format"], found["location"]))
    mine = and_(outputs.c.pipeline_id == pipeline_id, outputs.c.name == name)
    row = connection.execute(select(outputs).where(mine)).mappings().one_or_none()
    if row is not None:
        intact(outputs, row, f'output "{name}"')
        return Known(row["channel"], OutputRecord(name, row["format"], row["location"]))
    columns = [c for c in sinks.columns if c.name not in ("receipt", "receipt_checksum")]
    query = select(*columns).where(sinks.c.pipeline_id == pipeline_id, sinks.c.sink == name)
    query = query.order_by(sinks.c.generation.desc(), sinks.c.epoch.desc()).limit(1)
    part = connection.execute(query).mappings().one_or_none()
    if part is None:
        return None
    if part["applied_checksum"] != applied_seal(part):
        raise damaged(f'sink "{name}" of {named(key_of(part))}')
    return Known(part["channel"], OutputRecord(name, part["format"], part["location"]))


def begin(connection: Connection, database: Database, pipeline_id: str, known: Known) -> None:
    """Take the output out of its channel and of the newest cut, and note that its files are to go.

    Older epochs go on naming it. One that is still open, and names it, must be finished first.
    """
    name = known.output.name
    every = select(channels.c.channel).where(channels.c.pipeline_id == pipeline_id).order_by(channels.c.channel)
    for channel in connection.execute(every).scalars().all():
        locked_channel(connection, database, pipeline_id, channel)
        last = newest(connection, pipeline_id, channel)
        if last is not None and last["state"] in OPEN and name in json.loads(last["sinks"]):
            raise still_open(key_of(last), State(last["state"]))
        row = newest(connection, pipeline_id, channel, epochs.c.state == State.PUBLISHED.value)
        if row is None or name not in json.loads(row["sinks"]):
            continue
        key = key_of(row)
        connection.execute(delete(sinks).where(at_key(sinks, key), sinks.c.sink == name))
        left = sealed(epochs, {**row, "sinks": json.dumps(sorted(sinks_of(connection, key)))})
        changed = {"sinks": left["sinks"], "checksum": left["checksum"]}
        connection.execute(update(epochs).where(at_key(epochs, key)).values(changed))
    mine = and_(outputs.c.pipeline_id == pipeline_id, outputs.c.name == name)
    had = connection.execute(delete(outputs).where(mine)).rowcount
    if had and not outputs_of(connection, pipeline_id, known.channel):
        # Should the channel ever be declared again, nothing is left of what its epochs have made.
        row = locked_channel(connection, database, pipeline_id, known.channel)
        write_channel(connection, row, generation=row["generation"] + 1)
    end(connection, pipeline_id, name)  # a note of an earlier attempt says the same
    said = {"channel": known.channel, "format": known.output.format, "location": known.output.location}
    note = {"name": _note(pipeline_id, name), "value": json.dumps(said, sort_keys=True)}
    connection.execute(insert(meta), sealed(meta, note))


def end(connection: Connection, pipeline_id: str, name: str) -> None:
    """The files are gone."""
    connection.execute(delete(meta).where(meta.c.name == _note(pipeline_id, name)))


def _note(pipeline_id: str, name: str) -> str:
    return f"dropping/{pipeline_id}/{name}"
