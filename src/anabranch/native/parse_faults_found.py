"""What has been found out about the texts of a batch, row by row."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SPACE = " \t\r\n"


@dataclass(slots=True)
class Found:
    """For which texts Spark is asked, which are no document, and which are read but have faults."""

    texts: pa.Array
    doubt: np.ndarray
    absent: np.ndarray
    faulty: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.faulty = np.zeros(len(self.texts), dtype=bool)

    def part(self, start: int, stop: int) -> Found:
        """Of some of the rows."""
        part = Found(self.texts[start:stop], self.doubt[start:stop], self.absent[start:stop])
        part.faulty = self.faulty[start:stop]
        return part


def flags(count: int, rows: np.ndarray) -> np.ndarray:
    """True for the rows."""
    found = np.zeros(count, dtype=bool)
    found[rows] = True
    return found


def with_nothing(texts: pa.Array, where: np.ndarray, nothing: str) -> pa.Array:
    """The texts, with a document that has only nulls in some places."""
    return pc.replace_with_mask(texts, pa.array(where), pa.array([nothing] * int(where.sum()), texts.type))


def blank(texts: pa.Array, among: np.ndarray) -> np.ndarray:
    """Which of some of the texts have nothing but space: no document at all."""
    found = np.zeros(len(texts), dtype=bool)
    rows = np.flatnonzero(among)
    if len(rows):
        trimmed = pc.utf8_trim(texts.take(pa.array(rows)), _SPACE)
        found[rows] = pc.equal(trimmed, "").to_numpy(zero_copy_only=False)
    return found


def spaced(texts: pa.Array, rows: np.ndarray) -> np.ndarray:
    """Which of the rows may be an object with space around it."""
    some = pc.utf8_trim(texts.take(pa.array(rows)), _SPACE)
    found: np.ndarray = pc.and_(pc.starts_with(some, "{"), pc.ends_with(some, "}")).to_numpy(zero_copy_only=False)
    return found
