"""Opening a ledger: make it, look at it hard, bring it up to date, make sure it is no copy."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from sqlalchemy import Connection, text

from anabranch.core.durable import sync
from anabranch.core.secrets import reveal
from anabranch.errors import StateError
from anabranch.store import schema
from anabranch.store.address import Address, parse_address
from anabranch.store.database import Database, damaged_file, not_writable


def open_database(url: str, *, create: bool, readonly: bool, moved: bool) -> tuple[Database, dict[str, str]]:
    """The database of a ledger that is whole, of today's version and in its place; and what it says of itself."""
    address = parse_address(reveal(url))
    create = create and not readonly
    if address.file and not address.file.exists():
        if not create:
            raise _missing(address)
        _make_file(address, address.file)
    if address.file and address.file.is_file() and address.file.stat().st_size == 0:
        raise damaged_file(address, "the file is empty")
    if address.file and not readonly and not _may_write(address.file):
        raise not_writable(address, "permission denied")
    database = Database(address, readonly=readonly)
    try:
        about = _look(database, create)
        if not moved:
            _refuse_copy(database, about)
    except BaseException:
        database.close()
        raise
    return database, about


def _may_write(file: Path) -> bool:
    # Asked, not tried: SQLite takes a protected file as read-only without a word until the first write, and opening
    # the file ourselves and closing it again would drop the locks that this process has on it.
    return os.access(file, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _look(database: Database, create: bool) -> dict[str, str]:
    database.check()
    if database.readonly:
        about = database.read(schema.read_meta)
        if about is None:
            raise _missing(database.address)
        if (version := schema.version_of(about)) < schema.newest_version():
            raise StateError(
                "LEDGER_OLDER",
                f"the ledger has version {version}, this Anabranch reads version {schema.newest_version()}",
                hint="run `anabranch recover` once: opening the ledger for writing brings it forward",
            )
        return about
    place = database.place()

    def bring_up_to_date(connection: Connection) -> dict[str, str]:
        if not database.address.file:
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('anabranch ledger ' || current_schema()))"))
        about = schema.read_meta(connection)
        if about is None:
            if not create:
                raise _missing(database.address)
            schema.create(connection, _new_about(place))
        elif (version := schema.version_of(about)) < schema.newest_version():
            schema.bring_forward(connection, version)
        return schema.read_meta(connection) or {}

    # A writing transaction even when there is nothing to change: it finds out that we may write.
    return database.write(bring_up_to_date, repeatable=True)


def _new_about(place: str) -> dict[str, str]:
    return {"ledger_id": str(uuid.uuid4()), "location": place}


def _refuse_copy(database: Database, about: dict[str, str]) -> None:
    place = database.place()
    if about["location"] != place:
        raise StateError(
            "LEDGER_COPIED",
            f"the ledger at {place} was made at {about['location']}: it is a copy, or it was moved",
            hint="use the ledger where it was made; if it was moved and the old one is gone, run "
            "`anabranch recover --moved`",
        )


def _missing(address: Address) -> StateError:
    return StateError(
        "LEDGER_MISSING",
        f"there is no ledger at {address.shown}",
        hint="check the address; `anabranch run` makes a ledger for a new pipeline. If there was one, restore it: "
        "without it, what was decided is not known",
    )


def _make_file(address: Address, file: Path) -> None:
    """Make a whole new ledger beside its place and link it there, so that nobody ever meets half a ledger."""
    unfinished = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.touch(exist_ok=False)
        try:
            database = Database(Address(address.shown, address.url, unfinished), readonly=False)
            try:
                database.write(lambda c: schema.create(c, _new_about(os.path.realpath(file))))
            finally:
                database.close()  # the last connection to close folds the write-ahead log into the file
            sync(unfinished)
            os.link(unfinished, file)
            sync(file.parent)
        finally:
            unfinished.unlink()
    except FileExistsError:
        return  # another process made it first
    except OSError as error:
        raise not_writable(address, error.strerror or str(error)) from error
