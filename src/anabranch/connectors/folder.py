"""A table's folder, local or by URL: new files, listing, reading, removing, and making what was written durable.

Paths given to and returned by a `Folder` are relative to it, with forward slashes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from pyarrow import fs

from anabranch.connectors.object_store import store_trouble, system_at
from anabranch.core.durable import sync

if TYPE_CHECKING:
    from anabranch.core.epoch import StagedFile

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """One file of a listing; `modified` is in seconds since 1970."""

    path: str
    size: int
    modified: float


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder at an absolute path or URL."""

    location: str
    system: fs.FileSystem = field(init=False, repr=False, compare=False)
    _root: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if "://" in self.location:
            system, root = system_at(self.location)
        else:
            system, root = fs.LocalFileSystem(), os.path.abspath(self.location)
        object.__setattr__(self, "system", system)
        object.__setattr__(self, "_root", root.rstrip("/") or "/")

    @property
    def is_local(self) -> bool:
        """Whether files live on this machine; only then is there anything to `fsync`."""
        return isinstance(self.system, fs.LocalFileSystem)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Around what asks the file system: the refusals of a store get our words; a missing file stays one."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if self.is_local:
                raise
            raise store_trouble(self.location, error) from error

    def full(self, path: str) -> str:
        """The path as the file system knows it."""
        return f"{self._root}/{path}" if path else self._root

    def create(self, path: str) -> BinaryIO:
        """Open a new file for writing, making its folders."""
        if self.is_local:
            os.makedirs(os.path.dirname(self.full(path)), exist_ok=True)
            return open(self.full(path), "xb", buffering=_CHUNK)
        with self.asked():
            return cast(BinaryIO, self.system.open_output_stream(self.full(path)))

    def read(self, path: str) -> bytes | None:
        """The file's bytes, or None when there is no such file."""
        try:
            with self.asked(), self.system.open_input_stream(self.full(path)) as stream:
                return cast(bytes, stream.read())
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        with self.asked():
            return bool(self.system.get_file_info(self.full(path)).type != fs.FileType.NotFound)

    def files(self, under: str = "", *, deep: bool = True, without: str | None = None) -> list[Found]:
        """Every file under a folder, leaving out one folder directly in it; none when it does not exist."""
        # A store lists whatever begins alike in one go, and would be asked anew for each folder.
        at_once = deep and not self.is_local
        selector = fs.FileSelector(self.full(under), allow_not_found=True, recursive=at_once)
        with self.asked():
            infos = self.system.get_file_info(selector)
        start = len(self._root) + 1
        hidden = f"{self.full(under)}/{without}/" if without and at_once else None
        found: list[Found] = []
        for info in infos:
            if info.type == fs.FileType.File:
                if hidden is None or not info.path.startswith(hidden):
                    found.append(Found(info.path[start:], info.size, info.mtime_ns / 1e9 if info.mtime_ns else 0.0))
            elif deep and not at_once and info.base_name != without:
                found += self.files(info.path[start:])
        return found

    def missing(self, paths: Iterable[str]) -> list[str]:
        """Those paths at which there is no file."""
        wanted = list(paths)
        with self.asked():
            infos = self.system.get_file_info([self.full(path) for path in wanted])
        return [path for path, info in zip(wanted, infos, strict=True) if info.type == fs.FileType.NotFound]

    def checksum(self, path: str) -> tuple[int, str] | None:
        """Size and checksum of a file, reading every byte; None when there is no such file."""
        size, digest = 0, new_checksum()
        try:
            with self.asked(), self.system.open_input_stream(self.full(path)) as stream:
                while chunk := stream.read(_CHUNK):
                    size += len(chunk)
                    digest.update(chunk)
        except FileNotFoundError:
            return None
        return size, checksum_text(digest)

    def damage(self, files: Iterable[StagedFile]) -> str | None:
        """What is wrong with staged files (missing, short, altered), or None; reads every byte."""
        for file in files:
            found = self.checksum(file.path)
            if found is None:
                return f"{file.path} is missing"
            size, checksum = found
            if size != file.size:
                return f"{file.path} has {size} bytes instead of {file.size}"
            if checksum != file.checksum:
                return f"{file.path} has been altered"
        return None

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone already is no error."""
        try:
            with self.asked():
                self.system.delete_file(self.full(path))
        except FileNotFoundError:
            return

    def remove_all(self) -> None:
        """Remove every file in it, and the folder itself where there is such a thing."""
        if self.is_local:
            if os.path.isdir(self._root):
                shutil.rmtree(self._root)
                self.sync_itself()
            return
        for found in self.files():
            self.remove(found.path)

    def sync(self, paths: Iterable[str]) -> None:
        """Make the named files' entries durable: every folder from theirs up to this one. Files are not touched."""
        if not self.is_local:
            return
        parents = {str(p) for path in paths for p in PurePosixPath(path).parents}
        for parent in sorted(parents, reverse=True):
            sync(self.full("" if parent == "." else parent))

    def sync_file(self, path: str) -> None:
        """Make one file and its entry durable."""
        if self.is_local:
            sync(self.full(path))
            sync(os.path.dirname(self.full(path)))

    def sync_itself(self) -> None:
        """Make this folder's own entry durable."""
        if self.is_local:
            sync(os.path.dirname(self._root))


def new_checksum() -> hashlib.blake2b:
    """The hash that staged files are told apart by."""
    return hashlib.blake2b(digest_size=16)


def checksum_text(digest: hashlib.blake2b) -> str:
    """How a checksum is written down."""
    return f"blake2b:{digest.hexdigest()}"
