"""A sink that keeps everything in memory: what the protocol is tried with, thousands of times."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from anabranch.connectors.contract import Capabilities, Staging
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile, digest

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class MemoryTable:
    """What survives when a process dies: staged files, and one list of rows per version."""

    staged: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    versions: list[tuple[Any, ...]] = field(default_factory=lambda: [()])
    taken: dict[str, dict[int, int]] = field(default_factory=dict)  # transaction id -> epoch -> version
    lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, rows: Iterable[Any], *, replace: bool = False) -> int:
        """Add rows as a new version; rows of other writers come in this way too."""
        self.versions.append((() if replace else self.versions[-1]) + tuple(rows))
        return len(self.versions) - 1


@dataclass
class MemorySink:
    """A sink over a `MemoryTable`, true to the contract in `connectors.contract`.

    >>> sink, key = MemorySink("errors", MemoryTable()), EpochKey("p", "c", 1, 0)
    >>> receipt = sink.receipt(key, [sink.write(key, token=1, rows=("a", "b"))])
    >>> sink.table.versions[-1]
    ()
    >>> sink.apply(key, receipt).already, sink.apply(key, receipt).already
    (False, True)
    >>> sink.table.versions[-1]
    ('a', 'b')
    """

    name: str
    table: MemoryTable
    format: str = "memory"
    location: str = "memory"
    capabilities: ClassVar[Capabilities] = Capabilities(True, "a marker in the table", True, "none")
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def examine(self, schema: pa.Schema) -> str:
        """Any schema will do."""
        return "same"

    def prepare(self, schema: pa.Schema) -> None:
        """Nothing to make ready."""

    def staging(self, key: EpochKey, token: int) -> Staging:
        """Where rows would go; `write` puts them there."""
        return Staging(self.name, self.location, _prefix(key, token), None)

    def write(self, key: EpochKey, token: int, rows: Iterable[Any]) -> StagedFile:
        """Stage rows, as the writer does for other sinks."""
        kept = tuple(rows)
        path = f"{_prefix(key, token)}-{next(self._numbers)}-{id(self)}"
        self.table.staged[path] = kept
        return StagedFile(path, len(kept), len(kept), digest(repr(kept)))

    def receipt(self, key: EpochKey, files: Iterable[StagedFile], *, replace: bool = False) -> Receipt:
        """The receipt for staged files."""
        return Receipt(self.name, tuple(files), "", replace)

    def damaged(self, receipt: Receipt) -> str | None:
        """What is wrong with the staged rows."""
        for file in receipt.files:
            rows = self.table.staged.get(file.path)
            if rows is None or digest(repr(rows)) != file.checksum:
                return f"{file.path} is missing or altered"
        return None

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Add the rows, once."""
        with self.table.lock:
            if found := self.find(key):
                return found
            if not receipt.files and not receipt.replace:
                return Applied(self.version())
            rows = [row for f in receipt.files for row in self.table.staged.pop(f.path)]
            version = self.table.append(rows, replace=receipt.replace)
            self.table.taken.setdefault(key.transaction_id(self.name), {})[key.epoch] = version
        crash.point("committed", self.name)
        return Applied(str(version))

    def find(self, key: EpochKey) -> Applied | None:
        """Whether the epoch is here."""
        version = self.table.taken.get(key.transaction_id(self.name), {}).get(key.epoch)
        return None if version is None else Applied(str(version), already=True)

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch that is here."""
        return max(self.table.taken.get(key.transaction_id(self.name), {}), default=None)

    def version(self) -> str:
        """The newest version."""
        return str(len(self.table.versions) - 1)

    def has(self, version: str) -> bool:
        """Whether that version was ever there."""
        return int(version) < len(self.table.versions)

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Staged rows of older attempts that nobody needs."""
        return [
            (path, len(rows))
            for path, rows in self.table.staged.items()
            if path not in keep and int(path.split("-")[2]) < token
        ]

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged rows."""
        for path in paths:
            self.table.staged.pop(path, None)

    def remove(self) -> None:
        """Remove every row."""
        self.table.staged.clear()
        self.table.versions.append(())


def _prefix(key: EpochKey, token: int) -> str:
    return f"{key.generation}-{key.epoch}-{token}"
