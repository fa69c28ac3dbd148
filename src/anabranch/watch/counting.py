"""Count published epochs into the figures while a run works, so that no total is lost when the ledger forgets them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing

from anabranch.core.events import EpochPublished, Event
from anabranch.errors import StateError
from anabranch.load.project import Project
from anabranch.store.figures import count_epochs, mark_of, read
from anabranch.store.history import History
from anabranch.store.history_file import connect_to_write, is_busy
from anabranch.store.ledger import Ledger
from anabranch.store.records import EpochRecord
from anabranch.watch.kept_ledger import KeptLedger

#: Seconds between two times that epochs are counted; whoever asks meanwhile counts the rest without writing.
_EVERY = 15.0
#: Epochs that are read at once.
AT_ONCE = 200


class Counting:
    """The watcher that counts."""

    def __init__(self, project: Project) -> None:
        self._project, self._ledger = project, KeptLedger(project)
        self._next = 0.0

    def begin(self, at: float) -> None:
        """Count what a run that died has left."""
        self._count()

    def take(self, at: float, event: Event) -> None:
        """Count now and then."""
        if isinstance(event, EpochPublished) and time.monotonic() >= self._next:
            self._count()

    def end(self, at: float, error: BaseException | None, patience: float) -> None:
        """Count the rest."""
        with closing(self._ledger):
            self._count()

    def lost(self) -> int:
        """What is not counted now is counted the next time."""
        return 0

    def _count(self) -> None:
        self._next = time.monotonic() + _EVERY
        try:
            ledger, pipeline = self._ledger.opened()
        except StateError as error:
            if error.code == "NOTHING_RUN_YET":
                return
            raise
        try:
            with closing(connect_to_write(History.of(self._project.storage).path)) as connection:
                for channel in ledger.channels(pipeline):
                    for records in _uncounted(connection, ledger, pipeline, channel.channel):
                        count_epochs(connection, channel.channel, records)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise


def _uncounted(
    connection: sqlite3.Connection, ledger: Ledger, pipeline: str, channel: str
) -> Iterator[tuple[EpochRecord, ...]]:
    """The epochs that are not counted yet, some at a time; whoever takes them counts them."""
    while records := ledger.published_after(pipeline, channel, *mark_of(read(connection), channel), limit=AT_ONCE):
        yield records
        if len(records) < AT_ONCE:
            return
