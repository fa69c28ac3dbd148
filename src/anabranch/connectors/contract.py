"""What a sink must do to take part in an epoch.

An epoch goes through a sink in this order, and every call may be repeated after a crash:

1. `prepare`   once per run, before anything is read: check the schema, create what is missing. Nothing visible changes
   but that an empty table may appear.
2. `staging`   where and how the writer puts this sink's rows, so that they are durable and no reader sees them.
3. (the ledger decides)
4. `apply`     take the receipt. Idempotent by `EpochKey.transaction_id(sink)` and the epoch: a second call finds the
   first. An answer that was lost is looked up in the sink, never sent again blindly. Between the commit and the
   answer it passes the crash point `committed`, with the sink's name.
5. `discard`   remove staged files of an epoch that was never decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from anabranch.core.declarations import Unique
    from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a sink guarantees; `plan` and the docs print it."""

    exactly_once: bool  # no row lost, no row twice, whatever crashes
    idempotent_by: str  # where the sink remembers the last epoch it took
    pinned_reads: bool  # old versions can be read: the sink takes part in the cut
    schema_evolution: str  # "additive" or "none"


@dataclass(frozen=True, slots=True)
class Staging:
    """Where and how the writer stages one sink's rows: `folder` is an absolute path or URL that exists."""

    sink: str
    folder: str
    prefix: str  # start of every file name; tells epoch and attempt apart from all others
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


class Sink(Protocol):
    """One output of a channel."""

    name: str
    format: str
    location: str
    capabilities: Capabilities

    def examine(self, schema: pa.Schema) -> str:
        """What `prepare` would find or do, in words; nothing is touched. Raises what it would raise."""

    def prepare(self, schema: pa.Schema) -> None:
        """Make ready for rows of this schema. Raises `ProjectError` when the table cannot take them."""

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Where the writer puts the rows of this epoch; `token` is the lease's, so attempts never share a name."""

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The receipt for the files that the winning task attempts staged; see `Receipt.replace`."""

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged files (missing, short, altered), or None. Reads every byte."""

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Make the receipt's rows visible, once."""

    def find(self, key: EpochKey) -> Applied | None:
        """Whether this epoch is in the sink, by looking at the sink alone."""

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch of the key's pipeline, channel and generation that the sink holds."""

    def version(self) -> str:
        """What the sink stands at now."""

    def has(self, version: str) -> bool:
        """Whether the sink is there and has come at least as far as a version it once stood at."""

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged files (path, size) of attempts older than `token` that neither the sink nor `keep` knows."""

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files; one that is gone already is no error."""


@runtime_checkable
class WholeTable(Protocol):
    """A sink whose rows can be judged together with those of an epoch that is not decided yet."""

    unique: tuple[Unique, ...]

    def rows(self) -> ds.Dataset:
        """The table as it stands."""

    def staged_rows(self, receipt: Receipt) -> ds.Dataset:
        """The rows that a receipt would bring."""
