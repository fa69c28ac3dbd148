"""Delta tables as sinks: ready-made Parquet files are added to the table's log by delta-rs.

The log's own transaction marker (`EpochKey.transaction_id`, epoch) says which epoch the table took last. delta-rs only
records it, so it is compared here on the very snapshot the commit is made against; should somebody else have taken the
same epoch since, delta-rs finds the same marker in a newer commit and refuses ours.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, DeltaProtocolError, SchemaMismatchError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from anabranch.connectors.contract import Staging
from anabranch.connectors.delta_log import (
    LOG,
    Log,
    commit_path,
    commit_version,
    live_files,
    staged_name,
    staged_prefix,
    stats_text,
)
from anabranch.connectors.delta_schema import (
    check_retention,
    check_table,
    check_unique,
    delta_arrow_schema,
    delta_json,
)
from anabranch.connectors.delta_versions import arrow_dataset, compact, staged_dataset, vacuum
from anabranch.connectors.folder import Folder
from anabranch.connectors.object_store import plain
from anabranch.connectors.parquet_files import file_bytes
from anabranch.connectors.parquet_partitions import check_partition_columns
from anabranch.core import crash
from anabranch.core.declarations import Unique
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import DELTA
from anabranch.errors import CommitUnknown, InternalError, ProjectError, SinkError, StateError

__all__ = ["PROPERTIES", "DeltaSink", "arrow_dataset", "read_version", "vacuum"]

#: What a table of ours is created with; a project may say otherwise, but for the two refused below.
PROPERTIES: Mapping[str, str] = {
    "delta.checkpointInterval": "10",  # a refresh reads the log back to the last checkpoint: keeps a commit at 10 ms
    "delta.enableExpiredLogCleanup": "false",  # pinned versions need their log; `vacuum` knows which, others do not
}

_WAITS = (0.05, 0.2, 0.8, 2.0)  # seconds before each new try of a commit that was refused


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What one commit does: add a receipt's files, and take others out of the table."""

    receipt: Receipt
    removed: tuple[str, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.receipt.files and not self.receipt.replace and not self.removed


def read_version(location: str, version: str) -> ds.Dataset:
    """One version of a table, to be scanned with filters and columns."""
    return arrow_dataset(location, int(version))


class DeltaSink:
    """A Delta table that takes epochs by appending."""

    format = "delta"
    capabilities = DELTA.capabilities

    def __init__(
        self,
        name: str,
        location: str,
        partition_by: tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
        comment: str | None = None,
        *,
        pipeline: str | None = None,
        unique: tuple[Unique, ...] = (),
    ) -> None:
        self.name = name
        self.location = location
        self._partition_by = tuple(partition_by)
        self._properties = dict(properties or {})
        self._comment = comment
        self._pipeline = pipeline
        self.unique = unique
        self.folder = Folder(location)
        self._table: DeltaTable | None = None
        self._schema: pa.Schema | None = None

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched."""
        rows = self._accept(schema)
        if not self.is_there():
            self._check_empty()
            return "will be created"
        difference = check_table(self.name, self._fresh(), delta_json(rows), self._partition_by)
        parts = [f"columns to be added: {', '.join(difference.added)}"] if difference.added else []
        parts += [f"columns that will be null: {', '.join(difference.missing)}"] if difference.missing else []
        return "; ".join(parts) or "matches"

    def prepare(self, schema: pa.Schema) -> None:
        """Create the table, or see whether it can take rows of this schema. Columns it lacks are added by `apply`."""
        self._schema = self._accept(schema)
        if not self.is_there():
            self._create(self._schema)
        check_table(self.name, self._fresh(), delta_json(self._schema), self._partition_by)

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Files go into the table's own folder, where no reader sees them before the log names them."""
        return self.staging_of(key, token, self._prepared())

    def staging_of(self, key: EpochKey, token: int, schema: pa.Schema) -> Staging:
        """The same for rows of another schema than the table was prepared for."""
        self._pipeline = self._pipeline or key.pipeline
        prefix = staged_prefix(self._owner(key.pipeline), key.generation, key.epoch, token)
        return Staging(self.name, self.location, prefix, schema, self._partition_by, self._properties)

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The files in a fixed order, with the rows' schema in Delta's JSON form."""
        return self.receipt_of(self._prepared(), files, replace=replace)

    def receipt_of(self, schema: pa.Schema, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The same for rows of another schema than the table was prepared for."""
        return Receipt(self.name, tuple(sorted(files, key=lambda f: f.path)), delta_json(schema), replace)

    def staged_rows(self, receipt: Receipt) -> ds.Dataset:
        """The rows of a receipt, before they are in the table."""
        return staged_dataset(self.folder, receipt.files, self._prepared())

    def rows(self) -> ds.Dataset:
        """The table as it stands."""
        return arrow_dataset(self.location, self._fresh().version())

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files, reading every byte."""
        return self.folder.damage(receipt.files)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Add the receipt's files to the table in one commit, unless the table has this epoch already."""
        return self.take(key, lambda _: NewFiles(receipt))

    def take(self, key: EpochKey, make: Callable[[DeltaTable], NewFiles]) -> Applied:
        """Commit what `make` makes of the table's newest snapshot, unless the table has this epoch already.

        A commit that failed, whatever the error, is looked up before it is tried again: it may have gone through.
        """
        error: Exception | None = None
        for wait in (0.0, *_WAITS):
            if wait:
                time.sleep(wait)
            table = self._fresh(sent=error is not None)
            if (version := self._version_of(table, key)) is not None:
                return Applied(version, already=True)
            if isinstance(error, DeltaProtocolError | SchemaMismatchError):
                break
            try:
                new = make(table)
                if new.is_nothing:
                    return Applied(str(table.version()))
                self._commit(self._evolved(table, new.receipt), key, new)
            except ProjectError:
                raise
            except Exception as refused:  # noqa: BLE001 - whatever it was, the table is asked before anything else
                error = refused
                self._table = None
                continue
            crash.point("committed", self.name)
            version = self._version_of(self._fresh(sent=True), key)
            if version is not None:
                return Applied(version)
            error = RuntimeError("the commit was answered, but the table does not have it")
        raise self._refusal(key, error)

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the table has this epoch, and at which version. An epoch without rows leaves no trace."""
        version = self._version_of(self._fresh(), key)
        return None if version is None else Applied(version, already=True)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch in the table."""
        newest: int | None = self._fresh().transaction_version(key.transaction_id(self.name))
        return newest

    def version(self) -> str:
        """The table's newest version."""
        return str(self._fresh().version())

    def has(self, version: str) -> bool:
        """Whether the table is there and has come at least as far as this version."""
        return self.is_there() and self._fresh().version() >= int(version)

    def is_there(self) -> bool:
        """Whether there is a Delta table at the location."""
        with self.folder.asked():
            return bool(DeltaTable.is_deltatable(self.location))

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Our own staged files of older attempts that no commit ever named; a file in doubt is not one."""
        if not self.is_there():
            return []
        live = live_files(self._fresh())
        mine = [
            found
            for found in self.folder.files(without=LOG)
            if (parts := self._own(found.path)) and int(parts["token"]) < token
            if found.path not in keep and found.path not in live
        ]
        return sorted((f.path, f.size) for f in Log.of(self.folder).never_named(mine)) if mine else []

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files of ours."""
        for path in paths:
            if self._own(path) is None:
                raise InternalError("NOT_A_STAGED_FILE", f"{path} was not staged by {self.name}, it is not removed")
            self.folder.remove(path)

    def remove(self) -> None:
        """Remove the table with all its files."""
        self.folder.remove_all()

    def compact(self) -> int:
        """Put small files together if there are many of them."""
        wanted = self._properties.get("anabranch.compact", "true").lower() != "false"
        return compact(self._fresh(), file_bytes(self.name, self._properties)) if wanted else 0

    def vacuum(self, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
        """Remove files that are that old and that none of the versions needs."""
        return vacuum(self.location, map(int, versions), older_than_hours=older_than_hours, dry_run=dry_run)

    def _owner(self, pipeline: str | None) -> str:
        """What tells our staged files from those of other pipelines that write to the same table."""
        if pipeline is None or self._pipeline not in (None, pipeline):
            raise InternalError("SINK_OWNER", f'"{self.name}" was opened for pipeline {self._pipeline}, not {pipeline}')
        return hashlib.blake2b(f"{pipeline}/{self.name}".encode(), digest_size=4).hexdigest()

    def _own(self, path: str) -> re.Match[str] | None:
        """The parts of a staged file's name, if this sink of this pipeline staged it."""
        match = staged_name(path)
        return match if match and match["owner"] == self._owner(self._pipeline) else None

    def _accept(self, schema: pa.Schema) -> pa.Schema:
        rows = delta_arrow_schema(schema)
        check_partition_columns(rows, self._partition_by)
        check_retention(self.name, self._properties)
        file_bytes(self.name, self._properties)  # refused now, not by the first task that writes
        check_unique(self.name, self.unique, rows.names)
        return rows

    def _prepared(self) -> pa.Schema:
        if self._schema is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage rows before prepare')
        return self._schema

    def _check_empty(self) -> None:
        foreign = [f.path for f in self.folder.files() if staged_name(f.path) is None]
        if foreign:
            raise ProjectError(
                "TABLE_NOT_DELTA",
                f"{self.location} holds files ({min(foreign)}, {len(foreign)} in all) but no Delta table",
                hint="choose an empty folder, or convert those files to Delta first",
            )

    def _create(self, schema: pa.Schema) -> None:
        self._check_empty()
        properties = {**PROPERTIES, **self._properties}
        only_known = all(key.startswith("delta.") for key in properties)  # delta-rs calls any other key unknown
        try:
            with self.folder.asked():
                DeltaTable.create(
                    self.location,
                    Schema.from_json(delta_json(schema)),
                    mode="ignore",  # another process may be creating it; what it made is checked next
                    partition_by=list(self._partition_by),
                    name=self.name,
                    description=self._comment,
                    configuration=properties,
                    raise_if_key_not_exists=only_known,
                )
        except DeltaError as error:
            raise ProjectError(
                "TABLE_NOT_CREATED",
                f'table "{self.name}" could not be created at {self.location}: {error}',
                hint="check the properties' names and values and that the folder can be written",
            ) from error
        self.folder.sync_file(commit_path(0))
        self.folder.sync([commit_path(0)])
        self.folder.sync_itself()

    def _evolved(self, table: DeltaTable, receipt: Receipt) -> DeltaTable:
        """The table with every column the rows have. Adding them is a commit of its own, and harmless to repeat."""
        there = tuple(table.metadata().partition_columns)
        odd = [tuple(f.partition) for f in receipt.files if set(f.partition) != set(there)]
        if check_table(self.name, table, receipt.schema, odd[0] if odd else there).added:
            table.alter.add_columns(Schema.from_json(receipt.schema).fields)
            table = self._fresh()
        return table

    def _commit(self, table: DeltaTable, key: EpochKey, new: NewFiles) -> None:
        receipt, now = new.receipt, int(time.time() * 1000)
        schema = json.loads(receipt.schema)
        actions: list[AddAction | RemoveAction] = [
            AddAction(f.path, f.size, f.partition, now, True, stats_text(f.stats, schema)) for f in receipt.files
        ]
        actions += [RemoveAction(path, True, now) for path in new.removed]
        about: dict[str, Any] = {
            "pipeline": key.pipeline,
            "channel": key.channel,
            "generation": key.generation,
            "epoch": key.epoch,
            "rows": receipt.rows,
        }
        table.create_write_transaction(
            actions,
            "overwrite" if receipt.replace else "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=CommitProperties(
                custom_metadata={"anabranch": about},
                app_transactions=[Transaction(key.transaction_id(self.name), key.epoch)],
            ),
        )

    def _version_of(self, table: DeltaTable, key: EpochKey) -> str | None:
        """The version that holds exactly the epochs up to this one, or None when the table does not have it."""
        app = key.transaction_id(self.name)
        newest = table.transaction_version(app)
        if newest is None or newest < key.epoch:
            return None
        version = commit_version(self.folder, app, key.epoch, table.version())
        if version is None and newest == key.epoch:
            return str(table.version())  # its commit has left the log, but no later epoch came after it
        if version is None:
            raise StateError(
                "EPOCH_NOT_IN_LOG",
                f'table "{self.name}" is at epoch {newest}, and its log no longer tells where epoch {key.epoch} is',
                hint="the ledger is older than the table: restore the ledger's newest copy, or reset the channel",
            )
        self.folder.sync_file(commit_path(version))  # delta-rs leaves the commit in the page cache
        return str(version)

    def _fresh(self, *, sent: bool = False) -> DeltaTable:
        """The newest snapshot, reusing the open one. `sent` tells that a commit is under way, its outcome unknown."""
        try:
            if self._table is None or not self.folder.exists(commit_path(self._table.version())):
                with self.folder.asked():
                    self._table = DeltaTable(self.location)
            else:
                with self.folder.asked():
                    self._table.update_incremental()
        except (DeltaError, OSError, SinkError) as error:
            self._table = None
            if sent:
                raise CommitUnknown(
                    "COMMIT_UNKNOWN",
                    f'a commit to "{self.name}" was sent, the table cannot be read to find it: {plain(error)}',
                    hint="run again when the storage answers: the epoch is looked up before anything is sent",
                    retryable=True,
                ) from error
            if isinstance(error, SinkError):
                raise
            if isinstance(error, TableNotFoundError):
                raise SinkError(
                    "TABLE_MISSING",
                    f'table "{self.name}" is not at {self.location} any more',
                    hint="put the table back, or reset the channel to build it anew",
                ) from error
            raise SinkError(
                "TABLE_UNREADABLE",
                f'table "{self.name}" cannot be read: {plain(error)}',
                hint="check that the storage is there and that the log's files are whole",
                retryable=True,
            ) from error
        return self._table

    def _refusal(self, key: EpochKey, error: Exception | None) -> SinkError:
        lasting = isinstance(error, DeltaProtocolError | SchemaMismatchError)
        refusal = SinkError(
            "COMMIT_REFUSED",
            f'table "{self.name}" did not take epoch {key.epoch}: {plain(error) if error else "no answer"}',
            hint="the staged files are kept: run again once the cause is gone",
            retryable=not lasting,
        )
        refusal.__cause__ = error
        return refusal
