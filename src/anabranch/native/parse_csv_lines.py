"""What all bytes of some lines of CSV tell of each: no record, in doubt, or as many values as there are columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.parse_csv_shape import CsvForm

#: Spark's parser takes lines in pieces of a million letters; near its ends it works in another way.
_LONG = 500_000

_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Looked:
    """For each line: whether it is no record, and whether only Spark can read it. And whether any has a quote."""

    blank: np.ndarray
    odd: np.ndarray
    quoted: bool


def look_at(texts: pa.Array, form: CsvForm) -> Looked:
    """What is to be known of lines before they are taken apart."""
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, kind)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    letters = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    ends -= ends[0]
    lengths = np.diff(ends)
    blank = _blank(texts, letters, ends, form)
    odd = _odd(letters, ends, lengths)
    quotes = np.flatnonzero(letters == ord(form.quote)) if form.quote else np.zeros(0, dtype=np.int64)
    separators = np.flatnonzero(letters == ord(form.separator))
    if len(quotes):
        odd |= _oddly_quoted(letters, ends, quotes, form)
        plain = ~odd[np.searchsorted(ends, quotes, side="right") - 1]
        # Now every other one is the first of a pair: what stands behind it is a part of a value.
        separators = separators[np.searchsorted(quotes[plain], separators) % 2 == 0]
    odd |= _counts(separators, ends) != form.width - 1
    return Looked(blank, odd & ~blank, bool(len(quotes)))


def _counts(places: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many of the places are in each line."""
    counts: np.ndarray = np.diff(np.searchsorted(places, ends))
    return counts


def _first(letters: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The first letter of each line; 0 for one that is empty."""
    found = np.zeros(len(ends) - 1, dtype=np.uint8)
    some = np.flatnonzero(np.diff(ends))
    found[some] = letters[ends[some]]
    return found


def _blank(texts: pa.Array, letters: np.ndarray, ends: np.ndarray, form: CsvForm) -> np.ndarray:
    first = _first(letters, ends)
    blank = first <= ord(" ")
    rows = np.flatnonzero(blank)
    if len(rows):
        rest = pc.utf8_ltrim(texts.take(pa.array(rows)), " \t")
        blank[rows] = pc.equal(rest, "").to_numpy(zero_copy_only=False)
    if form.comment:
        blank |= first == ord(form.comment)
    return blank


def _odd(letters: np.ndarray, ends: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Lines that are very long, have control characters, or begin with a mark, which Arrow would leave out."""
    odd = lengths > _LONG
    if len(letters) and letters.min() < ord(" "):
        odd |= _counts(np.flatnonzero((letters < ord(" ")) & (letters != ord("\t"))), ends) > 0
    for row in np.flatnonzero(_first(letters, ends) == _MARK[0]):
        odd[row] |= letters[ends[row] : ends[row] + 3].tobytes() == _MARK
    return odd


def _oddly_quoted(letters: np.ndarray, ends: np.ndarray, quotes: np.ndarray, form: CsvForm) -> np.ndarray:
    """Lines with quotes that are not, in turn, the first and the last letter of a value."""
    counts = _counts(quotes, ends)
    odd = counts % 2 == 1
    if form.escape and form.escape != form.quote:
        odd |= (counts > 0) & (_counts(np.flatnonzero(letters == ord(form.escape)), ends) > 0)
    lines = np.searchsorted(ends, quotes, side="right") - 1
    paired = ~odd[lines]
    quotes, lines = quotes[paired], lines[paired]
    opening, closing, lines = quotes[0::2], quotes[1::2], lines[0::2]
    separator = ord(form.separator)
    begins = (opening == ends[lines]) | (letters[np.maximum(opening - 1, 0)] == separator)
    stops = (closing + 1 == ends[lines + 1]) | (letters[np.minimum(closing + 1, len(letters) - 1)] == separator)
    wrong = ~(begins & stops)
    if not form.hollow:
        wrong |= closing == opening + 1
    odd[lines[wrong]] = True
    found: np.ndarray = odd
    return found
