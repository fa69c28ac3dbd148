"""Which Iceberg sink an output needs, in which catalogue."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.core.secrets import reveal
from anabranch.errors import ProjectError, SetupError, SinkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.connectors.iceberg_catalog import Identifier, SqlTables
    from anabranch.connectors.iceberg_rest import RestTables

_PREFIX = "catalog."

#: A table, which has no options, says the same by properties that begin so; they are not written to the table.
_PROPERTY = "anabranch."


def open_iceberg(spec: SinkSpec) -> Sink:
    """The sink of an Iceberg table; nothing is touched yet.

    A table that has a log of changes is opened with it, whatever is declared by now: an epoch may wait to be finished.
    """
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise SetupError(
            "EXTRA_MISSING",
            f'"{spec.name}" is an Iceberg table, and pyiceberg is not installed',
            hint="pip install 'anabranch[iceberg]'",
        ) from error
    from anabranch.connectors.iceberg import IcebergSink
    from anabranch.connectors.iceberg_catalog import SqlTables
    from anabranch.connectors.iceberg_changes import IcebergChanges, has_changes
    from anabranch.connectors.iceberg_table import IcebergTable
    from anabranch.connectors.parquet_transforms import Part

    location = spec.location if "://" in spec.location else os.path.abspath(spec.location)
    tables, identifier = _declared(spec) if spec.declared else _remembered(spec, location)
    table = IcebergTable(
        spec.name,
        location,
        identifier,
        tables,
        tuple(Part.of(text) for text in spec.partition_by),
        {name: value for name, value in spec.properties.items() if not name.startswith(_PROPERTY)},
        spec.comment,
        spec.pipeline,
    )
    if not spec.merge and not has_changes(location):
        return IcebergSink(table, spec.unique)
    if not isinstance(tables, SqlTables):
        raise ProjectError(
            "OPTION_INVALID",
            f'"{spec.name}" takes changes by key: the table and the log of its changes must move together, which a '
            "REST catalogue does not do",
            hint="use an SQL catalogue for it: leave the option catalog out, or name a Postgres database",
        )
    return IcebergChanges(table, spec.merge)


def identifier_of(name: str) -> Identifier:
    """A table's name in a catalogue, which always has a namespace.

    >>> identifier_of("orders"), identifier_of("silver.orders")
    (('default', 'orders'), ('silver', 'orders'))
    """
    parts = tuple(name.split("."))
    return parts if len(parts) > 1 else ("default", *parts)


def _declared(spec: SinkSpec) -> tuple[SqlTables | RestTables, Identifier]:
    told = {name.removeprefix(_PROPERTY): v for name, v in spec.properties.items() if name.startswith(_PROPERTY)}
    options = {name: reveal(value) for name, value in {**told, **spec.options}.items()}
    properties = {name.removeprefix(_PREFIX): v for name, v in options.items() if name.startswith(_PREFIX)}
    return tables_at(options.get("catalog") or _usual(spec), properties), identifier_of(
        options.get("table") or spec.name
    )


def _remembered(spec: SinkSpec, location: str) -> tuple[SqlTables, Identifier]:
    """A table without its declaration is looked for in the catalogue that is used when none is named."""
    from anabranch.connectors.iceberg_catalog import SqlTables, Undeclared

    tables = SqlTables(_usual(spec), {})
    try:
        found = tables.at(location) if tables.is_there else None
    except SinkError:
        found = None
    return (tables, found) if found else (Undeclared(spec.name, {}), identifier_of(spec.name))


def _usual(spec: SinkSpec) -> str:
    return f"sqlite:///{os.path.abspath(spec.storage)}/iceberg.db"


def tables_at(url: str, properties: Mapping[str, str]) -> SqlTables | RestTables:
    """The tables of the catalogue at a URL; nothing is touched yet.

    >>> tables_at("postgresql://ann:tulip@db/lake", {}).shown
    'postgresql+psycopg://ann:***@db/lake'
    """
    import sqlalchemy as sa

    from anabranch.connectors.iceberg_catalog import SqlTables
    from anabranch.connectors.iceberg_rest import RestTables

    if url.startswith(("http://", "https://")):
        return RestTables(url, properties)
    try:
        found = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise _no_catalog("it cannot be read as a URL") from None
    kind = found.drivername.partition("+")[0]
    if kind == "postgres" or found.drivername == "postgresql":
        found = found.set(drivername="postgresql+psycopg")
    elif kind not in ("sqlite", "postgresql"):
        raise _no_catalog(f'"{kind}" is neither sqlite, postgresql nor http')
    return SqlTables(found.render_as_string(hide_password=False), properties)


def _no_catalog(why: str) -> ProjectError:
    return ProjectError(
        "OPTION_INVALID",
        f'the option "catalog" does not name an Iceberg catalogue: {why}',
        hint="write sqlite:///path/to/iceberg.db, postgresql://user@host/database, or the https:// address of a REST "
        "catalogue",
    )
