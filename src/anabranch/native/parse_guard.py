"""Which values are one plain document each: what the reader of a whole block relies on.

The reader sees the documents of a block one after another. A cut document and its neighbour could join to something
valid, two documents in one value would shift all rows behind them, and a bare `null` ends the process. So each value is
looked at by itself first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Jackson's limits are depth 1000, 1000 characters of a number, 50,000 of a name. What comes near is left to Spark.
DEEP = 900
LONG_TEXT = 40_000
HUGE = 16_000_000

#: A number of 1000 characters has at most four that are not digits, so it has more than 200 digits in a row.
LONG_NUMBER = "[0-9]{200}"

#: `strlen` counts bytes; CASE, because AND would have the pattern tried on every value. NaN, Inf and Infinity are words
#: to both parsers here, but are not JSON.
_LOOK = f"""
SELECT json_valid(v) AND NOT CASE WHEN strlen(v) > 900 THEN regexp_matches(v, '{LONG_NUMBER}') ELSE false END AS valid,
    contains(v, 'NaN') OR contains(v, 'Inf') AS words,
    contains(v, chr(10)) OR contains(v, chr(13)) AS lines
FROM batch"""

#: The word is inside a string: nothing outside of strings has one of its letters.
_NO_WORDS = r'^(?s:[^"NI]|"(?:[^"\\]|\\.)*")*$'

_TEXT = re.compile(rb'"((?:[^"\\]+|\\.)*)"|([\[{])|([\]}])', re.DOTALL)

#: Bytes that are looked at together: what is found out about them stays in the processor's cache.
_IN_CACHE = 1 << 18

#: Words that some reader takes for numbers, and what stands before and behind a value.
_WORD = re.compile(rb"[:,\[ +-](nan|inf(inity)?)[,\]} ]", re.IGNORECASE)
_LONGEST_WORD = 16
_BEFORE_WORD, _AFTER_WORD = np.zeros((2, 256), dtype=bool)
_BEFORE_WORD[list(b":,[ +-")] = True
_AFTER_WORD[list(b",]} iI")] = True

#: How each byte changes the depth.
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def sure_objects(values: pa.Array) -> pa.Array | None:
    """The values as strings, if a look at all their bytes together shows that the reader can be trusted with them.

    Each begins with `{` and ends with `}`. Of two values that join to one document, the first would have to end within
    a string, where the reader takes no line end, or behind the `}` of an inner object, where it takes no `{`. So it
    finds at least one document in each, and one in each if it finds as many as there are values.
    """
    if values.null_count or not len(values) or values.type not in (pa.string(), pa.binary()):
        return None
    texts = values.cast(pa.binary()).cast(pa.string(), safe=False)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return None
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data, np.uint8)
    lengths = np.diff(ends)
    if lengths.min() < 2 or (letters[ends[:-1]] != ord("{")).any() or (letters[ends[1:] - 1] != ord("}")).any():
        return None
    whole = letters[ends[0] : ends[-1]]
    if _odd_letters(whole):
        return None
    longest = int(lengths.max())
    if longest > 900 and _may_have_long_number(whole) and pc.any(pc.match_substring_regex(texts, LONG_NUMBER)).as_py():
        return None
    if longest > 2 * DEEP and not _shallow(whole, ends[:-1] - ends[0]):
        return None
    if longest >= LONG_TEXT:
        quotes = np.flatnonzero(whole == ord('"'))
        if longest >= HUGE or (whole == ord("\\")).any() or np.diff(quotes).max(initial=0) >= LONG_TEXT:
            return None
    return texts


def _odd_letters(whole: np.ndarray) -> bool:
    """Whether there is a control character, or a word that is a number to a reader but not in JSON."""
    for start in range(0, len(whole), _IN_CACHE):
        letters = whole[start : start + _IN_CACHE + _LONGEST_WORD]
        if letters.min() < ord(" "):
            return True
        small = letters | 32
        for first, second, third in (b"nan", b"inf"):
            ends = (small[:-2] == first) & (small[2:] == third)
            if ends.any() and _word(letters, np.flatnonzero(ends & (small[1:-1] == second))):
                return True
    return False


def _word(letters: np.ndarray, places: np.ndarray) -> bool:
    """Whether one of the places is that of a word for a number, and not within another word."""
    places = places[(places > 0) & (places < len(letters) - 3)]
    places = places[_BEFORE_WORD[letters[places - 1]] & _AFTER_WORD[letters[places + 3]]]
    return any(_WORD.match(letters[p - 1 : p + _LONGEST_WORD].tobytes()) for p in places)


def count_names(texts: pa.Array) -> int | None:
    """How many names of fields there are in all texts together, in unknown fields too; None if that is not certain.

    A quote and a colon are the end of a name, unless the quote is an escaped one.
    """
    count = 0
    for letters in _blocks(texts):
        colons = letters[1:] == ord(":")
        if (letters == ord("\\")).any() or (colons & (letters[:-1] == ord(" "))).any():
            return None
        count += int(np.count_nonzero(colons & (letters[:-1] == ord('"'))))
    return count


def plain_letters(texts: pa.Array) -> bool:
    """Whether no text has a comma or space before a closing bracket: DuckDB takes `[1, ]` for JSON.

    Some other letters look like these, and are taken for them.
    """
    for letters in _blocks(texts):
        closing = (letters[1:] | 32) == ord("}")
        if (closing & ((letters[:-1] & 0xF3) == ord(" "))).any():
            return False
    return True


def _blocks(texts: pa.Array) -> Iterator[np.ndarray]:
    """The bytes of all texts, in parts that each begin with the last byte of the one before."""
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, np.int32)
    whole = np.frombuffer(data, np.uint8)[ends[texts.offset] : ends[texts.offset + len(texts)]]
    for start in range(0, len(whole), _IN_CACHE):
        yield whole[start : start + _IN_CACHE + 1]


def _may_have_long_number(whole: np.ndarray) -> bool:
    """Whether there may be 200 digits in a row: of every 16th letter, twelve in a row would be digits."""
    some = whole[::16]
    others = np.flatnonzero((some < ord("0")) | (some > ord("9")))
    return bool(len(others) == 0 or np.diff(others, prepend=-1, append=len(some)).max() > 12)


def _shallow(whole: np.ndarray, starts: np.ndarray) -> bool:
    """Whether no document can be too deep; brackets within its texts are counted, too."""
    opened = (whole == ord("{")) | (whole == ord("["))
    return bool(np.add.reduceat(opened, starts, dtype=np.int32).max() < DEEP)


def text_of(values: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The values as strings, empty where they are not valid UTF-8 or null; and where they are valid."""
    sound = np.ones(len(values), dtype=bool)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.large_binary() if pa.types.is_large_string(values.type) else pa.binary())
    text = pa.large_string() if pa.types.is_large_binary(values.type) else pa.string()
    values = pc.fill_null(values, b"")
    try:
        return values.cast(text), sound
    except pa.ArrowInvalid:
        for row, value in enumerate(values.to_pylist()):
            try:
                value.decode("utf-8")
            except UnicodeDecodeError:
                sound[row] = False
        return pc.if_else(pa.array(sound), values, pa.scalar(b"", values.type)).cast(text), sound


