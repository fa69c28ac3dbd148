"""Rows that wait below the storage for a sink that keeps no files of its own: durable, the same at every try.

Such a sink stages through its spool, and once an epoch is decided it is given exactly these rows, as often as it takes.
When it has them, the files go.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from anabranch.connectors.contract import Staging
from anabranch.connectors.delta_log import staged_name, staged_prefix
from anabranch.connectors.delta_schema import delta_arrow_schema, delta_json
from anabranch.connectors.folder import Folder
from anabranch.core.epoch import EpochKey, Receipt, StagedFile
from anabranch.errors import InternalError

if TYPE_CHECKING:
    import pyarrow as pa


class Spool:
    """The staged rows of one sink."""

    def __init__(self, name: str, location: str) -> None:
        self.name, self.location = name, location
        self.folder = Folder(location)
        self._owner = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        self._schema: pa.Schema | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows to come."""
        if self._schema is None:
            raise InternalError("SINK_NOT_PREPARED", f'"{self.name}" was asked to stage rows before prepare')
        return self._schema

    def prepare(self, schema: pa.Schema) -> None:
        """Make ready for rows of this schema."""
        self._schema = delta_arrow_schema(schema)

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Files go into the sink's own folder, which nobody else reads."""
        return Staging(
            self.name, self.location, staged_prefix(self._owner, key.generation, key.epoch, token), self.schema
        )

    def receipt(self, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The files in a fixed order, with the rows' schema in Delta's JSON form."""
        found = tuple(sorted(files, key=lambda f: f.path))
        return Receipt(self.name, found, delta_json(self.schema), replace)

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files, reading every byte."""
        return self.folder.damage(receipt.files)

    def batches(self, receipt: Receipt, rows: int = 10_000) -> Iterator[pa.RecordBatch]:
        """The rows of a receipt: every time the same ones, in the same order."""
        import pyarrow.parquet as pq

        for file in receipt.files:
            with self.folder.system.open_input_file(self.folder.full(file.path)) as source:
                yield from pq.ParquetFile(source).iter_batches(batch_size=rows)

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged files of older attempts that no epoch waits for."""
        return sorted(
            (found.path, found.size)
            for found in self.folder.files(deep=False)
            if (parts := staged_name(found.path)) and int(parts["token"]) < token and found.path not in keep
        )

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files."""
        for path in paths:
            if staged_name(path) is None:
                raise InternalError("NOT_A_STAGED_FILE", f"{path} was not staged by {self.name}, it is not removed")
            self.folder.remove(path)
