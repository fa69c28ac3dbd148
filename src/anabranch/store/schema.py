"""The ledger's tables, and how an older ledger becomes today's.

Every row carries a checksum over what it says, because SQLite does not notice a flipped bit inside a value.
The tables have names of their own, so the ledger can share a database with others (an Iceberg catalogue).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)

from anabranch.core.epoch import digest
from anabranch.errors import StateError

tables = MetaData()


def _text(name: str) -> Column[str]:
    return Column(name, Text)


def _number(name: str) -> Column[int]:
    return Column(name, BigInteger)


def _real(name: str) -> Column[float]:
    return Column(name, Double)


meta = Table("anabranch_meta", tables, _text("name"), _text("value"), _text("checksum"))

pipelines = Table(
    "anabranch_pipelines",
    tables,
    *map(_text, ("pipeline_id", "name", "storage")),
    _real("created_at"),
    _text("checksum"),
)

#: A channel and its lease are one row: locking that row is what makes writers of a channel take turns.
channels = Table(
    "anabranch_channels",
    tables,
    *map(_text, ("pipeline_id", "channel")),
    *map(_number, ("generation", "token")),
    _text("holder"),
    *map(_real, ("since", "expires")),
    _text("checksum"),
)

outputs = Table(
    "anabranch_outputs",
    tables,
    *map(_text, ("pipeline_id", "name", "channel", "format", "location")),
    _text("checksum"),
)

epochs = Table(
    "anabranch_epochs",
    tables,
    *map(_text, ("pipeline_id", "channel")),
    *map(_number, ("generation", "epoch")),
    *map(_text, ("state", "offsets", "sinks")),
    _number("token"),
    *map(_real, ("decided_at", "published_at")),
    _text("times"),
    _real("torn_window"),
    *map(_text, ("reason", "checksum")),
)

sinks = Table(
    "anabranch_sinks",
    tables,
    *map(_text, ("pipeline_id", "channel")),
    *map(_number, ("generation", "epoch")),
    *map(_text, ("sink", "format", "location", "receipt", "receipt_checksum", "version")),
    *map(_number, ("already", "restaging")),
    _real("applied_at"),
    _text("applied_checksum"),
)

#: What the rows of an epoch were like; only where a flow of it has expectations.
quality = Table(
    "anabranch_quality",
    tables,
    *map(_text, ("pipeline_id", "channel")),
    *map(_number, ("generation", "epoch")),
    *map(_text, ("found", "checksum")),
)

#: Version 1, in words that SQLite and Postgres both take. Never edited: a change is a new step.
_VERSION_1 = (
    "CREATE TABLE anabranch_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum TEXT NOT NULL)",
    """CREATE TABLE anabranch_pipelines (
        pipeline_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, storage TEXT NOT NULL,
        created_at DOUBLE PRECISION NOT NULL, checksum TEXT NOT NULL)""",
    """CREATE TABLE anabranch_channels (
        pipeline_id TEXT NOT NULL REFERENCES anabranch_pipelines, channel TEXT NOT NULL,
        generation BIGINT NOT NULL, token BIGINT NOT NULL,
        holder TEXT, since DOUBLE PRECISION, expires DOUBLE PRECISION, checksum TEXT NOT NULL,
        PRIMARY KEY (pipeline_id, channel))""",
    """CREATE TABLE anabranch_outputs (
        pipeline_id TEXT NOT NULL, name TEXT NOT NULL, channel TEXT NOT NULL, format TEXT NOT NULL,
        location TEXT NOT NULL, checksum TEXT NOT NULL,
        PRIMARY KEY (pipeline_id, name),
        FOREIGN KEY (pipeline_id, channel) REFERENCES anabranch_channels)""",
    """CREATE TABLE anabranch_epochs (
        pipeline_id TEXT NOT NULL, channel TEXT NOT NULL, generation BIGINT NOT NULL, epoch BIGINT NOT NULL,
        state TEXT NOT NULL, offsets TEXT NOT NULL, sinks TEXT NOT NULL, token BIGINT NOT NULL,
        decided_at DOUBLE PRECISION NOT NULL, published_at DOUBLE PRECISION, times TEXT NOT NULL,
        torn_window DOUBLE PRECISION NOT NULL, reason TEXT, checksum TEXT NOT NULL,
        PRIMARY KEY (pipeline_id, channel, generation, epoch),
        FOREIGN KEY (pipeline_id, channel) REFERENCES anabranch_channels)""",
    """CREATE TABLE anabranch_sinks (
        pipeline_id TEXT NOT NULL, channel TEXT NOT NULL, generation BIGINT NOT NULL, epoch BIGINT NOT NULL,
        sink TEXT NOT NULL, format TEXT NOT NULL, location TEXT NOT NULL,
        receipt TEXT NOT NULL, receipt_checksum TEXT NOT NULL, version TEXT, already BIGINT NOT NULL,
        restaging BIGINT NOT NULL, applied_at DOUBLE PRECISION, applied_checksum TEXT NOT NULL,
        PRIMARY KEY (pipeline_id, channel, generation, epoch, sink),
        FOREIGN KEY (pipeline_id, channel, generation, epoch) REFERENCES anabranch_epochs ON DELETE CASCADE)""",
)


@dataclass(frozen=True, slots=True)
class Step:
    """Turns a ledger of version `to - 1` into version `to`."""

    to: int
    run: Callable[[Connection], None]


def statements(*lines: str) -> Callable[[Connection], None]:
    """A step that executes these statements one after the other."""

    def run(connection: Connection) -> None:
        for line in lines:
            connection.execute(text(line))

    return run


_VERSION_2 = """CREATE TABLE anabranch_quality (
    pipeline_id TEXT NOT NULL, channel TEXT NOT NULL, generation BIGINT NOT NULL, epoch BIGINT NOT NULL,
    found TEXT NOT NULL, checksum TEXT NOT NULL,
    PRIMARY KEY (pipeline_id, channel, generation, epoch),
    FOREIGN KEY (pipeline_id, channel, generation, epoch) REFERENCES anabranch_epochs ON DELETE CASCADE)"""

STEPS: Sequence[Step] = (Step(1, statements(*_VERSION_1)), Step(2, statements(_VERSION_2)))


def seal(*values: object) -> str:
    """The checksum of a row's values.

    >>> seal("a", 1, 0.5, None) == seal("a", 1, 0.5, None), seal("a", 1) == seal("a", "1")
    (True, False)
    """
    # A damaged file can hand back a value of any type; it must come out as a mismatch, not as a TypeError.
    return digest(json.dumps(values, default=repr, separators=(",", ":")))


#: The columns each table's `checksum` covers. `since` and `expires` of a channel stay out: renewing is one bare UPDATE,
#: and a wrong date there cannot break fencing.
SEALED: Mapping[str, tuple[str, ...]] = {
    meta.name: ("name", "value"),
    pipelines.name: ("pipeline_id", "name", "storage", "created_at"),
    channels.name: ("pipeline_id", "channel", "generation", "token", "holder"),
    outputs.name: ("pipeline_id", "name", "channel", "format", "location"),
    epochs.name: tuple(c.name for c in epochs.columns if c.name != "checksum"),
    quality.name: tuple(c.name for c in quality.columns if c.name != "checksum"),
}


def sealed(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a row with its checksum."""
    return {**values, "checksum": seal(*(values.get(name) for name in SEALED[table.name]))}


