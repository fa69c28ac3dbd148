"""The log that Spark's file source keeps in a checkpoint: which files each batch of it has.

Its batches are not epochs. A source that had nothing new in an epoch has no batch for it; and one whose files were
listed by a process that was killed before the epoch began has two. Which batches an epoch reads, its offsets say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from anabranch.engine.checkpoint import Checkpoint

#: Bytes that are read first from the end of a list of everything.
_AT_ONCE = 1 << 16


def entries(folder: Path, until: int) -> list[dict[str, Any]]:
    """What the log has on the files of all batches up to one.

    It is in the newest list of everything before, and the single ones after it.
    """
    if not folder.is_dir():
        return []
    whole = max((p for p in folder.glob("*.compact")), key=lambda p: int(p.stem), default=None)
    start = int(whole.stem) if whole else -1
    single = [p for p in folder.iterdir() if p.name.isdigit() and int(p.name) > start]
    found = [entry for path in ([whole] if whole else []) + single for entry in _read(path)]
    return [entry for entry in found if entry["batchId"] <= until]


def entries_of(folder: Path, batches: Iterable[int]) -> list[dict[str, Any]]:
    """What the log has on the files of some batches; nothing where there is no such log.

    Spark removes old ones that a list has too. They may still be needed: where another source fails before an epoch can
    begin, each start adds one.
    """
    found, removed = list[dict[str, Any]](), set[int]()
    for batch in batches:
        path = file_of(folder, batch)
        if not path.exists():
            removed.add(batch)
        else:
            found += [each for each in (_last if path.suffix else _read)(path) if each["batchId"] == batch]
    older = entries(folder, max(removed)) if removed else []
    return [*(entry for entry in older if entry["batchId"] in removed), *found]


def file_of(folder: Path, batch: int) -> Path:
    """Where the log has a batch: by itself, or in a list of everything before."""
    single, whole = folder / str(batch), folder / f"{batch}.compact"
    return single if single.exists() or not whole.exists() else whole


def read_in(checkpoint: Checkpoint, place: int, epoch: int) -> list[dict[str, Any]]:
    """What a source reads in one epoch; `place`: of its offsets among those of all. Nothing if it is not of files."""
    return entries_of(checkpoint.log(place), batches_in(checkpoint, place, epoch))


def read_until(checkpoint: Checkpoint, place: int, epoch: int) -> list[dict[str, Any]]:
    """What a source has read in an epoch and all before it."""
    until = _stands(checkpoint, place, epoch)
    return entries(checkpoint.log(place), until) if until >= 0 else []


def batches_in(checkpoint: Checkpoint, place: int, epoch: int) -> range:
    """The batches of its log that a source reads in one epoch."""
    return range(_stands(checkpoint, place, epoch - 1) + 1, _stands(checkpoint, place, epoch) + 1)


def _stands(checkpoint: Checkpoint, place: int, epoch: int) -> int:
    """The newest batch of its log that a source has read after an epoch; -1 if there is none."""
    lines = (checkpoint.offsets(epoch) or "").splitlines()
    found = log_offset(lines[place]) if place < len(lines) else None
    return -1 if found is None else found


def log_offset(line: str) -> int | None:
    """The number of the newest batch in the log, from the offset of a source; None for one of another kind, or at none.

    >>> log_offset('{"logOffset":3}'), log_offset("-"), log_offset('{"topic":{"0":7}}')
    (3, None, None)
    """
    said = json.loads(line) if line != "-" else None
    found = said.get("logOffset") if isinstance(said, dict) else None
    return found if isinstance(found, int) else None


def is_local(entry: Mapping[str, Any]) -> bool:
    """Whether the file of an entry is on this machine."""
    return bool(urlsplit(entry["path"]).scheme == "file")


def local_path(entry: Mapping[str, Any]) -> str:
    """The file of an entry, for one that is local."""
    return unquote(urlsplit(entry["path"]).path)


def _last(path: Path) -> list[dict[str, Any]]:
    """The end of a list of everything, with all of its own batch. It may be long, and is not read from its start."""
    with path.open("rb") as file:
        size, length = file.seek(0, os.SEEK_END), _AT_ONCE
        while True:
            start = max(0, size - length)
            file.seek(start)
            found = _entries(file.read().split(b"\n"))
            if start == 0 or (found and found[0]["batchId"] < int(path.stem)):
                return found
            length *= 4


def _read(path: Path) -> list[dict[str, Any]]:
    return _entries(path.read_bytes().split(b"\n"))


def _entries(lines: list[bytes]) -> list[dict[str, Any]]:
    """The entries in some lines; the first is none: the version, or a part of a line."""
    found = [json.loads(line) for line in lines[1:] if line]
    return [entry for entry in found if "batchId" in entry]  # Kafka's source keeps where it began under such a name
