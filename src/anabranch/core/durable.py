"""Files that survive a power cut."""

from __future__ import annotations

import os
import uuid
from pathlib import Path


def sync(path: Path | str) -> None:
    """Make what is in a file, or which names are in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, text: str) -> None:
    """All of the text or no file at all, whatever crashes, and however many processes do it at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with aside.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    sync(path.parent)  # the name must be as durable as the epochs that rely on it
