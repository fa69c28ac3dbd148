"""Files that appear under their name only when they are complete, named by the numbers of the rows in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_NAME = re.compile(r"(?P<stem>[a-z_]+)-(?P<first>\d{10})-(?P<after>\d{10})\.(json|parquet)")


def numbered(stem: str, first: int, after: int, suffix: str) -> str:
    """The name of a file that holds the rows from `first` up to, not including, `after`.

    >>> numbered("order", 0, 2000, "json")
    'order-0000000000-0000002000.json'
    """
    return f"{stem}-{first:010d}-{after:010d}.{suffix}"


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write; a reader of the folder sees it when the block has ended well, and never in part."""
    hidden = path.with_name(f".{path.name}.part")
    try:
        with hidden.open("wb") as out:
            yield out
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)


def overlapping(folder: Path, stem: str, ranges: list[tuple[int, int]]) -> list[str]:
    """Files that hold rows of these ranges and would not be replaced by them: rows that would be there twice."""
    if not folder.is_dir() or not ranges:
        return []
    begin, end, replaced = ranges[0][0], ranges[-1][1], set(ranges)
    found = []
    for name in sorted(os.listdir(folder)):
        match = _NAME.fullmatch(name)
        if match is None or match["stem"] != stem:
            continue
        held = int(match["first"]), int(match["after"])
        if held not in replaced and held[0] < end and begin < held[1]:
            found.append(name)
    return found
