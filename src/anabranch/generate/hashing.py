"""Chance without a sequence: every value is a function of the seed, a purpose and a number.

So row 1,000,000 is the same whether the rows before it were made or not, and what a key refers to can be computed
instead of looked up.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def hashed(seed: int, purpose: str, numbers: Numbers) -> npt.NDArray[np.uint64]:
    """64 bits for each number (splitmix64), unlike those of any other purpose or seed."""
    salt = np.frombuffer(blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest(), "<u8")[0]
    x = numbers.astype(np.uint64) * _GOLDEN + salt  # arrays of unsigned numbers wrap around, as splitmix64 wants it
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: npt.NDArray[np.uint64] = x ^ (x >> np.uint64(31))
    return found


def below(seed: int, purpose: str, numbers: Numbers, count: int) -> Numbers:
    """A number from 0 to `count` - 1 for each.

    >>> below(7, "colour", np.arange(6), 3).tolist() == below(7, "colour", np.arange(3, 6), 3).tolist()
    False
    >>> below(7, "colour", np.arange(6), 3)[3:].tolist() == below(7, "colour", np.arange(3, 6), 3).tolist()
    True
    """
    return ((hashed(seed, purpose, numbers) >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def share(seed: int, purpose: str, numbers: Numbers) -> npt.NDArray[np.float64]:
    """A fraction from 0 up to, not including, 1 for each."""
    return (hashed(seed, purpose, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choose(seed: int, purpose: str, numbers: Numbers, values: Any) -> list[Any]:
    """One of the values for each; for tables that are small."""
    return [values[i] for i in below(seed, purpose, numbers, len(values)).tolist()]
