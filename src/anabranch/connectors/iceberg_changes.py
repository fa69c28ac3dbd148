"""An Iceberg table whose rows are changed by key: newest row of each key, or its history.

Beside the table stands the log of all changes it was made of, a table of its own in the folder `_changes`. An epoch
adds the staged changes to the log and puts the rows of the keys that changed in the place of those the table has: the
files that hold such a key are written anew. Both tables move in the one transaction of the catalogue, so what one of
them has the other has too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from anabranch.connectors.changes import asking, replacement, table_schema
from anabranch.connectors.contract import Sink, Staging
from anabranch.connectors.folder import Folder
from anabranch.connectors.iceberg import find, latest
from anabranch.connectors.iceberg_catalog import SqlTables
from anabranch.connectors.iceberg_commit import Takes, take_all
from anabranch.connectors.iceberg_moves import Move
from anabranch.connectors.iceberg_table import IcebergTable
from anabranch.connectors.iceberg_versions import dataset, vacuum
from anabranch.connectors.rewrite import rewritten
from anabranch.core.changes import Merge
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import ICEBERG
from anabranch.errors import InternalError, StateError

FOLDER = "_changes"

#: Rewritten files are named like staged ones of a lease before all others: those of a dead attempt are leftovers.
_TOKEN = 0


def has_changes(location: str) -> bool:
    """Whether the table there is one that is changed by key."""
    return Folder(location).exists(f"{FOLDER}/metadata")


class IcebergChanges:
    """The table and its log. `merge` is what the project declares; a receipt carries its own."""

    format = "iceberg"
    capabilities = ICEBERG.capabilities

    def __init__(self, table: IcebergTable, merge: Merge | None) -> None:
        assert isinstance(table.tables, SqlTables), "the table and its log move together"
        self.name, self.location = table.name, table.location
        self._tables = table.tables
        self.group = table.tables.url
        self._merge = merge
        self._table = table
        self._log = replace(
            table,
            name=f"{table.name}/changes",
            location=f"{table.location}/{FOLDER}",
            identifier=(*table.identifier[:-1], f"{table.identifier[-1]}__changes"),
            parts=(),
            comment=f"every change that made {table.name}",
        )
        self.own: tuple[IcebergTable, ...] = (self._table, self._log)
        self._schema: pa.Schema | None = None

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched."""
        self._check_past()
        return self._table.examine(self._table.accept(table_schema(schema, self._declared())))

    def prepare(self, schema: pa.Schema) -> None:
        """Make the table and its log ready; `schema` is that of the changes."""
        self._check_past()
        changes = self._log.accept(schema)
        self._table.create(self._table.accept(table_schema(changes, self._declared())))
        self._log.create(changes)
        self._schema = changes

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Changes are staged where their log will name them."""
        return self._log.staging(key, token, self._prepared())

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The staged changes, with how they are applied."""
        staged = self._log.receipt(self._prepared(), files, replace=replace)
        return Receipt(self.name, staged.files, staged.schema, replace, self._declared())

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged changes."""
        return self._log.data.damage(receipt.files)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Move the table and its log, unless they have the epoch."""
        return take_all(self._tables, key, [(self, receipt)])[0]

    def apply_all(self, key: EpochKey, taken: Sequence[tuple[Sink, Receipt]]) -> list[Applied]:
        """The same for all sinks of one catalogue, in one transaction."""
        return take_all(self._tables, key, [(cast("Takes", sink), receipt) for sink, receipt in taken])

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the table has this epoch."""
        return find(self._table, key)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch."""
        return latest(self._table, key)

    def version(self) -> str:
        """The name of the table's newest metadata."""
        return self._table.version()

    def has(self, version: str) -> bool:
        """Whether the table once stood at this version, and has its log."""
        return self._table.has(version) and self._log.is_there()

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged changes and rewritten files that belong to nothing."""
        log = self._log.leftovers(keep, token)
        return [*self._table.leftovers(frozenset(), token), *((f"{FOLDER}/{path}", size) for path, size in log)]

    def discard(self, paths: Iterable[str]) -> None:
        """Remove such files."""
        for path in paths:
            folder, _, rest = path.partition("/")
            if folder == FOLDER:
                self._log.discard([rest])
            else:
                self._table.discard([path])

    def remove(self) -> None:
        """Take the table and its log out of the catalogue, and remove all their files."""
        self._log.remove()
        self._table.remove()

    def vacuum(self, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
        """Forget old snapshots that none of the versions needs, and remove their files; of the log, all old ones."""
        clean = partial(vacuum, self._tables, older_than_hours=older_than_hours, dry_run=dry_run)
        removed, log = clean(self._table.fresh(), versions), clean(self._log.fresh(), set())
        return [*removed, *(f"{FOLDER}/{path}" for path in log)]

    def moves(self, key: EpochKey, receipt: Receipt) -> list[Move]:
        """The log with the staged changes, and the table that they make, as both stand now."""
        logged = self._log.move(key, receipt, sink=None)
        with asking():
            made, gone = self._changed(key, receipt, logged)
        return [logged, self._table.move(key, made, sink=self.name, gone=lambda file: file.file_path in gone)]

    def _changed(self, key: EpochKey, receipt: Receipt, logged: Move) -> tuple[Receipt, set[str]]:
        """The rows that come into the table, and the files that go out of it."""
        merge = receipt.merge
        assert merge is not None, "a receipt for changes says how they are applied"
        metadata, before = logged.transaction.table_metadata, logged.table.metadata
        log = _rows(metadata, logged.table.io)
        staged = {self._log.data.full(f.path) for f in receipt.files}
        new = [f.to_table(schema=log.schema) for f in log.get_fragments() if f.path in staged]
        changes = pa.concat_tables(new) if new else log.schema.empty_table()
        result = replacement(merge, changes, log, None if receipt.replace else _wide(before, metadata, logged.table.io))
        schema = table_schema(log.schema, merge)
        table = self._table.fresh()
        staging = self._table.staging_like(key, _TOKEN, schema, table.metadata)
        keys = None if receipt.replace else result.keys
        files, given_up = rewritten(staging, _rows(table.metadata, table.io), merge, keys, result.rows)
        start = len(self._table.data.full("")) + 1
        gone = {self._table.full(path[start:]) for path in given_up}
        return self._table.receipt(schema, files, replace=receipt.replace), gone

    def _declared(self) -> Merge:
        if self._merge is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage changes, but not which')
        return self._merge

    def _prepared(self) -> pa.Schema:
        if self._schema is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage changes before prepare')
        return self._schema

    def _check_past(self) -> None:
        """A table that has rows and no log of them was fed in another way."""
        if self._table.is_there() and not self._log.is_there() and self._table.fresh().current_snapshot():
            raise StateError(
                "CHANGES_WITHOUT_LOG",
                f'table "{self.name}" has rows that came in another way: which change made them is not known',
                hint="let the changes go to a new table, or remove this one and reset its channel",
            )


def _rows(metadata: TableMetadata, io: FileIO) -> ds.Dataset:
    return dataset(metadata, io, "as it stands")


def _wide(before: TableMetadata, metadata: TableMetadata, io: FileIO) -> ds.Dataset:
    """The log as it was, with the columns that it has by now."""
    return _rows(before, io).replace_schema(_rows(metadata, io).schema)
