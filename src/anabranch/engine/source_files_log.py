"""The log that Spark's file source keeps in a checkpoint: which files each batch has read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from anabranch.engine.source_files_errors import gone

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


def entries_of(folder: Path, epoch: int) -> list[dict[str, Any]]:
    """What the log has on the files of one batch; nothing where there is no such log."""
    for path in (folder / str(epoch), folder / f"{epoch}.compact"):
        if path.exists():
            return [entry for entry in _read(path) if entry["batchId"] == epoch]
    return []


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


def check_files(checkpoint: Checkpoint, epoch: int) -> None:
    """Refuse an epoch whose files are not all there: Spark would go on without the rows of the missing ones."""
    found = [each for folder in checkpoint.folder.glob("sources/*") for each in entries_of(folder, epoch)]
    missing = {path for each in found if is_local(each) and not os.path.exists(path := local_path(each))}
    if missing:
        raise gone(sorted(missing))


def _read(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    return [entry for entry in found if "batchId" in entry]  # Kafka's source keeps where it began under such a name
