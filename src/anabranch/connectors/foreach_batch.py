"""Sinks that are a function of the user: each epoch's rows are handed to it, from staged files that stay the same.

The rows are staged below the storage. Once the epoch is decided the function is called with exactly these files, then a
marker says that it came to its end, then the files go. Killed before the marker is there, the function is called again
with the same rows and the same number: what it did in between is not known to anybody but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.connectors.contract import SinkSpec, Staging
from anabranch.connectors.delta_schema import delta_arrow_schema
from anabranch.connectors.spool import Spool
from anabranch.connectors.taken import Taken, version_of
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.formats import FOREACH_BATCH
from anabranch.errors import StateError

if TYPE_CHECKING:
    import pyarrow as pa

#: Hands rows to the user's function: the paths of the files, their schema in Delta's JSON form, the epoch.
Handler = Callable[[Sequence[str], str, int], None]


def open_function(spec: SinkSpec) -> ForeachBatchSink:
    """The sink of a function."""
    return ForeachBatchSink(spec.name, spec.location, spec.handler)


class ForeachBatchSink:
    """A function of rows and an epoch; without its `handler`, when the project is not loaded, it cannot be called."""

    format = "foreach_batch"
    capabilities = FOREACH_BATCH.capabilities

    def __init__(self, name: str, location: str, handler: Handler | None = None) -> None:
        self.name, self.location = name, location
        self._spool = Spool(name, location)
        self.folder = self._spool.folder
        self._taken = Taken(self.folder)
        self._handler = handler

    def examine(self, schema: pa.Schema) -> str:
        """What becomes of rows of this schema."""
        delta_arrow_schema(schema)
        return "rows are handed to a function"

    def prepare(self, schema: pa.Schema) -> None:
        """Whatever columns there are, the function gets them."""
        self._spool.prepare(schema)

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Files go into the sink's own folder, which nobody else reads."""
        return self._spool.staging(key, token)

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The files in a fixed order; a function is not told whether they replace others."""
        return self._spool.receipt(files, replace=replace)

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files, reading every byte."""
        return self._spool.damaged(receipt)

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Call the function, unless it is known to have come to its end; an epoch without rows is not told."""
        if not receipt.files:
            return Applied(self.version())
        found = self.find(key)
        if found is None:
            self._call(key, receipt)
            self._taken.mark(key)
            crash.point("committed", self.name)
        self.discard(f.path for f in receipt.files)
        return found or Applied(version_of(key))

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the function has returned for this epoch."""
        return self._taken.find(key)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch for which the function has returned."""
        return self._taken.latest(key)

    def version(self) -> str:
        """Generation and epoch of the last rows that the function was given."""
        return self._taken.version()

    def has(self, version: str) -> bool:
        """Nobody can ask a function what it has done with its rows."""
        return True

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged files of older attempts that no epoch waits for."""
        return self._spool.leftovers(keep, token)

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files."""
        self._spool.discard(paths)

    def remove(self) -> None:
        """Remove what was staged, and the markers; what the function did with its rows stays."""
        self.folder.remove_all()

    def _call(self, key: EpochKey, receipt: Receipt) -> None:
        if self._handler is None:
            raise StateError(
                "HANDLER_NEEDED",
                f'epoch {key.epoch} of channel "{key.channel}" has {receipt.rows} rows for the function "{self.name}", '
                "which is not at hand: only a run loads the project's code",
                hint="anabranch run; if the project no longer has the function, put it back for one run, or start "
                f"the channel over: anabranch reset {key.channel}",
            )
        self._handler([f"{self.location}/{f.path}" for f in receipt.files], receipt.schema, key.epoch)
