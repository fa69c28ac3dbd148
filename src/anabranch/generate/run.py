"""Make the rows that were asked for, slice by slice, and hand them to a target: a folder or a broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.generate.entities import Entity
from anabranch.generate.faults import Faults
from anabranch.generate.shipments import orders_before
from anabranch.generate.timeline import shipments_before

DOCUMENT_ROWS = 2_000
FILE_ROWS = 25_000
#: Numbers of events stay below this: keys have room for more, but their times would leave this millennium's calendars.
MOST = 10**9
MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to make: events numbered from `start`, and of the other entities what these events refer to.

    `files` is the number of slices, which is the number of files of events; `rate` is in events a second.
    """

    entities: Sequence[Entity]
    rows: int
    start: int = 0
    seed: int = 7
    files: int = 1
    faults: Faults = field(default_factory=Faults)
    rate: float | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one entity that belong together: a file."""

    entity: Entity
    first: int
    after: int


@dataclass(slots=True)
class Made:
    """What was written of one entity. `rows` counts what was made, `written` what is there, duplicates included."""

    rows: int = 0
    written: int = 0
    files: int = 0
    bytes: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Made) -> None:
        """Count another piece in."""
        self.rows += other.rows
        self.written += other.written
        self.files += other.files
        self.bytes += other.bytes
        self.faults.update(other.faults)


class Target(Protocol):
    """Where rows go."""

    def write(self, piece: Piece, wanted: Wanted) -> Made:
        """Make the rows of a piece and write them."""

    def end_slice(self) -> None:
        """All pieces of a slice were written: see to it that they are there."""


def slices(wanted: Wanted) -> Iterator[tuple[int, list[Piece]]]:
    """The pieces of each slice, after the number of events before it. What others refer to comes first.

    Shipments belong to the slice in which they are collected, orders to that of their first shipment, so that calls
    with one `start` after the other write each of them once.
    """
    for number in range(wanted.files):
        first, after = (wanted.start + wanted.rows * i // wanted.files for i in (number, number + 1))
        if first < after:
            yield first - wanted.start, [p for e in wanted.entities for p in _pieces(e, first, after, not number)]


def _pieces(entity: Entity, first: int, after: int, is_first: bool) -> Iterator[Piece]:
    if entity.form == "lines":
        yield Piece(entity, first, after)
        return
    if entity.size is not None:
        begin, end = 0, entity.size if is_first else 0
    else:
        begin, end = shipments_before(first), shipments_before(after)
        if entity.name == "order":
            begin, end = orders_before(begin), orders_before(end)
    step = DOCUMENT_ROWS if entity.form == "documents" else max(end - begin, 1)
    for at in range(begin, end, step):
        yield Piece(entity, at, min(at + step, end))


def generate(
    wanted: Wanted, target: Target, made: dict[str, Made], wait: Callable[[float], object] = time.sleep
) -> None:
    """Write all that is wanted, counting into `made` as it goes: the counts are there when `wait` ends it."""
    made.update({e.name: Made() for e in wanted.entities})
    began = time.monotonic()
    for before, pieces in slices(wanted):
        if wanted.rate:
            wait(max(0.0, began + before / wanted.rate - time.monotonic()))
        for piece in pieces:
            made[piece.entity.name].add(target.write(piece, wanted))
        target.end_slice()
