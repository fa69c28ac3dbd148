"""The log that Spark's file source keeps in a checkpoint: which files each batch of it has.

Its batches are not epochs. A source that had nothing new in an epoch has no batch for it; and one whose files were
listed by a process that was killed before the epoch began has two. Which batches an epoch reads, its offsets say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from anabranch.engine.checkpoint import Checkpoint


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


def entries_of(folder: Path, batch: int) -> list[dict[str, Any]]:
    """What the log has on the files of one batch; nothing where there is no such log."""
    path = file_of(folder, batch)
    return [entry for entry in _read(path) if entry["batchId"] == batch] if path.exists() else []


def file_of(folder: Path, batch: int) -> Path:
    """Where the log has a batch: by itself, or in a list of everything before."""
    single, whole = folder / str(batch), folder / f"{batch}.compact"
    return single if single.exists() or not whole.exists() else whole


def read_in(checkpoint: Checkpoint, place: int, epoch: int) -> list[dict[str, Any]]:
    """What a source reads in one epoch; `place`: of its offsets among those of all. Nothing if it is not of files."""
    folder = checkpoint.log(place)
    return [entry for batch in batches_in(checkpoint, place, epoch) for entry in entries_of(folder, batch)]


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


def _read(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [entry for entry in found if "batchId" in entry]  # Kafka's source keeps where it began under such a name
