"""A Delta table whose rows are changed by key: newest row of each key, or its history.

Beside the table stands the log of all changes it was made of, a Delta table of its own in the folder `_changes`. An
epoch is taken in two steps, each remembered by a transaction marker in its own table:

1. the staged changes are added to the log, as to any table that is appended to;
2. the table's rows of the keys that changed are computed from the log and put in the place of those it has: the files
   that hold such a key are written anew.

Killed between the two, the epoch is finished by doing 2: what it reads is the log up to this epoch, whoever does it.
A change that comes late finds the newer ones in the log, and a delete stays in it when its row is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable

from anabranch.connectors.changes import asking, replacement, table_schema
from anabranch.connectors.contract import Staging
from anabranch.connectors.delta import DeltaSink, NewFiles
from anabranch.connectors.delta_log import LOG
from anabranch.connectors.delta_versions import arrow_dataset
from anabranch.connectors.folder import Folder
from anabranch.connectors.rewrite import rewritten
from anabranch.core.changes import Merge
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import DELTA
from anabranch.errors import InternalError, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "_changes"

#: Rewritten files are named like staged ones of a lease before all others: those of a dead attempt are leftovers.
_TOKEN = 0


def has_changes(location: str) -> bool:
    """Whether the table there is one that is changed by key."""
    return Folder(location).exists(f"{FOLDER}/{LOG}")


class DeltaChanges:
    """The table and its log. `merge` is what the project declares; a receipt carries its own."""

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
        merge: Merge | None = None,
    ) -> None:
        self.name, self.location = name, location
        self._merge = merge
        self._table = DeltaSink(name, location, partition_by, properties, comment, pipeline=pipeline)
        about = f"every change that made {name}"
        self._log = DeltaSink(f"{name}/changes", f"{location}/{FOLDER}", comment=about, pipeline=pipeline)

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched."""
        self._check_past()
        return self._table.examine(table_schema(schema, self._declared()))

    def prepare(self, schema: pa.Schema) -> None:
        """Make the table and its log ready; `schema` is that of the changes."""
        self._check_past()
        self._table.prepare(table_schema(schema, self._declared()))
        self._log.prepare(schema)

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Changes are staged where their log will name them."""
        return self._log.staging(key, token)

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The staged changes, with how they are applied."""
        staged = self._log.receipt(key, files, replace=replace)
        return Receipt(self.name, staged.files, staged.schema, replace, self._declared())

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged changes."""
        return self._log.damaged(receipt)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Both steps, each unless its table has the epoch already."""
        if not receipt.files and not receipt.replace:
            return Applied(self.version())
        logged = self._log.apply(key, receipt)  # 1
        with asking():
            return self._table.take(key, lambda table: self._changed(table, key, receipt, int(logged.version)))  # 2

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the table has this epoch."""
        return self._table.find(key)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch that came at least as far as the log."""
        found = [n for n in (self._table.latest(key), self._log.latest(key)) if n is not None]
        return max(found, default=None)

    def version(self) -> str:
        """The table's newest version."""
        return self._table.version()

    def has(self, version: str) -> bool:
        """Whether the table has come at least as far as this version, and has its log."""
        return self._table.has(version) and self._log.has("0")

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
        """Remove the table with all its files, and its log with it."""
        self._table.remove()

    def compact(self) -> int:
        """Put small files together, of the table and of the log of its changes."""
        return self._table.compact() + self._log.compact()

    def vacuum(self, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
        """Remove files of the table that are that old and that none of the versions needs."""
        return self._table.vacuum(versions, older_than_hours=older_than_hours, dry_run=dry_run)

    def _declared(self) -> Merge:
        if self._merge is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage changes, but not which')
        return self._merge

    def _check_past(self) -> None:
        """A table that has rows and no log of them was fed in another way."""
        if self._table.is_there() and not self._log.is_there() and self._table.has("1"):
            raise StateError(
                "CHANGES_WITHOUT_LOG",
                f'table "{self.name}" has rows that came in another way: which change made them is not known',
                hint="let the changes go to a new table, or remove this one and reset its channel",
            )

    def _changed(self, table: DeltaTable, key: EpochKey, receipt: Receipt, logged: int) -> NewFiles:
        """Step 2 against a snapshot of the table."""
        merge = receipt.merge
        assert merge is not None, "a receipt for changes says how they are applied"
        log = arrow_dataset(self._log.location, logged)
        before = None if receipt.replace else arrow_dataset(self._log.location, logged - 1)
        staged = {f"{self._log.folder.full(f.path)}" for f in receipt.files}
        new = [f.to_table(schema=log.schema) for f in log.get_fragments() if f.path in staged]
        changes = pa.concat_tables(new) if new else log.schema.empty_table()
        result = replacement(merge, changes, log, before)
        schema = table_schema(log.schema, merge)
        staging = self._table.staging_of(key, _TOKEN, schema)
        staging = replace(staging, partition_by=tuple(table.metadata().partition_columns))
        rows, keys = arrow_dataset(self.location, table.version()), None if receipt.replace else result.keys
        files, given_up = rewritten(staging, rows, merge, keys, result.rows)
        made = self._table.receipt_of(schema, files, replace=receipt.replace)
        start = len(self._table.folder.full("")) + 1
        removed = tuple(path[start:] for path in given_up)
        return NewFiles(made, () if receipt.replace else removed)  # a commit that replaces takes all others out
