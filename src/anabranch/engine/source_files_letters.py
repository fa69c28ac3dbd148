"""Dead letters: what is wrong with a record that could not be read, and where in its file it stands.

Spark says of such a record its text, its file and the part of the file that a task read, and no more. Rows are few
here, so each is looked at again, in the task that writes them: the reason by parsing it, the place by going through the
file once, up to the last of them. Runs in Spark's Python workers.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from anabranch.engine.source_files_types import misfit, text_misfit

#: The column of a source that has a value for a record that could not be read.
DEAD_LETTER = "_dead_letter"

#: The payload of a dead letter: `element` counts from 0 in the array of an envelope, `line` from 1, `offset` is in
#: bytes of the file's text.
FIELDS = "record STRING, reason STRING, file STRING, line BIGINT, offset BIGINT, element BIGINT"

_MARK = f'"{DEAD_LETTER}":{{'
_READERS = {"gz": gzip.open, "bz2": bz2.open, "xz": lzma.open}
_OTHERS = ("zst", "lz4", "snappy", "deflate")  # compressed files that Spark reads and the standard library does not
_BOM = "\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, counted from 1, and the byte at which it begins."""

    line: int
    offset: int


@dataclass
class Letters:
    """The dead letters of one flow in one task, in the order of their rows."""

    _files: dict[tuple[str, int], _File] = field(default_factory=dict)

    def explained(self, payloads: pa.Array) -> pa.Array:
        """Rows as JSON: those of records that could not be read say why and where, all others stay as they are."""
        texts = payloads.to_pylist()
        if not any(text and _MARK in text for text in texts):
            return payloads
        return pa.array([self._explained(text) for text in texts], pa.string())

    def _explained(self, payload: str | None) -> str | None:
        found = json.loads(payload)[DEAD_LETTER] if payload and _MARK in payload else None
        if not found:
            return payload
        how = json.loads(found["how"])
        record, place = found["record"], None
        if found["element"] is None:
            file = self._file(found, how)
            if how["whole"]:
                record = file.text() or record
            else:
                place = file.find(record)
        reason, inner = _reason(record, how, element=found["element"] is not None)
        place = place or inner
        answer = {
            "record": record,
            "reason": reason,
            "file": _plain(found["file"]),
            "line": place.line if place else None,
            "offset": place.offset if place else None,
            "element": found["element"],
        }
        return json.dumps(answer, ensure_ascii=False)

    def _file(self, found: dict[str, Any], how: dict[str, Any]) -> _File:
        key = (found["file"], found["start"])
        if key not in self._files:
            self._files[key] = _File(found["file"], found["start"], found["start"] + found["length"], how)
        return self._files[key]


class _File:
    """The part of a file that a task reads. Records come in its order, so most are found by going on."""

    def __init__(self, url: str, start: int, end: int, how: dict[str, Any]) -> None:
        self._url, self._start, self._end, self._how = url, start, end, how
        self._given: set[int] = set()
        self._ahead: Iterator[tuple[Place, str]] = iter(())

    def find(self, record: str) -> Place | None:
        """The next line, not told of before, with this text; None if there is none that can be read."""
        for lines in (self._ahead, None):
            if lines is None:  # out of order: from the start
                lines = self._ahead = self._lines()
            for place, text in lines:
                if place.line not in self._given and self._same(text, record):
                    self._given.add(place.line)
                    return place
        return None

    def text(self) -> str | None:
        """The whole file."""
        with self._opened() as stream:
            return stream.read().decode(self._how["encoding"], "replace") if stream else None

    def _same(self, line: str, record: str) -> bool:
        """`line` has a character for each byte."""
        raw = line.encode("latin-1")
        if "\ufffd" in record:  # bytes that are no text: how many signs stand for them differs
            return _squeezed(raw.decode(self._how["encoding"], "replace")) == _squeezed(record)
        return raw == record.encode(self._how["encoding"], "replace")

    def _lines(self) -> Iterator[tuple[Place, str]]:
        """A split has the lines that begin after its first byte and up to its end, as Hadoop reads them."""
        packed = _ending(self._url) in _READERS
        with self._opened() as stream:
            if stream is None:
                return
            offset = 0
            for number, raw in enumerate(_split(stream, self._how["lineSep"]), 1):
                line, start = raw, offset
                offset += len(raw)
                if not packed and start > self._end:
                    return
                if self._how["header"] and number == 1:
                    continue
                if packed or self._start == 0 or start > self._start:
                    yield Place(number, start), _bare(line.removeprefix(_BOM) if number == 1 else line, self._how)

    def _opened(self) -> Any:
        parts = urlsplit(self._url)
        ending = _ending(self._url)
        if parts.scheme not in ("", "file") or ending in _OTHERS:
            return _Nothing()
        try:
            return _READERS.get(ending, open)(unquote(parts.path), "rb")  # type: ignore[operator]
        except FileNotFoundError:
            return _Nothing()  # gone since it was read: the record is kept all the same


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        return None


def _plain(url: str) -> str:
    """A local file as its path, any other as its address."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme in ("", "file") else url


def _ending(url: str) -> str:
    return urlsplit(url).path.rpartition(".")[2].lower()


def _split(stream: IO[bytes], separator: str | None) -> Iterator[str]:
    """Lines with their ends, a character for each byte."""
    text = io.TextIOWrapper(stream, encoding="latin-1", newline="")
    if separator is None:
        yield from text
        return
    mark = separator.encode().decode("latin-1")
    pieces = text.read().split(mark)
    yield from (piece + mark for piece in pieces[:-1])
    yield pieces[-1]


def _bare(line: str, how: dict[str, Any]) -> str:
    if how["lineSep"] is not None:
        return line.removesuffix(how["lineSep"].encode().decode("latin-1"))
    return line.removesuffix("\n").removesuffix("\r")


def _squeezed(text: str) -> str:
    return "\ufffd".join(part for part in text.split("\ufffd") if part)


def _reason(record: str | None, how: dict[str, Any], *, element: bool) -> tuple[str, Place | None]:
    """What is wrong, in words, and where in the record, if that is all that can be said of the place."""
    if record is None:
        return "null, not an object", None
    if how["format"] == "csv":
        return _csv_reason(record, how), None
    try:
        value = json.loads(record)
    except RecursionError:
        return "nested too deeply", None
    except ValueError as error:
        if not isinstance(error, json.JSONDecodeError):
            return "not JSON", None
        inner = Place(error.lineno, len(record[: error.pos].encode()))
        return f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}", inner
    name = how["envelope"]
    if name and not element:
        if not isinstance(value, dict) or not isinstance(value.get(name), list):
            return f'a document without an array "{name}"', None
        return misfit(how["meta"], value.get("_meta"), "_meta") or "does not fit the schema", None
    if isinstance(value, list) and not element:
        found = (misfit(how["schema"], each) for each in value)
        return next((words for words in found if words), "does not fit the schema"), None
    return misfit(how["schema"], value) or "does not fit the schema", None


def _csv_reason(record: str, how: dict[str, Any]) -> str:
    fields = how["schema"]["fields"]
    try:
        values = next(csv.reader([record], delimiter=how["sep"], quotechar=how["quote"] or None, escapechar="\\"), [])
    except csv.Error as error:
        return f"not CSV: {error}"
    if len(values) != len(fields):
        return f"{len(values)} column{'s' if len(values) != 1 else ''} instead of {len(fields)}"
    for each, value in zip(fields, values, strict=True):
        if value != how["null"] and (words := text_misfit(each["type"], value, each["name"])):
            return words
    return "does not fit the schema"
