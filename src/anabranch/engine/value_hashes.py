"""Hashes of column values, many at once: 64 bits each, the same for equal values in every process.

They feed sketches, so all bits must look random; they are no defence against values that were made to collide.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.core.sketches import PRECISION, REGISTERS, REMAINING, Distinct

Hashes = npt.NDArray[np.uint64]

_FACTOR, _SEED = np.uint64(0x9E3779B97F4A7C15), np.uint64(0x2545F4914F6CDD1D)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)
#: Texts of more bytes are hashed one by one, by a function that then takes longer than the call.
_LONG = 2048


def sketch(hashes: Hashes) -> Distinct:
    """The sketch of the values with these hashes."""
    place = (hashes & np.uint64(REGISTERS - 1)).astype(np.intp)
    # What is left of a hash is exact as a float, whose exponent tells where its first bit is.
    _, length = np.frexp((hashes >> np.uint64(PRECISION)).astype(np.float64))
    registers = np.zeros(REGISTERS, np.uint8)
    np.maximum.at(registers, place, (REMAINING + 1 - length).astype(np.uint8))
    return Distinct(registers.tobytes())


def hash_words(words: npt.NDArray[Any]) -> Hashes:
    """Hashes of values of 8 bytes; of longer ones where `words` has a column for each 8 bytes."""
    whole = words.view(np.uint64)
    if whole.ndim == 1:
        return _finished(whole + _FACTOR)
    hashes = np.full(len(whole), _SEED, np.uint64)
    for column in whole.T:
        hashes = _folded(hashes, column)
    return _finished(hashes)


def hash_texts(texts: pa.Array) -> Hashes:
    """Hashes of texts or binaries without nulls, each by all its bytes and their number."""
    texts = texts.cast(pa.large_binary())
    _, offsets_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, np.uint8)  # so that 8 bytes can be read wherever a text begins
    if last > first:
        data[:-8] = np.frombuffer(data_buffer, np.uint8)[first:last]
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    hashes = lengths.astype(np.uint64) * _FACTOR ^ _SEED
    _fold_texts(hashes, np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,)), starts, lengths)
    for row in np.flatnonzero(lengths > _LONG):
        text = data[starts[row] : starts[row] + lengths[row]]
        hashes[row] = int.from_bytes(hashlib.blake2b(text.data, digest_size=8).digest(), "little")
    return _finished(hashes)


def _fold_texts(
    hashes: Hashes, words: npt.NDArray[np.uint64], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> None:
    """Fold 8 bytes of every text that has so many, then the next 8, until none has more."""
    rows: Any = slice(None) if not len(lengths) or lengths.max() <= _LONG else np.flatnonzero(lengths <= _LONG)
    starts, left = starts[rows], lengths[rows]
    own = hashes[rows]
    active = np.flatnonzero(left > 0)
    while len(active):
        whole = words[starts[active]]
        short = np.minimum(left[active], 8).astype(np.uint64)
        whole &= ~np.uint64(0) >> ((np.uint64(8) - short) * np.uint64(8))
        own[active] = _folded(own[active], whole)
        starts, left = starts + 8, left - 8
        active = active[left[active] > 0]
    hashes[rows] = own


def _folded(hashes: Hashes, words: Hashes) -> Hashes:
    mixed = (hashes ^ words) * _FACTOR
    mixed ^= mixed >> _HALF
    return mixed


def _finished(hashes: Hashes) -> Hashes:
    """The end of splitmix64."""
    mixed = (hashes ^ (hashes >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return mixed
