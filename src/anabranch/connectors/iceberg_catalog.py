"""Iceberg catalogues: an SQL database that moves any number of tables in one transaction, or a REST server.

The SQL catalogue is the one that pyiceberg's `SqlCatalog` and Iceberg's `JdbcCatalog` read: one row for each table,
with the place of its newest metadata. Beside it we keep which epoch made which metadata, written in the transaction
that moves the rows: what a table has and what we know of it cannot come apart.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import sqlalchemy as sa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.update.snapshot import ExpireSnapshots
from sqlalchemy.exc import SQLAlchemyError

from anabranch.connectors.iceberg_moves import IO, Change, Move, Written
from anabranch.connectors.object_store import plain
from anabranch.core.epoch import EpochKey
from anabranch.errors import SetupError, SinkError, StateError

#: The name under which the tables stand in an SQL catalogue; a Spark catalogue that reads them has the same.
CATALOG = "anabranch"

Identifier = tuple[str, ...]

_BUSY_SECONDS = 30

_EPOCHS = sa.Table(
    "anabranch_epochs",
    sa.MetaData(),
    sa.Column("transaction_id", sa.String(500), primary_key=True),
    sa.Column("epoch", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("table_namespace", sa.String(255), nullable=False),
    sa.Column("table_name", sa.String(255), nullable=False),
    sa.Column("metadata_location", sa.String(1000), nullable=False),
)


@dataclass
class Tables:
    """The tables of one catalogue."""

    url: str = field(repr=False)  # it may have a password, and so may they
    properties: Mapping[str, str] = field(repr=False)

    @property
    def catalog(self) -> Catalog:
        """The catalogue, opened when it is first asked."""
        raise NotImplementedError

    def load(self, identifier: Identifier) -> Table | None:
        """A table as it stands now."""
        try:
            with self.asked():
                found = self.catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except (FileNotFoundError, ValueError) as error:
            raise SinkError(
                "TABLE_UNREADABLE",
                f"the metadata of {'.'.join(identifier)} cannot be read: {plain(error)}",
                hint="check that the storage is there and that the files below metadata/ are whole",
                retryable=True,
            ) from error
        return self._own(found)

    def create(
        self, identifier: Identifier, schema: Schema, parts: PartitionSpec, location: str, properties: Mapping[str, str]
    ) -> None:
        """Create a table, unless another process is quicker."""
        with self.asked():
            for level in range(1, len(identifier)):
                self._create_namespace(identifier[:level])
            try:
                self.catalog.create_table(identifier, schema, location, parts, properties=dict(properties))
            except TableAlreadyExistsError:
                return

    def drop(self, identifier: Identifier) -> None:
        """Take a table out of the catalogue; its files stay."""
        with self.asked():
            try:
                self.catalog.drop_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return

    def expire(self, table: Table, snapshots: Sequence[int]) -> None:
        """Let a table forget snapshots."""
        with self.asked():
            table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Around what asks the catalogue: its refusals get our words."""
        try:
            yield
        except (SQLAlchemyError, RESTError, ConnectionError) as error:
            raise self.trouble(error) from error
        except OSError as error:
            if type(error).__module__.startswith("requests"):
                raise self.trouble(error) from error
            raise

    def trouble(self, error: Exception) -> SinkError:
        """The catalogue does not answer."""
        said = plain(Exception(str(getattr(error, "orig", None) or error)))
        return SinkError(
            "CATALOG_UNREACHABLE",
            f"the Iceberg catalogue {self.shown} did not answer: {said}",
            hint="check the option catalog and that the database or server is up, then run again",
            retryable=True,
        )

    @property
    def shown(self) -> str:
        """The address for people."""
        return self.url

    def _create_namespace(self, namespace: Identifier) -> None:
        try:
            self.catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            return

    def _own(self, table: Table) -> Table:
        io = Written({**self.properties, **table.io.properties})
        return Table(table.name(), table.metadata, table.metadata_location, io, self.catalog)


