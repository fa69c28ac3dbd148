"""Values in parts of a size that suits what reads them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Bytes that the reader is given at once, and that are read again if it refuses them; and the size of its own blocks.
PIECE = 4 << 20
BLOCK = 1 << 20

#: Bytes that are read at once in any way.
MOST = 32 << 20


def bounded(values: pa.Array) -> list[pa.Array]:
    """The values, not too many bytes of them at once."""
    rows = max(1, len(values) // max(1, values.nbytes // MOST))
    return [values[start : start + rows] for start in range(0, len(values), rows)]


def halves(rows: np.ndarray) -> list[np.ndarray]:
    """The second half and the first; of one row, which is refused by itself, nothing."""
    middle = len(rows) // 2
    return [rows[middle:], rows[:middle]] if middle else []


def pieces(texts: pa.Array) -> Iterator[tuple[int, int]]:
    """Ranges of rows with about `PIECE` bytes each."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    start = 0
    while start < len(texts):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + PIECE, side="right")))
        yield start, stop
        start = stop


def lines(texts: pa.Array) -> pa.Buffer:
    """The texts, one in a line."""
    together = pa.LargeListArray.from_arrays(pa.array([0, len(texts)], pa.int64()), texts)
    return pc.binary_join(together, pa.scalar("\n", texts.type))[0].as_buffer()
