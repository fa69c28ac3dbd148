"""Iceberg tables of a REST catalogue, which moves each by itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import StaticTable, Table

from anabranch.connectors.iceberg_catalog import CATALOG, Tables
from anabranch.connectors.iceberg_moves import IO, Move, Written, made_by
from anabranch.core.epoch import EpochKey
from anabranch.errors import StateError

#: The property of a table in a REST catalogue that says which epoch it took last.
_MARKER = "anabranch.epoch."


@dataclass
class RestTables(Tables):
    """Those of a REST server. Each moves on its own; a property of the table says which epoch it took last."""

    @cached_property
    def catalog(self) -> Catalog:
        """The catalogue."""
        with self.asked():
            return load_catalog(CATALOG, **{**IO, **self.properties, "type": "rest", "uri": self.url})

    def found(self, key: EpochKey, sink: str, table: Table) -> str | None:
        """The metadata that this epoch made of a sink's table, or the newest if that cannot be told from it."""
        newest = self.latest(key, sink, table)
        if newest is None or newest < key.epoch:
            return None
        if made_by(table.current_snapshot(), key, sink):
            return table.metadata_location
        for entry in reversed(table.metadata.metadata_log):
            with self.asked():
                older = StaticTable.from_metadata(entry.metadata_file, dict(table.io.properties))
            if made_by(older.current_snapshot(), key, sink):
                return entry.metadata_file
        if newest == key.epoch:
            return table.metadata_location
        raise StateError(
            "EPOCH_NOT_IN_LOG",
            f'table "{sink}" is at epoch {newest}, and its metadata no longer tells where epoch {key.epoch} is',
            hint="the ledger is older than the table: restore the ledger's newest copy, or reset the channel",
        )

    def latest(self, key: EpochKey, sink: str, table: Table) -> int | None:
        """The newest epoch that a sink's table has."""
        text = table.metadata.properties.get(_MARKER + key.transaction_id(sink))
        return int(text) if text else None

    def commit(self, key: EpochKey, move: Move) -> str:
        """Move one table; where its metadata is then."""
        assert move.sink is not None
        move.transaction.set_properties({_MARKER + key.transaction_id(move.sink): str(key.epoch)})
        requirements, updates = move.changes
        io = move.table.io
        assert isinstance(io, Written)
        io.sync()
        answer = self.catalog.commit_table(move.table, requirements, updates)
        return answer.metadata_location
