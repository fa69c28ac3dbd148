"""Rows in the memory of this process: for development and notebooks, gone when the process ends."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.spooled_sink import SpooledSink
from anabranch.connectors.taken import version_of
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.core.formats import MEMORY

if TYPE_CHECKING:
    from collections.abc import Mapping

_lock = threading.Lock()


@dataclass
class _Held:
    """What a sink holds: its rows, and by transaction id the epochs it has taken."""

    tables: list[pa.Table] = field(default_factory=list)
    taken: dict[str, int] = field(default_factory=dict)


_held: dict[tuple[str, str], _Held] = {}


def memory_table(storage: str, name: str) -> pa.Table:
    """The rows that a sink of format `memory` holds; a column that some of them lack is null there.

    >>> memory_table("/nowhere", "nothing").num_rows
    0
    """
    with _lock:
        tables = list(_held[storage, name].tables) if (storage, name) in _held else []
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def open_memory(spec: SinkSpec) -> MemoryRows:
    """The sink of a name in a storage folder."""
    return MemoryRows(spec)


class MemoryRows(SpooledSink):
    """A sink that keeps rows as Arrow tables."""

    format = "memory"
    capabilities = MEMORY.capabilities

    def __init__(self, spec: SinkSpec) -> None:
        super().__init__(spec)
        self._of = (spec.storage, spec.name)

    def examine(self, schema: pa.Schema) -> str:
        """Whatever columns there are."""
        return "rows are kept in memory"

    def apply(self, key: EpochKey, receipt: Receipt) -> Applied:
        """Take the rows, once."""
        found = self.find(key)
        if found is None:
            batches = list(self.spool.batches(receipt))
            with _lock:
                held = _held.setdefault(self._of, _Held())
                if receipt.replace:
                    held.tables.clear()
                if batches:
                    held.tables.append(pa.Table.from_batches(batches))
                held.taken[key.transaction_id(self.name)] = key.epoch
            crash.point("committed", self.name)
        self.spool.discard(f.path for f in receipt.files)
        return found or Applied(version_of(key))

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch that this process has."""
        return self._taken().get(key.transaction_id(self.name))

    def version(self) -> str:
        """The newest epoch of any channel."""
        return str(max(self._taken().values(), default=-1))

    def remove(self) -> None:
        """Forget the rows."""
        with _lock:
            _held.pop(self._of, None)
        super().remove()

    def _taken(self) -> Mapping[str, int]:
        with _lock:
            return dict(_held[self._of].taken) if self._of in _held else {}
