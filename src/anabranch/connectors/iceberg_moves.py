"""An Iceberg table on its way from one metadata file to the next: what is written for that, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID, update_table_metadata

from anabranch.connectors.folder import Folder
from anabranch.connectors.object_store import system_at
from anabranch.core.epoch import EpochKey


class Change(Transaction):
    """Updates of a table that wait to be committed, with what they make of it.

    pyiceberg copies all of the metadata each time it looks at it, some fifteen times for one snapshot: with a hundred
    snapshots in the table that takes longer than everything else together.
    """

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._made: tuple[int, TableMetadata] = (0, table.metadata)

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata once this is committed."""
        if self._made[0] != len(self._updates):
            made = update_table_metadata(
                self._table.metadata, self._updates, metadata_location=self._table.metadata_location
            )
            self._made = (len(self._updates), made)
        return self._made[1]


@dataclass(frozen=True, slots=True)
class Move:
    """One table on its way to new metadata. `sink` is whose version that is, None for a table that stands beside it."""

    table: Table
    transaction: Change
    sink: str | None

    @property
    def changes(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What the table must still be like, and what becomes of it."""
        same = AssertTableUUID(uuid=self.table.metadata.table_uuid)
        return (*self.transaction._requirements, same), self.transaction._updates  # noqa: SLF001


class Written(PyArrowFileIO):
    """Reads and writes metadata; remembers what was written, so that it can be made durable before it is named."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self.paths: list[str] = []

    def new_output(self, location: str) -> PyArrowFile:
        """A file to be written."""
        self.paths.append(location)
        return super().new_output(location)

    def sync(self) -> None:
        """Make durable what was written since the last time."""
        paths, self.paths = self.paths, []
        for path in paths:
            folder, _, name = path.rpartition("/")
            Folder(folder).sync_file(name)

    def _initialize_fs(self, scheme: str, netloc: str | None = None) -> Any:
        """A store is reached as everything else of a table reaches it, unless the catalogue says how."""
        if scheme == "s3" and not any(name.startswith("s3.") for name in self.properties):
            return system_at(f"s3://{netloc}")[0]
        return super()._initialize_fs(scheme, netloc)


#: Lets pyiceberg reach files in the same way wherever it opens them itself.
IO = {"py-io-impl": f"{Written.__module__}.{Written.__qualname__}"}


def summary_of(key: EpochKey, sink: str) -> dict[str, str]:
    """What a snapshot says of the epoch that made it."""
    return {"anabranch.transaction": key.transaction_id(sink), "anabranch.epoch": str(key.epoch)}


def made_by(snapshot: Snapshot | None, key: EpochKey, sink: str) -> bool:
    """Whether an epoch made this snapshot."""
    summary = snapshot.summary if snapshot else None
    return summary is not None and all(summary[name] == value for name, value in summary_of(key, sink).items())
