"""JSON text by the column: parts of fixed width as matrices of bytes, everything joined by Arrow.

What repeats (a facility, a vehicle, a set of readings) is rendered once into a pool and taken from there by number.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.generate.hashing import Numbers

Matrix = npt.NDArray[np.uint8]
DAY_MS = 86_400_000


def _bytes_of(words: Iterable[str]) -> Matrix:
    found = np.array([w.encode() for w in words])
    return found.view(np.uint8).reshape(len(found), -1)


_FOUR = _bytes_of(f"{n:04d}" for n in range(10_000))
_SECONDS = _bytes_of(f"T{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in range(86_400))
_MILLIS = _bytes_of(f".{n:03d}Z" for n in range(1_000))


def digits(numbers: Numbers, width: int) -> Matrix:
    """Numbers with leading zeros; `width` is 4, 8 or 12."""
    parts = [_FOUR[numbers // 10**power % 10_000] for power in range(width - 4, -1, -4)]
    return np.hstack(parts) if len(parts) > 1 else parts[0]


def moments(milliseconds: Numbers) -> Matrix:
    """Times of the epoch as `2026-01-05T10:20:30.400Z`."""
    day, rest = milliseconds // DAY_MS, milliseconds % DAY_MS
    first = int(day.min()) if len(day) else 0
    days = np.arange(first, (int(day.max()) if len(day) else 0) + 1).astype("datetime64[D]")
    dates = _bytes_of(np.datetime_as_string(days).tolist())
    return np.hstack([dates[day - first], _SECONDS[rest // 1_000], _MILLIS[rest % 1_000]])


def fixed(*parts: str | Matrix) -> Any:
    """Texts of equal width: literals, and matrices with a row for each text."""
    rows = next(len(p) for p in parts if not isinstance(p, str))
    columns = [
        np.broadcast_to(np.frombuffer(p.encode(), np.uint8), (rows, len(p.encode()))) if isinstance(p, str) else p
        for p in parts
    ]
    matrix = np.ascontiguousarray(np.hstack(columns))
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(matrix.shape[1])
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(matrix))


def joined(*parts: Any) -> Any:
    """Texts made of the parts one after the other; a plain `str` is the same for each."""
    return pc.binary_join_element_wise(*parts, "")


def joined_lists(texts: Any, counts: Numbers) -> Any:
    """The first `counts[0]` texts with commas between them, then the next `counts[1]`, and so on."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets), texts), ",")


def pool(records: Iterable[Any]) -> Any:
    """Values rendered as JSON, to be taken by number."""
    return pa.array([json.dumps(r, separators=(",", ":")) for r in records], pa.string())


def taken(texts: Any, numbers: Numbers) -> Any:
    """Texts of a pool by their numbers."""
    return texts.take(pa.array(numbers))


def raw(texts: Any) -> memoryview:
    """All texts one after the other as bytes, without a copy."""
    if not len(texts):
        return memoryview(b"")
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32, len(texts) + 1, texts.offset * 4)
    return memoryview(data)[int(ends[0]) : int(ends[-1])]
