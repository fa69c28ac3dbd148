"""What is the same for all sinks whose rows wait in a spool: the start for a sink of your own.

What is left to write is `apply`, `latest`, `version`, and `prepare` where something has to be made ready.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from anabranch.connectors.contract import SinkSpec, Staging
from anabranch.connectors.delta_schema import delta_arrow_schema
from anabranch.connectors.spool import Spool
from anabranch.connectors.taken import version_of
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.errors import StateError

if TYPE_CHECKING:
    import pyarrow as pa


class SpooledSink:
    """A sink that is given staged rows, the same at every try, until it has taken them."""

    def __init__(self, spec: SinkSpec) -> None:
        self.spec, self.name, self.location = spec, spec.name, spec.location
        self.spool = Spool(spec.name, spec.spool)

    def examine(self, schema: pa.Schema) -> str:
        """What becomes of rows of this schema."""
        delta_arrow_schema(schema)
        return "rows are handed over"

    def prepare(self, schema: pa.Schema) -> None:
        """Make ready for rows of this schema."""
        self.spool.prepare(schema)

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Files go into the spool, which nobody else reads."""
        return self.spool.staging(key, token)

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The files in a fixed order."""
        return self.spool.receipt(files, replace=replace)

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files, reading every byte."""
        return self.spool.damaged(receipt)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch of the key's pipeline, channel and generation that the sink holds."""
        raise NotImplementedError

    def find(self, key: EpochKey) -> Applied | None:
        """Whether this epoch is in the sink. Epochs are finished in their order."""
        newest = self.latest(key)
        return Applied(version_of(key), already=True) if newest is not None and newest >= key.epoch else None

    def has(self, version: str) -> bool:
        """Taken on trust; a sink that can look does so."""
        return True

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged files of older attempts that no epoch waits for."""
        return self.spool.leftovers(keep, token)

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files."""
        self.spool.discard(paths)

    def remove(self) -> None:
        """Remove what was staged; what another system holds is not ours to remove."""
        self.spool.folder.remove_all()

    def must_be_declared(self, key: EpochKey) -> None:
        """Refuse to go on without the options, which the ledger does not keep."""
        if not self.spec.declared:
            raise StateError(
                "DECLARATION_NEEDED",
                f'epoch {key.epoch} of channel "{key.channel}" has rows for "{self.name}", and how to reach it is not '
                "known: the project does not declare it, or could not be loaded",
                hint=f"declare it again for one run; or start the channel over: anabranch reset {key.channel}",
            )
