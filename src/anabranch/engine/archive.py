"""Files that have been read, archived or deleted: only when their epoch is published, and done again until it is done.

Which files an epoch has read is in the log of Spark's file source, in the checkpoint; nothing else is remembered. So a
process that dies in between leaves files behind, and the next start takes them. A file that was written to since it was
read is left alone, and told.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.core.durable import sync
from anabranch.core.events import Listener
from anabranch.core.events_data import FilesKept
from anabranch.engine.source_files import ARCHIVE, CLEAN, local_root
from anabranch.engine.source_files_log import local_path, read_in, read_until

if TYPE_CHECKING:
    from anabranch.engine.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A place of a source in the query: below which folder it reads, and what becomes of its files."""

    root: str | None  # None for a source that is not local files
    clean: str | None = None
    archive: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Cleaned:
        """As the options of a source say, in lower case."""
        path = options.get("path", "")
        local = path and (path.startswith("file:") or ":" not in path.partition("/")[0])
        clean, archive = options.get(CLEAN.lower()), options.get(ARCHIVE.lower())
        return cls(local_root(path) if local else None, clean, local_root(archive) if archive else None)


@dataclass(frozen=True, slots=True)
class Cleaner:
    """Cleans up behind one channel. `places` are the sources of its query, in the order of the checkpoint.

    `keeps_state`: until Spark has noted that it is done with an epoch, it may have to compute its state again.
    """

    channel: str
    checkpoint: Checkpoint
    places: Sequence[Cleaned]
    listener: Listener
    keeps_state: bool = False

    @property
    def works(self) -> bool:
        """Whether there is anything to do."""
        return any(place.clean for place in self.places)

    def after(self, epoch: int) -> None:
        """An epoch is published: see to its files, or to those of the one before."""
        done = epoch - 1 if self.keeps_state else epoch
        self._told(lambda place: read_in(self.checkpoint, place, done), done)

    def catch_up(self, published: int) -> None:
        """See to the files of all epochs up to this one, which is the last that is published."""
        done = published
        if self.keeps_state and published > self._noted():
            done = published - 1
        self._told(lambda place: read_until(self.checkpoint, place, done), done)

    def end(self) -> None:
        """The query has ended: see to the files that were still needed."""
        if self.keeps_state:
            done = self._noted()
            self._told(lambda place: read_in(self.checkpoint, place, done), done)

    def _noted(self) -> int:
        """The newest epoch that Spark is done with."""
        newest = self.checkpoint.newest("commits")
        return -1 if newest is None else newest

    def _told(self, read: Any, published: int) -> None:
        if not self.works:
            return
        try:
            for number, place in enumerate(self.places):
                if place.clean:
                    self._clean(place, self._everybody_has(number, read(number), published))
        except Exception as error:  # noqa: BLE001 - the epoch is published: whatever it is, it must not fail for this
            self.listener(FilesKept(self.channel, (), f"{type(error).__name__}: {error}"))

    def _everybody_has(self, own: int, found: list[dict[str, Any]], published: int) -> list[dict[str, Any]]:
        """Those that every other place reading the same folder has read too: each looks at the folder for itself."""
        root = self.places[own].root or ""
        for number, place in enumerate(self.places):
            if self.checkpoint.log(number) == self.checkpoint.log(own):
                continue  # the same source, once more
            if place.root and (_is_in(place.root, root) or _is_in(root, place.root)):
                waiting = {each["path"] for each in found if _is_in(local_path(each), place.root)}
                waiting -= {each["path"] for each in read_in(self.checkpoint, number, published)}
                if waiting:  # rarely: all that was ever read may be much
                    waiting -= {each["path"] for each in read_until(self.checkpoint, number, published)}
                found = [each for each in found if each["path"] not in waiting]
        return found

    def _clean(self, place: Cleaned, found: list[dict[str, Any]]) -> None:
        changed: list[str] = []
        for each in found:
            path = local_path(each)
            if not os.path.lexists(path):
                continue
            target = archived_as(path, place.root or "/", place.archive) if place.archive else None
            if not _unchanged(path, each["timestamp"]) or (target and _came_later(path, target, each["timestamp"])):
                changed.append(path)
            elif target:
                move_aside(path, target)
            else:
                os.unlink(path)
        if changed:
            self.listener(FilesKept(self.channel, tuple(changed), "written to since they were read, not read again"))


def archived_as(path: str, root: str, archive: str) -> str:
    """Where a file goes, under its path below the source's folder."""
    inside = os.path.relpath(path, root) if _is_in(path, root) else path.lstrip("/")
    return os.path.join(archive, inside)


def archived(path: str, options: Mapping[str, str]) -> str | None:
    """Where the file that a source read from `path` is now; None if it is gone."""
    place = Cleaned.of(options)
    moved = archived_as(path, place.root, place.archive) if place.root and place.archive else None
    # What is in the archive was read; what came later under the same name was not.
    return next((each for each in (moved, path) if each and os.path.exists(each)), None)


def move_aside(path: str, target: str) -> str:
    """Move a file, never over another one; where to. Killed half way, doing it again ends it.

    A name that is taken by another file gets a number.
    """
    os.makedirs(os.path.dirname(target), exist_ok=True)
    number, free = 0, target
    while True:
        try:
            _link(path, free)
            break
        except FileExistsError:
            if _same(path, free):
                break  # linked or copied before, not yet removed
            number += 1
            free = f"{target}.{number}"
    sync(os.path.dirname(free))
    os.unlink(path)
    return free


def _link(path: str, target: str) -> None:
    """Give a file a second name; on another disk a copy gets it, when it is whole."""
    try:
        os.link(path, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "taken", target) from error
        beside = f"{os.path.dirname(target)}/.{uuid.uuid4().hex}"
        shutil.copy2(path, beside)
        with open(beside, "rb") as copy:
            os.fsync(copy.fileno())
        os.rename(beside, target)


def _same(one: str, other: str) -> bool:
    if os.path.samefile(one, other):
        return True
    if os.path.getsize(one) != os.path.getsize(other):
        return False
    with open(one, "rb") as a, open(other, "rb") as b:
        while chunk := a.read(1 << 20):
            if chunk != b.read(1 << 20):
                return False
    return True


def _unchanged(path: str, timestamp: int) -> bool:
    """Whether a file has the time that Spark saw, in milliseconds; some file systems keep seconds only."""
    now = os.stat(path).st_mtime_ns // 1_000_000
    return now == timestamp or (timestamp % 1000 == 0 and now // 1000 == timestamp // 1000)


def _came_later(path: str, target: str, timestamp: int) -> bool:
    """Whether the file that was read is in the archive already, and this is another one of the same name."""
    return os.path.exists(target) and _unchanged(target, timestamp) and not _same(path, target)


def _is_in(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")
