"""The jars of `jars.lock`: fetched once into a cache, verified at every start, then used without the network.

What is promised:

- `jars()` returns only files whose size and sha256 are those of the lock, read in full at that moment: 87 MB take
  0.06 s on a processor with SHA instructions and 0.17 s without, so no stamp is trusted in place of the bytes.
- A cache appears whole: jars are fetched into a temporary folder beside it, verified there, and renamed into place.
  A process killed on the way leaves only that temporary folder, which the next one removes.
- A missing or damaged jar in the cache is named, fetched again and replaced by one rename. If it cannot be fetched,
  the error names the damaged file.
- One process at a time writes, under a file lock; the others wait and find the work done. Reading takes no lock, so a
  full cache may be read-only.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import platformdirs

from anabranch.engine import ivy
from anabranch.engine.ivy import Jar
from anabranch.errors import SetupError

CACHE_VARIABLE = "ANABRANCH_CACHE"

#: Told, in one line each time, what takes a while.
Progress = Callable[[str], None]
#: Puts the files of some jars into an empty folder, or raises.
Fetch = Callable[[Sequence[Jar], Path], None]


def silent(_line: str) -> None:
    """The progress of those who do not want to know."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A jar that is not in the cache as the lock says."""

    jar: Jar
    path: Path
    missing: bool
    why: str

    def __str__(self) -> str:
        return f"{self.path} {self.why}"


def jars(progress: Progress = silent) -> list[Path]:
    """Every locked jar, verified now; fetched first if it is not in the cache."""
    return resolve(progress=progress)


def resolve(
    *,
    progress: Progress = silent,
    fetch: Fetch = ivy.fetch,
    wanted: Sequence[Jar] | None = None,
    folder: Path | None = None,
) -> list[Path]:
    """Make `folder` (the cache) hold the `wanted` jars (the lock) and return their paths, in the order of the lock."""
    wanted = locked() if wanted is None else wanted
    folder = cache_folder() if folder is None else folder
    if faults(wanted, folder):
        with _cache_errors(folder):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _one_at_a_time(folder, progress):
                _repair(wanted, folder, fetch, progress)
    return [folder / jar.file_name for jar in wanted]


def cache_folder() -> Path:
    """Where the jars of this version's lock are kept; the root is `ANABRANCH_CACHE`, or the user's cache folder."""
    root = os.environ.get(CACHE_VARIABLE)
    cache = Path(root).absolute() if root else platformdirs.user_cache_path("anabranch")
    contents = "\n".join(f"{jar.file_name} {jar.sha256}" for jar in locked())
    return cache / "jars" / hashlib.sha256(contents.encode()).hexdigest()[:16]


def locked() -> tuple[Jar, ...]:
    """The list in the package.

    >>> [jar.version for jar in locked() if jar.artifact == "delta-storage"]
    ['4.4.0']
    """
    return parse_lock(resources.files("anabranch.engine").joinpath("jars.lock").read_text("utf-8"))


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Read the lock's lines.

    >>> parse_lock("# group, artifact, version, size, sha256\\norg.example  thing  1.2  34  ab56\\n")
    (Jar(group='org.example', artifact='thing', version='1.2', size=34, sha256='ab56'),)
    """
    lines = (line.split() for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(Jar(group, artifact, version, int(size), sha256) for group, artifact, version, size, sha256 in lines)


def faults(wanted: Sequence[Jar], folder: Path) -> list[Fault]:
    """The jars that `folder` lacks or holds damaged; every byte is read."""
    return [fault for jar in wanted if (fault := _fault(jar, folder / jar.file_name))]


def _fault(jar: Jar, path: Path) -> Fault | None:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != jar.size:
                return Fault(jar, path, False, f"is {size} bytes long, not {jar.size}")
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return Fault(jar, path, True, "is missing")
    except OSError as error:
        return Fault(jar, path, False, f"cannot be read: {error.strerror}")
    return None if found == jar.sha256 else Fault(jar, path, False, f"has sha256 {found}, not {jar.sha256}")


def _repair(wanted: Sequence[Jar], folder: Path, fetch: Fetch, progress: Progress) -> None:
    bad = faults(wanted, folder)
    if not bad:
        return  # another process did it while this one waited
    damaged = [fault for fault in bad if not fault.missing]
    for fault in damaged:
        progress(f"{fault}: fetching it again")
    megabytes = sum(fault.jar.size for fault in bad) / 1e6
    progress(f"fetching {len(bad)} jars once, {megabytes:.0f} MB, into {folder}")
    for leftover in folder.parent.glob(f".{folder.name}.*"):
        # Its maker was killed, or it would hold the lock. What cannot be removed costs room, nothing else.
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        fetched = work / "jars"
        fetched.mkdir()
        _fetch_verified([fault.jar for fault in bad], fetched, fetch, damaged)
        _put_in_place(fetched, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    progress(f"fetched {len(bad)} jars")


def _fetch_verified(wanted: Sequence[Jar], fetched: Path, fetch: Fetch, damaged: Sequence[Fault]) -> None:
    try:
        fetch(wanted, fetched)
    except SetupError as error:
        if not damaged:
            raise
        raise SetupError(
            "JAR_CORRUPT",
            f"{damaged[0]}, and it could not be fetched again: {error.message}",
            hint=error.hint,
            details=error.details,
        ) from error
    bad = faults(wanted, fetched)
    lacking = [fault.jar.file_name for fault in bad if fault.missing]
    if lacking:
        raise ivy.download_failed(lacking, "the download ended without them")
    if bad:
        raise SetupError(
            "JAR_CORRUPT",
            f"what was downloaded is not what jars.lock names: {bad[0].jar.file_name} {bad[0].why}",
            hint="run again; if it stays so, something between here and the repository of jars alters files",
        )


def _put_in_place(fetched: Path, folder: Path) -> None:
    if not folder.exists():
        os.rename(fetched, folder)
        return
    # Replaced file by file: running processes keep the good jars they have open.
    for path in fetched.iterdir():
        os.replace(path, folder / path.name)


@contextmanager
def _one_at_a_time(folder: Path, progress: Progress) -> Iterator[None]:
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is fetching the jars: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file, or dying, gives the lock back


@contextmanager
def _cache_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        path = error.filename2 or error.filename or folder
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SetupError(
                "CACHE_FULL",
                f"no room for the jars in {folder.parent}: {what}: {path}",
                hint=f"free 250 MB there, or set {CACHE_VARIABLE} to a folder on another disk",
            ) from error
        raise SetupError(
            "CACHE_NOT_WRITABLE",
            f"the jars cannot be put into {folder.parent}: {what}: {path}",
            hint=f"make it a folder you may write to, or set {CACHE_VARIABLE} to one",
        ) from error
