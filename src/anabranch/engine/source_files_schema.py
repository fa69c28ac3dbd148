"""The schema of a folder of files: inferred once, from the files that are there, and pinned below the storage folder.

A file source whose schema followed its files could not go on from its checkpoint. Remove the pinned file, and reset the
channel, to have it inferred again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from anabranch.core.durable import write_whole


@dataclass(frozen=True, slots=True)
class Pins:
    """Where schemas are pinned; without `writes` they are looked for, and a new one is forgotten."""

    folder: Path
    writes: bool


_current: ContextVar[Pins | None] = ContextVar("anabranch_pins", default=None)


@contextmanager
def pinning(pins: Pins) -> Iterator[None]:
    """Inside, sources keep the schemas they infer there."""
    token = _current.set(pins)
    try:
        yield
    finally:
        _current.reset(token)


def current_pins() -> Pins | None:
    """Where schemas are kept now; None outside of a project."""
    return _current.get()


def pinned(pins: Pins, kind: str, folder: str, identity: Any, infer: Callable[[], StructType]) -> StructType:
    """The schema found at the first run; inferred now if there has been none."""
    told = hashlib.sha256(json.dumps([kind.lower(), folder, identity]).encode()).hexdigest()[:8]
    name = re.sub(r"\W+", "_", folder).strip("_")[-40:]
    file = pins.folder / f"{name}-{told}.json"
    if file.exists():
        return StructType.fromJson(json.loads(file.read_text())["schema"])
    schema = infer()
    if pins.writes:
        text = json.dumps({"path": folder, "format": kind, "schema": schema.jsonValue()}, indent=2)
        write_whole(file, text)
    return schema


def found_at(spark: SparkSession, path: str) -> tuple[bool, bool]:
    """Whether there is anything at a path or glob, and whether folders called `column=value` are there."""
    jvm: Any = spark._jvm  # noqa: SLF001
    place = jvm.org.apache.hadoop.fs.Path(path)
    system = place.getFileSystem(spark._jsc.hadoopConfiguration())  # noqa: SLF001
    roots = list(system.globStatus(place) or [])
    inside = (each for root in roots if root.isDirectory() for each in system.listStatus(root.getPath()))
    return bool(roots), any(each.isDirectory() and "=" in each.getPath().getName() for each in inside)
