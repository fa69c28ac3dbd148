"""Leases: who may write a channel. A token that only ever grows fences off whoever held it before.

A lease is a row with an end date. It is taken over when the date has passed, or at once when its holder ran on this
very machine and is gone. Correctness never rests on the date: every write compares the token in its own transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select, update

from anabranch.errors import LockHeld, StateError
from anabranch.store.database import Database
from anabranch.store.process import Holder, this_process
from anabranch.store.schema import channels, intact, meta, newest_version, sealed


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write a channel, for as long as nobody else was given a higher token."""

    pipeline_id: str
    channel: str
    token: int
    holder: Holder
    seconds: float
    since: float
    expires: float


def locked_channel(connection: Connection, database: Database, pipeline_id: str, channel: str) -> Mapping[Any, Any]:
    """The channel's row, locked until the transaction ends, with the time (`now`)."""
    written_as = select(meta.c.value).where(meta.c.name == "schema_version").scalar_subquery()
    query = select(channels, database.clock().label("now"), written_as.label("version"))
    query = query.where(channels.c.pipeline_id == pipeline_id, channels.c.channel == channel)
    row = connection.execute(query.with_for_update(of=channels)).mappings().one_or_none()
    if row is None:
        raise StateError(
            "CHANNEL_UNKNOWN",
            f'the ledger has no channel "{channel}" for this pipeline',
            hint="run the pipeline once: a run registers its channels",
        )
    if row["version"] != str(newest_version()):  # another process brought it forward while we were running
        raise StateError(
            "LEDGER_NEWER",
            f"the ledger became version {row['version']} while this process wrote version {newest_version()}",
            hint="start again with the newer Anabranch",
        )
    intact(channels, row, f'channel "{channel}"')
    return row


def fenced_channel(connection: Connection, database: Database, lease: Lease) -> Mapping[Any, Any]:
    """The locked row of the lease's channel; refused when the lease is no longer ours."""
    row = locked_channel(connection, database, lease.pipeline_id, lease.channel)
    if row["token"] != lease.token or row["holder"] is None:
        raise lost(lease, row)
    return row


def lost(lease: Lease, row: Mapping[Any, Any]) -> LockHeld:
    """The error for a lease that somebody else took over, or that was released."""
    holder = holder_of(row)
    taker = f" by process {holder.pid} on {holder.host}" if holder and row["token"] != lease.token else ""
    return LockHeld(
        "LOCK_LOST",
        f'channel "{lease.channel}" was taken over{taker}: its token is {row["token"]}, ours was {lease.token}',
        hint="nothing of ours was written after that; stop this process and let the other one work",
    )


def holder_of(row: Mapping[Any, Any]) -> Holder | None:
    """Who holds the channel, if anybody."""
    return Holder(**json.loads(row["holder"])) if row["holder"] else None


def live_holder(row: Mapping[Any, Any]) -> Holder | None:
    """Who holds the channel and may still be working."""
    holder = holder_of(row)
    if holder is None or row["expires"] is None or row["expires"] <= row["now"] or holder.is_gone():
        return None
    return holder


def live_holders(connection: Connection, database: Database, pipeline_id: str) -> dict[str, Holder]:
    """Who may be working on which channel of a pipeline."""
    query = select(channels, database.clock().label("now")).where(channels.c.pipeline_id == pipeline_id)
    rows = connection.execute(query).mappings().all()
    return {row["channel"]: holder for row in rows if (holder := live_holder(row))}


def held(row: Mapping[Any, Any], holder: Holder) -> LockHeld:
    """The error for a channel that somebody works on."""
    since, expires = (
        datetime.fromtimestamp(row[name], UTC).isoformat(sep=" ", timespec="seconds") for name in ("since", "expires")
    )
    return LockHeld(
        "LOCK_HELD",
        f'channel "{row["channel"]}" is held by process {holder.pid} on {holder.host} since {since}, '
        f"until {expires} unless it renews",
        hint="stop that process, or wait: when it is gone its lease runs out",
        details={"host": holder.host, "pid": holder.pid, "since": row["since"], "expires": row["expires"]},
    )


def take(connection: Connection, database: Database, pipeline_id: str, channel: str, seconds: float) -> Lease:
    """Take the channel with the next token, unless somebody works on it."""
    row = locked_channel(connection, database, pipeline_id, channel)
    if holder := live_holder(row):
        raise held(row, holder)
    now, me = row["now"], this_process()
    lease = Lease(pipeline_id, channel, row["token"] + 1, me, seconds, now, now + seconds)
    write_channel(
        connection, row, token=lease.token, holder=json.dumps(asdict(me)), since=lease.since, expires=lease.expires
    )
    return lease


def write_channel(connection: Connection, row: Mapping[Any, Any], **changes: object) -> None:
    """Change the locked row of a channel."""
    values = {column.name: row[column.name] for column in channels.columns} | changes
    mine = (channels.c.pipeline_id == row["pipeline_id"]) & (channels.c.channel == row["channel"])
    connection.execute(update(channels).where(mine).values(sealed(channels, values)))


def extend(connection: Connection, database: Database, lease: Lease) -> None:
    """Move the lease's end to `seconds` from now."""
    mine = (channels.c.pipeline_id == lease.pipeline_id) & (channels.c.channel == lease.channel)
    still = mine & (channels.c.token == lease.token) & channels.c.holder.is_not(None)
    done = connection.execute(update(channels).where(still).values(expires=database.clock() + lease.seconds))
    if done.rowcount != 1:
        raise lost(lease, locked_channel(connection, database, lease.pipeline_id, lease.channel))


def give_back(connection: Connection, database: Database, lease: Lease) -> None:
    """End the lease. One that is no longer ours is left alone."""
    row = locked_channel(connection, database, lease.pipeline_id, lease.channel)
    if row["token"] == lease.token:
        write_channel(connection, row, holder=None, since=None, expires=None)
