"""Iceberg tables as sinks: ready-made Parquet files are named in new metadata, and the catalogue is moved to it.

With an SQL catalogue all tables of an epoch move in one transaction, and whoever reads their places in one query never
sees some of them moved and others not. A REST server is asked table by table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.connectors.contract import Sink, Staging
from anabranch.connectors.delta_schema import check_unique
from anabranch.connectors.iceberg_catalog import SqlTables
from anabranch.connectors.iceberg_commit import Takes, take_all, take_alone
from anabranch.connectors.iceberg_moves import Move
from anabranch.connectors.iceberg_rest import RestTables
from anabranch.connectors.iceberg_table import IcebergTable
from anabranch.connectors.iceberg_versions import dataset, staged_dataset, vacuum, version_name
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import ICEBERG
from anabranch.errors import InternalError

if TYPE_CHECKING:
    from anabranch.core.declarations import Unique

#: What is said of a table whose catalogue moves one table at a time.
_ALONE = "a REST catalogue moves each table by itself: plain readers may see it before or after other tables"


class IcebergSink:
    """An Iceberg table that takes epochs by appending."""

    format = "iceberg"
    capabilities = ICEBERG.capabilities
    group: str  # only where the catalogue moves several tables at once

    def __init__(self, table: IcebergTable, unique: tuple[Unique, ...] = ()) -> None:
        self.name, self.location = table.name, table.location
        self.own: tuple[IcebergTable, ...] = (table,)
        self.unique = unique
        self._tables = table.tables
        self._table = table
        self._schema: pa.Schema | None = None
        if isinstance(table.tables, SqlTables):
            self.group = table.tables.url

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched."""
        rows = self._accept(schema)
        found = self._table.examine(rows)
        return f"{found}; {_ALONE}" if isinstance(self._tables, RestTables) else found

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table, or see whether it can take rows of this schema. Columns it lacks are added by `apply`."""
        self._schema = self._accept(schema)
        self._table.create(self._schema)

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Files go into the table's own folder, where no reader sees them before metadata names them."""
        return self._table.staging(key, token, self._prepared())

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The files in a fixed order, with the rows' schema in Iceberg's JSON form."""
        return self._table.receipt(self._prepared(), files, replace=replace)

    def staged_rows(self, receipt: Receipt) -> ds.Dataset:
        """The rows of a receipt, before they are in the table."""
        return staged_dataset(self._table.data, receipt.files, self._prepared())

    def rows(self) -> ds.Dataset:
        """The table as it stands."""
        table = self._table.fresh()
        return dataset(table.metadata, table.io, self._table.version())

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files, reading every byte."""
        return self._table.data.damage(receipt.files)

    def moves(self, key: EpochKey, receipt: Receipt) -> list[Move]:
        """New metadata that names the receipt's files."""
        return [self._table.move(key, receipt, sink=self.name)]

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Name the receipt's files in the table, unless it has this epoch already."""
        if isinstance(self._tables, RestTables):
            return take_alone(self._tables, key, self, receipt)
        return take_all(self._tables, key, [(self, receipt)])[0]

    def apply_all(self, key: EpochKey, taken: Sequence[tuple[Sink, Receipt]]) -> list[Applied]:
        """The same for all sinks of one SQL catalogue, in one transaction."""
        assert isinstance(self._tables, SqlTables), "a REST server moves each table by itself"
        return take_all(self._tables, key, [(cast("Takes", sink), receipt) for sink, receipt in taken])

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the table has this epoch, and at which version. An epoch without rows leaves no trace."""
        return find(self._table, key)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch in the table."""
        return latest(self._table, key)

    def version(self) -> str:
        """The name of the table's newest metadata."""
        return self._table.version()

    def has(self, version: str) -> bool:
        """Whether the table is there and once stood at this version."""
        return self._table.has(version)

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Our own staged files of older attempts that no snapshot names."""
        return self._table.leftovers(keep, token)

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files of ours."""
        self._table.discard(paths)

    def remove(self) -> None:
        """Take the table out of the catalogue, and remove all its files."""
        self._table.remove()

    def vacuum(self, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
        """Forget old snapshots that none of the versions needs, and remove their files."""
        table = self._table.fresh()
        return vacuum(self._tables, table, versions, older_than_hours=older_than_hours, dry_run=dry_run)

    def _accept(self, schema: pa.Schema) -> pa.Schema:
        rows = self._table.accept(schema)
        check_unique(self.name, self.unique, rows.names)
        return rows

    def _prepared(self) -> pa.Schema:
        if self._schema is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage rows before prepare')
        return self._schema


def find(table: IcebergTable, key: EpochKey) -> Applied | None:
    """Whether a table has an epoch."""
    if isinstance(table.tables, RestTables):
        place = table.tables.found(key, table.name, table.fresh())
    else:
        place = table.tables.found(key, [table.name]).get(table.name)
    return None if place is None else Applied(version_name(table.location, place), already=True)


def latest(table: IcebergTable, key: EpochKey) -> int | None:
    """The newest epoch in a table."""
    if isinstance(table.tables, RestTables):
        return table.tables.latest(key, table.name, table.fresh())
    return table.tables.latest(key, table.name)
