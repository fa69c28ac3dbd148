r"""The lines of a part of a text file, as Spark's text source has them: Hadoop's rules for where a line belongs.

A line ends with `\n`, `\r\n` or `\r`. A part of a file has the lines that begin behind its first byte, up to and with
the one that begins at its end; the first part has the first line too. So the parts of a file have each line once.
A byte order mark at the start of the file is left out. The last line need not end; empty lines are empty values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Bytes that are read at once; a longer line is read whole.
BLOCK = 16 << 20

#: Bytes that are looked at, at a time, for the end of the line that a part begins or ends in.
_NEAR = 64 << 10

_MARK = b"\xef\xbb\xbf"

#: What Spark unpacks, by the name of the file; some of them also in capitals.
_PACKED = {".bz2", ".deflate", ".gz", ".gzip", ".lz4", ".passthrough", ".snappy", ".zst", ".zstd"}


def unreadable(path: str) -> str | None:
    """Why the lines of a file cannot be read here; None if they can. The name alone decides, as it does for Spark.

    >>> unreadable("/landing/events.json.bz2")
    'files *.bz2 are not unpacked natively'
    """
    ending = Path(path).suffix
    packed = ending.lower() in _PACKED and ending != ".gz"
    return f"files *{ending} are not unpacked natively" if packed else None


def values_of(data: bytes, start: int = 0, end: int | None = None) -> pa.StringArray:
    r"""The lines of a part of a file, all of whose bytes are given.

    The text is as it is in the file: it need not be valid UTF-8.

    >>> values_of(b"a\nb\n", 0, 2).to_pylist(), values_of(b"a\nb\nc", 2, 5).to_pylist()
    (['a', 'b'], ['c'])
    """
    first = _behind(data, start) if start else 0
    last = len(data) if end is None else _behind(data, end)
    chosen = _unmarked(data[first:last], first)
    return _split(chosen, len(chosen))


def read_split(path: str, start: int = 0, length: int | None = None) -> Iterator[pa.StringArray]:
    """The lines of a part of a local file, in arrays of about `BLOCK` bytes; of a `.gz` the whole file is the part."""
    if path.endswith(".gz"):
        if start:
            raise ValueError(f"a part of {path} that begins at {start}: a packed file has only one part")
        with open(path, "rb") as packed:
            yield from _stream(BufferedReader(_Unpacked(packed), _NEAR), None, 0)
        return
    with open(path, "rb") as file:
        first = _behind_in(file, start) if start else 0
        last = None if length is None else _behind_in(file, start + length)
        file.seek(first)
        yield from _stream(file, None if last is None else last - first, first)


class _Unpacked(RawIOBase):
    """What a `.gz` holds. Python's own reader takes zeros behind the end; Hadoop's says that they are no gzip."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._begun = False  # there are bytes of a member that has not ended

    def readable(self) -> bool:
        return True

    def readinto(self, space: Any) -> int:
        while True:
            packed = self._member.unconsumed_tail or self._member.unused_data or self._file.read(_NEAR)
            if not packed and self._begun:
                raise EOFError("the file ends before the end of what is packed")
            if not packed:
                return 0
            if self._member.eof:
                self._member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            found = self._member.decompress(packed, len(space))
            self._begun = not self._member.eof
            if found:
                space[: len(found)] = found
                return len(found)


def _stream(file: BufferedIOBase, left: int | None, first: int) -> Iterator[pa.StringArray]:
    """The lines of the next `left` bytes, which end with a line; None: of all that follow.

    The bytes are read into the same space again and again: fresh memory for each block takes longer than the rest.
    """
    space = bytearray(BLOCK)
    used = 0
    if first == 0:
        head = file.read(len(_MARK) if left is None else min(len(_MARK), left))
        left = None if left is None else left - len(head)
        begun = _unmarked(head, first)
        used = len(begun)
        space[:used] = begun
    while True:
        if used >= len(space):
            space += bytes(len(space))
        free = len(space) - used
        got = file.readinto(memoryview(space)[used : used + (free if left is None else min(free, left))])
        if not got:
            break
        left = None if left is None else left - got
        end = used + got
        # A \r at the end may be half of an end of a line.
        ended = max(space.rfind(b"\n", used, end), space.rfind(b"\r", max(0, used - 1), end - 1)) + 1
        if ended:
            yield _split(space, ended)
            space[: end - ended] = space[ended:end]
        used = end - ended
    if used:
        yield _split(space, used)


def _unmarked(data: bytes, first: int) -> bytes:
    return data[len(_MARK) :] if first == 0 and data.startswith(_MARK) else data


def _behind(data: bytes, place: int) -> int:
    """Where the line ends that a place is in, its end included."""
    newline, feed = data.find(b"\n", place), data.find(b"\r", place)
    if feed >= 0 and (newline < 0 or feed < newline):
        return feed + 2 if newline == feed + 1 else feed + 1
    return newline + 1 if newline >= 0 else len(data)


def _behind_in(file: BufferedIOBase, place: int) -> int:
    """The same in a file."""
    file.seek(place)
    near = b""
    while True:
        more = file.read(_NEAR)
        near += more
        end = _behind(near, 0)
        if not more or end < len(near):
            return place + end


def _split(data: bytes | bytearray, length: int) -> pa.StringArray:
    """The lines of the first bytes of the data, which end with a line. What is returned is a copy."""
    if data.find(b"\r", 0, length) >= 0:
        data = data[:length].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        length = len(data)
    if not length:
        return pa.array([], pa.string())
    ends = np.array([0, length - 1 if data[length - 1] == ord("\n") else length], dtype=np.int32)
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])
    lines = pc.split_pattern(whole, b"\n").values
    return pa.StringArray.from_buffers(len(lines), *lines.buffers()[1:], offset=lines.offset)
