"""The events of every run, one JSON object a line, in the storage's folder for logs: what happened, after the fact."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from anabranch.core.events import Event, Listener, Notice

#: A file that has grown to this is put aside, in the place of the one put aside before.
_LARGEST = 16 << 20

NAME = "events.jsonl"


def recorded(listener: Listener, folder: Path) -> Listener:
    """A listener that hands events on and writes them down; a disk that refuses them is told once, and stops no run."""
    path, lock, told = folder / NAME, threading.Lock(), threading.Event()

    def listen(event: Event) -> None:
        listener(event)
        if isinstance(event, Notice) or told.is_set():
            return
        line = json.dumps({"at": round(time.time(), 3), "process": os.getpid(), **event.as_record()}, default=str)
        try:
            with lock:
                folder.mkdir(parents=True, exist_ok=True)
                if path.exists() and path.stat().st_size > _LARGEST:
                    path.replace(path.with_suffix(".1.jsonl"))
                with path.open("a") as file:
                    file.write(line + "\n")
        except OSError as error:
            told.set()
            listener(Notice(f"events are not written down: {path}: {error.strerror}"))

    return listen
