"""Pipelines, their channels and outputs: what a run registers before it reads anything."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, insert, or_, select, update

from anabranch.core.epoch import OPEN, State
from anabranch.errors import StateError
from anabranch.store.database import Database
from anabranch.store.epoch_rows import key_of, newest, outputs_of
from anabranch.store.epochs import still_open
from anabranch.store.lease import held, live_holder, locked_channel
from anabranch.store.process import this_process
from anabranch.store.records import ChannelRecord, OutputRecord, PipelineRecord
from anabranch.store.schema import channels, intact, meta, outputs, pipelines, sealed


def find_pipeline(connection: Connection, name: str) -> PipelineRecord | None:
    """The pipeline of this name."""
    row = connection.execute(select(pipelines).where(pipelines.c.name == name)).mappings().one_or_none()
    if row is None:
        return None
    intact(pipelines, row, f'pipeline "{name}"')
    return PipelineRecord(row["pipeline_id"], row["name"], row["storage"], row["created_at"])


def register_pipeline(connection: Connection, database: Database, name: str, storage: str) -> PipelineRecord:
    """The pipeline of this name, made if it is new."""
    _queue_up(connection)
    found = find_pipeline(connection, name)
    if found is None:
        now = connection.execute(select(database.clock())).scalar_one()
        found = PipelineRecord(str(uuid.uuid4()), name, storage, now)
        row = {"pipeline_id": found.pipeline_id, "name": name, "storage": storage, "created_at": now}
        connection.execute(insert(pipelines), sealed(pipelines, row))
    if found.storage != storage:
        raise StateError(
            "LEDGER_FOREIGN",
            f'in this ledger the pipeline "{name}" has its storage at {found.storage}, not at {storage}',
            hint="give this pipeline a ledger of its own or another name, or set its storage back",
        )
    return found


def move_storage(connection: Connection, name: str, storage: str) -> None:
    """Change where the storage of a pipeline is; nothing happens to one that is not known."""
    found = find_pipeline(connection, name)
    if found is not None:
        row = {"pipeline_id": found.pipeline_id, "name": name, "storage": storage, "created_at": found.created_at}
        mine = pipelines.c.pipeline_id == found.pipeline_id
        connection.execute(update(pipelines).where(mine).values(sealed(pipelines, row)))


def all_channels(connection: Connection, pipeline_id: str) -> tuple[ChannelRecord, ...]:
    """Every channel the pipeline ever had, by name; one whose outputs went elsewhere has none left."""
    query = select(channels).where(channels.c.pipeline_id == pipeline_id).order_by(channels.c.channel)
    rows = connection.execute(query).mappings().all()
    for row in rows:
        intact(channels, row, f'channel "{row["channel"]}"')
    return tuple(
        ChannelRecord(row["channel"], row["generation"], outputs_of(connection, pipeline_id, row["channel"]))
        for row in rows
    )


def ensure_channel(
    connection: Connection, database: Database, pipeline_id: str, channel: str, wanted: Sequence[OutputRecord]
) -> ChannelRecord:
    """The channel with exactly these outputs. They change only while nobody works on it and no epoch is open."""
    _queue_up(connection)
    _add_channel(connection, pipeline_id, channel)
    current = outputs_of(connection, pipeline_id, channel)
    chosen = tuple(sorted(wanted, key=lambda output: output.name))
    row = locked_channel(connection, database, pipeline_id, channel)
    if current != chosen:
        taken = and_(outputs.c.pipeline_id == pipeline_id, outputs.c.name.in_([o.name for o in chosen]))
        losing = connection.execute(select(outputs.c.channel).where(taken).distinct()).scalars()
        for name in sorted({channel, *losing}):
            _refuse_busy(connection, database, pipeline_id, name)
        replaced = and_(outputs.c.pipeline_id == pipeline_id, outputs.c.channel == channel)
        connection.execute(delete(outputs).where(or_(replaced, taken)))
        if chosen:
            connection.execute(insert(outputs), [_output_row(pipeline_id, channel, output) for output in chosen])
    return ChannelRecord(channel, row["generation"], chosen)


def _queue_up(connection: Connection) -> None:
    """Make those who register take turns: where nothing is stored yet, there is no other row to lock."""
    connection.execute(select(meta.c.value).where(meta.c.name == "ledger_id").with_for_update()).one()


def _add_channel(connection: Connection, pipeline_id: str, channel: str) -> None:
    mine = and_(channels.c.pipeline_id == pipeline_id, channels.c.channel == channel)
    if connection.execute(select(channels.c.channel).where(mine)).first() is None:
        row = {"pipeline_id": pipeline_id, "channel": channel, "generation": 1, "token": 0, "holder": None}
        connection.execute(insert(channels), sealed(channels, row))


def _refuse_busy(connection: Connection, database: Database, pipeline_id: str, channel: str) -> None:
    row = locked_channel(connection, database, pipeline_id, channel)
    holder = live_holder(row)
    if holder is not None and holder != this_process():
        raise held(row, holder)
    last = newest(connection, pipeline_id, channel)
    if last is not None and last["state"] in OPEN:
        error = still_open(key_of(last), State(last["state"]))
        error.hint = "run `anabranch recover` with the outputs as they were, then change them"
        raise error


def _output_row(pipeline_id: str, channel: str, output: OutputRecord) -> dict[str, object]:
    row = {
        "pipeline_id": pipeline_id,
        "name": output.name,
        "channel": channel,
        "format": output.format,
        "location": output.location,
    }
    return sealed(outputs, row)
