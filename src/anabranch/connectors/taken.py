"""Markers of the epochs that a sink has taken, for sinks that cannot be asked: one small file for each channel.

Whoever takes an epoch marks it last. Markers of earlier epochs say nothing more by then, and go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from anabranch.core.epoch import Applied, EpochKey

if TYPE_CHECKING:
    from anabranch.connectors.folder import Folder

#: Where the markers are, in a folder for each channel.
TAKEN = "_taken"

#: What a sink stands at that has not been given a row yet.
NOTHING = "none"

_MARKER = re.compile(r"(\d+)-(\d+)")


class Taken:
    """The markers in a sink's folder."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder

    def find(self, key: EpochKey) -> Applied | None:
        """Whether this epoch was taken. Epochs are finished in their order."""
        newest = self.latest(key)
        return Applied(version_of(key), already=True) if newest is not None and newest >= key.epoch else None

    def latest(self, key: EpochKey) -> int | None:
        """The newest epoch of the key's channel and generation."""
        epochs = (epoch for generation, epoch in self._in(key.channel) if generation == key.generation)
        return max(epochs, default=None)

    def passed(self, key: EpochKey) -> bool:
        """Whether this epoch, or a later one of its channel in whatever generation, was taken."""
        return max(self._in(key.channel), default=(-1, -1)) >= (key.generation, key.epoch)

    def version(self) -> str:
        """Generation and epoch of the last rows that were taken."""
        newest = max(self._markers(TAKEN, deep=True), default=None)
        return NOTHING if newest is None else f"{newest[0]}-{newest[1]}"

    def mark(self, key: EpochKey) -> None:
        """Make it known that the epoch was taken."""
        path = f"{TAKEN}/{key.channel}/{version_of(key)}"
        self.folder.create(path).close()
        self.folder.sync_file(path)
        self.folder.sync([path])
        for generation, epoch in self._in(key.channel):
            if (generation, epoch) < (key.generation, key.epoch):
                self.folder.remove(f"{TAKEN}/{key.channel}/{generation}-{epoch}")

    def _in(self, channel: str) -> list[tuple[int, int]]:
        return self._markers(f"{TAKEN}/{channel}")

    def _markers(self, under: str, *, deep: bool = False) -> list[tuple[int, int]]:
        names = (found.path.rpartition("/")[2] for found in self.folder.files(under, deep=deep))
        return [(int(match[1]), int(match[2])) for name in names if (match := _MARKER.fullmatch(name))]


def version_of(key: EpochKey) -> str:
    """What a sink stands at with this epoch.

    >>> version_of(EpochKey("p", "c", 2, 7))
    '2-7'
    """
    return f"{key.generation}-{key.epoch}"