@dataclass
class SqlTables(Tables):
    """Those of an SQL catalogue."""

    @property
    def shown(self) -> str:
        """The address without its password."""
        return sa.make_url(self.url).render_as_string(hide_password=True)

    @property
    def is_there(self) -> bool:
        """Whether there is a catalogue; a database file that is not there yet is not made by asking."""
        url = sa.make_url(self.url)
        return url.get_backend_name() != "sqlite" or os.path.exists(url.database or "")

    @cached_property
    def catalog(self) -> SqlCatalog:
        """The catalogue, with its tables and ours."""
        url = sa.make_url(self.url)
        if url.get_backend_name() == "sqlite":
            os.makedirs(os.path.dirname(os.path.abspath(url.database or "")), exist_ok=True)
            url = url.update_query_dict({"timeout": str(_BUSY_SECONDS)})
        try:
            with self.asked():
                text = url.render_as_string(hide_password=False)
                catalog = SqlCatalog(CATALOG, **{**IO, **self.properties, "uri": text})
                with catalog.engine.connect() as connection:
                    if url.get_backend_name() == "sqlite":
                        connection.exec_driver_sql("PRAGMA journal_mode=WAL")
                    connection.execute(sa.schema.CreateTable(_EPOCHS, if_not_exists=True))
                    connection.commit()
                return catalog
        except ImportError as error:
            raise SetupError(
                "EXTRA_MISSING",
                f"the Iceberg catalogue {self.shown} needs a driver that is not installed: {error.name}",
                hint="pip install 'anabranch[postgres]'",
            ) from error

    def location_of(self, identifier: Identifier) -> str | None:
        """Where a table's metadata is now."""
        with self.asked(), self.catalog.engine.connect() as connection:
            found: str | None = connection.scalar(sa.select(IcebergTables.metadata_location).where(_is(identifier)))
            return found

    def at(self, location: str) -> Identifier | None:
        """The table whose metadata is below a location."""
        start = IcebergTables.metadata_location.startswith(f"{location}/metadata/", autoescape=True)
        query = sa.select(IcebergTables.table_namespace, IcebergTables.table_name)
        with self.asked(), self.catalog.engine.connect() as connection:
            found = connection.execute(query.where(IcebergTables.catalog_name == CATALOG, start)).first()
            return (*found[0].split("."), found[1]) if found else None

    def found(self, key: EpochKey, sinks: Iterable[str]) -> dict[str, str]:
        """The metadata that this epoch made, for those of the sinks that have it."""
        names = {key.transaction_id(sink): sink for sink in sinks}
        query = sa.select(_EPOCHS.c.transaction_id, _EPOCHS.c.metadata_location).where(
            _EPOCHS.c.transaction_id.in_(names), _EPOCHS.c.epoch == key.epoch
        )
        with self.asked(), self.catalog.engine.connect() as connection:
            return {names[transaction]: place for transaction, place in connection.execute(query)}

    def latest(self, key: EpochKey, sink: str) -> int | None:
        """The newest epoch that a sink has."""
        query = sa.select(sa.func.max(_EPOCHS.c.epoch)).where(_EPOCHS.c.transaction_id == key.transaction_id(sink))
        with self.asked(), self.catalog.engine.connect() as connection:
            newest: int | None = connection.scalar(query)
            return newest

    def was_at(self, identifier: Identifier, metadata_location: str) -> bool:
        """Whether one of our epochs made this metadata of a table."""
        query = sa.select(_EPOCHS.c.epoch).where(_EPOCHS.c.metadata_location == metadata_location, _was(identifier))
        with self.asked(), self.catalog.engine.connect() as connection:
            return connection.execute(query.limit(1)).first() is not None

    def forget(self, identifier: Identifier) -> None:
        """Take a table out of the catalogue, and with it what we know of its epochs."""
        with self.asked(), self._writing() as connection:
            connection.execute(sa.delete(IcebergTables).where(_is(identifier)))
            connection.execute(sa.delete(_EPOCHS).where(_was(identifier)))

    def stage(self, move: Move) -> Table:
        """The table as the move makes it: its metadata is written and durable, and nothing names it."""
        metadata, io = move.transaction.table_metadata, move.table.io
        assert isinstance(io, Written)
        number = self.catalog._parse_metadata_version(move.table.metadata_location) + 1  # noqa: SLF001
        place = load_location_provider(metadata.location, metadata.properties).new_table_metadata_file_location(number)
        self.catalog._write_metadata(metadata, io, place)  # noqa: SLF001
        io.sync()
        return Table(move.table.name(), metadata, place, io, self.catalog)

    def expire(self, table: Table, snapshots: Sequence[int]) -> None:
        """Let a table forget snapshots; what says so is durable before it is named, as for an epoch."""
        change = Change(table)
        ExpireSnapshots(change).by_ids(list(snapshots)).commit()
        move = Move(table, change, None)
        try:
            with self.asked():
                self.swap(None, [(move, self.stage(move))])
        except CommitFailedException as error:
            raise SinkError(
                "COMMIT_REFUSED",
                f"old snapshots were not removed: {plain(error)}",
                hint="run it again when nobody else writes to the table",
                retryable=True,
            ) from error

    def swap(self, key: EpochKey | None, staged: Sequence[tuple[Move, Table]]) -> None:
        """Move all tables to their staged metadata in one transaction, with the record of the epoch."""
        in_order = sorted(staged, key=lambda each: each[0].table.name())  # two that meet wait, and do not lock up
        with self._writing() as connection:
            for move, table in in_order:
                name = move.table.name()
                old = move.table.metadata_location
                moved = connection.execute(
                    sa.update(IcebergTables)
                    .where(_is(name), IcebergTables.metadata_location == old)
                    .values(metadata_location=table.metadata_location, previous_metadata_location=old)
                )
                if moved.rowcount != 1:
                    raise CommitFailedException(f"{'.'.join(name)} has been moved by another writer")
                if key is not None and move.sink is not None:
                    connection.execute(
                        _EPOCHS.insert().values(
                            transaction_id=key.transaction_id(move.sink),
                            epoch=key.epoch,
                            table_namespace=".".join(name[:-1]),
                            table_name=name[-1],
                            metadata_location=table.metadata_location,
                        )
                    )

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        """One transaction; on SQLite it is the only writer from its start."""
        with self.catalog.engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA synchronous=FULL")
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            yield connection
            connection.commit()


@dataclass
class Undeclared(SqlTables):
    """Those of a catalogue that only the declaration of the output `url` names, which is not at hand."""

    @property
    def shown(self) -> str:
        """Nothing is known of it."""
        return "that is not known"

    @property
    def is_there(self) -> bool:
        """It may be."""
        return True

    @property
    def catalog(self) -> SqlCatalog:
        """Cannot be opened."""
        raise StateError(
            "DECLARATION_NEEDED",
            f'in which Iceberg catalogue "{self.url}" is, only its declaration says, which is not at hand',
            hint="anabranch run; if the project no longer declares it, declare it again for one run, or start its "
            "channel over: anabranch reset",
        )


def _is(identifier: Identifier) -> sa.ColumnElement[bool]:
    return sa.and_(
        IcebergTables.catalog_name == CATALOG,
        IcebergTables.table_namespace == ".".join(identifier[:-1]),
        IcebergTables.table_name == identifier[-1],
    )


def _was(identifier: Identifier) -> sa.ColumnElement[bool]:
    return sa.and_(
        _EPOCHS.c.table_namespace == ".".join(identifier[:-1]),
        _EPOCHS.c.table_name == identifier[-1],
    )
