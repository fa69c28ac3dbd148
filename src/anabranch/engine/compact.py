"""Put small files of tables together between two epochs: every epoch adds files, and readers pay for each.

Nothing that a reader sees changes: the rows are the same, and versions that cuts hold keep the files they name until
`vacuum` finds that nobody needs them. A table with the property `anabranch.compact` set to `false` is left alone.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.connectors.contract import Compacts, Sink
from anabranch.core.events import Listener
from anabranch.core.events_data import Compacted, SinkTold

#: Epochs between two looks: a look reads the list of a table's files.
EVERY = 20


@dataclass(frozen=True)
class Compactor:
    """Looks after the tables of one channel."""

    sinks: Mapping[str, Sink]
    listener: Listener

    def after(self, epoch: int) -> None:
        """An epoch is published: now and then, see to the tables. What fails is told, and tried again later."""
        if epoch % EVERY != EVERY - 1:
            return
        for name, sink in self.sinks.items():
            if not isinstance(sink, Compacts):
                continue
            started = time.monotonic()
            try:
                files = sink.compact()
            except Exception as error:  # noqa: BLE001 - the epoch is published: whatever it is, it must not fail for this
                self.listener(SinkTold(name, f"small files are left as they are: {type(error).__name__}: {error}"))
                continue
            if files:
                self.listener(Compacted(name, files, time.monotonic() - started))
