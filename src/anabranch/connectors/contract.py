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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from anabranch.core.formats import Capabilities
from anabranch.core.secrets import reveal

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

    from anabranch.connectors.foreach_batch import Handler
    from anabranch.connectors.parquet_transforms import Part
    from anabranch.core.changes import Merge
    from anabranch.core.declarations import Unique
    from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile

__all__ = ["Capabilities", "Compacts", "Keeping", "Sink", "SinkSpec", "Staging", "Together", "Versioned", "WholeTable"]


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """What a sink is opened with.

    `declared` is False for one that is opened from what the ledger remembers, with no declaration at hand: it has no
    `options` then, and a sink that cannot work without them raises when it is asked to, not before. `merge` says how
    changes by key are applied to it, and `unique` has the rules on all its rows.
    """

    name: str
    location: str  # a path or a URL, as `Format.where` made it
    pipeline: str | None = None  # the id under which it stages files
    storage: str = ""  # the storage folder of the pipeline
    options: Mapping[str, str] = field(default_factory=dict)  # references to secrets are not looked up yet
    declared: bool = True
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    merge: Merge | None = None
    unique: tuple[Unique, ...] = ()
    handler: Handler | None = None  # calls the function of a `foreach_batch` sink

    @property
    def spool(self) -> str:
        """The folder in which rows wait for a sink that keeps no files of its own."""
        return f"{self.storage}/staged/{self.name}"

    def option(self, name: str, usual: str = "") -> str:
        """An option with its secrets looked up."""
        return reveal(self.options.get(name) or usual)


@dataclass(frozen=True, slots=True)
class Staging:
    """Where and how the writer stages one sink's rows: `folder` is an absolute path or URL that exists.

    Rows of one file have the same values in the columns `partition_by`, which the file leaves out; or the same values
    of `transforms`, which are computed from columns that it keeps.
    """

    sink: str
    folder: str
    prefix: str  # start of every file name; tells epoch and attempt apart from all others
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    transforms: tuple[Part, ...] = ()
    observe: tuple[str, ...] | None = None  # columns whose values are profiled on the way; () for all


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

    def remove(self) -> None:
        """Remove what the sink holds, as far as it is the pipeline's own: a table's files, not another system's."""


@runtime_checkable
class Together(Protocol):
    """A sink that takes its receipt in one transaction with others of the same `group`."""

    group: str

    def apply_all(self, key: EpochKey, taken: Sequence[tuple[Sink, Receipt]]) -> list[Applied]:
        """Make the receipts' rows visible in all these sinks at one moment, once; what each of them stands at.

        Called on any one of the group, with all of those that still have to take the epoch. It passes the crash point
        `committed` with the name of each.
        """


@runtime_checkable
class Keeping(Protocol):
    """A sink that keeps rows when the other side does not take them, and sends them later."""

    def send_waiting(self) -> str | None:
        """Send what epochs before have left; what whoever runs the pipeline has to know of it, in words.

        Called at every start, once all epochs are finished.
        """


@runtime_checkable
class Compacts(Protocol):
    """A sink whose files can be put together without a change to its rows."""

    def compact(self) -> int:
        """Put small files together if there are many; how many went."""


@runtime_checkable
class Versioned(Protocol):
    """A sink that keeps old versions of its rows, in files."""

    def vacuum(self, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
        """Remove files that are that old and that none of the `versions` needs; their paths."""


@runtime_checkable
class WholeTable(Protocol):
    """A sink whose rows can be judged together with those of an epoch that is not decided yet."""

    unique: tuple[Unique, ...]

    def rows(self) -> ds.Dataset:
        """The table as it stands."""

    def staged_rows(self, receipt: Receipt) -> ds.Dataset:
        """The rows that a receipt would bring."""