def edges(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last byte of each text; 0 of an empty one."""
    _, places, data = texts.buffers()
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    ends = np.frombuffer(places, kind)[texts.offset : texts.offset + len(texts) + 1]
    first, last = np.zeros(len(texts), np.uint8), np.zeros(len(texts), np.uint8)
    some = np.diff(ends) > 0
    if some.any():
        letters = np.frombuffer(data, np.uint8)
        first[some], last[some] = letters[ends[:-1][some]], letters[ends[1:][some] - 1]
    return first, last


def plain_documents(texts: pa.Array, connection: duckdb.DuckDBPyConnection) -> tuple[pa.Array, np.ndarray]:
    """The texts, without line ends in them; and which of them are one JSON object each."""
    looked = look(connection, _LOOK, texts)
    plain = looked["valid"] & _objects(texts)
    if looked["words"].any():
        rows = np.flatnonzero(plain & looked["words"])
        plain[rows] = _booleans(pc.match_substring_regex(texts.take(pa.array(rows)), _NO_WORDS))
    if (looked["lines"] & plain).any():
        # In valid JSON an unescaped line end is space between tokens.
        for end in ("\n", "\r"):
            texts = pc.replace_substring(texts, end, " ")
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(plain & (lengths > 2 * DEEP)):
        document = texts[row].as_buffer()
        plain[row] = lengths[row] < HUGE and _within_limits(document.to_pybytes())
    return texts, plain


def look(connection: duckdb.DuckDBPyConnection, query: str, texts: pa.Array) -> dict[str, np.ndarray]:
    """What a query over `batch` with its column `v` says of each value, by the names of its columns; null is false."""
    connection.register("batch", pa.table({"v": texts}))
    try:
        answer = connection.sql(query).to_arrow_table()
    finally:
        connection.unregister("batch")
    if answer.num_rows != len(texts):
        raise AssertionError(f"{answer.num_rows} answers for {len(texts)} values")
    return {name: _booleans(answer[name].combine_chunks()) for name in answer.column_names}


def _booleans(array: pa.Array) -> np.ndarray:
    return np.array(pc.fill_null(array, False).to_numpy(zero_copy_only=False), dtype=bool)


def _objects(texts: pa.Array) -> np.ndarray:
    objects = _booleans(pc.starts_with(texts, "{"))
    rest = np.flatnonzero(~objects)
    if len(rest):
        trimmed = pc.utf8_ltrim(texts.take(pa.array(rest)), " \t\r\n")
        objects[rest] = _booleans(pc.starts_with(trimmed, "{"))
    return objects


def _within_limits(document: bytes) -> bool:
    if len(document) < LONG_TEXT and document.count(b"{") + document.count(b"[") < DEEP:
        return True
    if b'\\"' in document:
        return _within_limits_by_token(document)
    letters = np.frombuffer(document, dtype=np.uint8)
    quotes = letters == ord('"')
    # Without escaped quotes every other one ends a string.
    outside = (np.cumsum(quotes, dtype=np.int32) & 1) == 0
    steps = (_STEPS[letters] * outside).astype(np.int32)
    lengths = np.diff(np.flatnonzero(quotes))
    return bool(np.cumsum(steps).max() < DEEP and lengths.max(initial=0) < LONG_TEXT)


def _within_limits_by_token(document: bytes) -> bool:
    depth = 0
    for match in _TEXT.finditer(document):
        if match.lastindex == 1:
            if match.end() - match.start() > LONG_TEXT:
                return False
        elif match.lastindex == 2:
            depth += 1
            if depth >= DEEP:
                return False
        else:
            depth -= 1
    return True