def intact(table: Table, row: Mapping[Any, Any], what: str) -> None:
    """Refuse a row whose checksum does not match what it says."""
    if row["checksum"] != seal(*(row[name] for name in SEALED[table.name])):
        raise damaged(what)


def damaged(what: str) -> StateError:
    """The error for a record that is not what was written."""
    return StateError(
        "LEDGER_DAMAGED",
        f"{what} in the ledger is damaged: its checksum does not match",
        hint="stop every run, restore the ledger from a backup, then run `anabranch recover`",
    )


def newest_version() -> int:
    """The version this code writes."""
    return STEPS[-1].to


def read_meta(connection: Connection) -> dict[str, str] | None:
    """What the ledger says about itself, or None when this database has no ledger."""
    if not inspect(connection).has_table(meta.name):
        return None
    found: dict[str, str] = {}
    for row in connection.execute(select(meta)).mappings():
        intact(meta, row, f'"{row["name"]}"')
        found[row["name"]] = row["value"]
    if missing := {"schema_version", "ledger_id", "location"} - set(found):
        raise damaged(f'"{min(missing)}"')
    return found


def version_of(about: Mapping[str, str]) -> int:
    """The version of a ledger. One that is newer than this code is refused."""
    version = int(about["schema_version"])
    if version > newest_version():
        raise StateError(
            "LEDGER_NEWER",
            f"the ledger has version {version}, this Anabranch knows versions up to {newest_version()}",
            hint="use the newer Anabranch that last wrote this ledger",
        )
    return version


def create(connection: Connection, about: Mapping[str, str]) -> None:
    """Make the tables of a new ledger; `about` holds its id and its place."""
    for step in STEPS:
        step.run(connection)
    rows = [{"name": k, "value": v} for k, v in {**about, "schema_version": str(newest_version())}.items()]
    connection.execute(insert(meta), [sealed(meta, row) for row in rows])


def bring_forward(connection: Connection, version: int) -> None:
    """Run the steps a ledger of this version still lacks. The caller's transaction makes it all or nothing."""
    for step in STEPS:
        if step.to > version:
            step.run(connection)
    write_meta(connection, "schema_version", str(newest_version()))


def write_meta(connection: Connection, name: str, value: str) -> None:
    """Change one thing the ledger says about itself."""
    connection.execute(update(meta).where(meta.c.name == name).values(sealed(meta, {"name": name, "value": value})))
