"""The one way verbs print: results on stdout, everything else on stderr, as text or as JSON.

A verb hands over its whole result in one call of `show`, so that JSON output is one document. A verb that follows
something calls `event` instead, once per event, which gives JSON lines. Secrets are taken out of
everything but the rows of tables.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from anabranch.cli.show_errors import Line, error_lines, plain_text
from anabranch.core.hidden import hidden, hide

if TYPE_CHECKING:
    from anabranch.errors import AnabranchError


@dataclass(frozen=True, slots=True)
class Table:
    """Records as a table; without `columns`, those of the first record."""

    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[str] = ()
    empty: str = "nothing to show"


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, one line each."""

    values: Mapping[str, Any]


Part = Table | Facts | str


class Output(Protocol):
    """What a verb may print with."""

    def show(self, document: Any, *parts: Part) -> None:
        """The result of a verb: `document` in JSON, `parts` in text, or else the document by its shape."""

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rows of the user's tables, exactly as they are."""

    def event(self, record: Mapping[str, Any], line: Line, level: str = "info") -> None:
        """One event of a stream of them: a JSON line on stdout, or a line of text on stderr."""

    def line(self, record: Mapping[str, Any], line: Line) -> None:
        """One of many lines that are the result: a JSON line, or a line of text, on stdout."""

    def note(self, text: str) -> None:
        """Something worth knowing that is not the result; on stderr, unless quiet."""

    def error(self, error: AnabranchError) -> None:
        """Why the verb failed."""


@dataclass(slots=True)
class TextOutput:
    """For people. Colours and boxes only on a terminal, and no colours when NO_COLOR is set."""

    quiet: bool = False

    def show(self, document: Any, *parts: Part) -> None:
        for part in parts or (_by_shape(document),):
            match part:
                case str():
                    _print(sys.stdout, [[(part, "")]])
                case Facts(values):
                    _print(sys.stdout, _fact_lines(values))
                case Table(rows, columns, empty) if rows:
                    _print_table(rows, columns or list(rows[0]))
                case Table(_, _, empty):
                    _print(sys.stdout, [[(empty, "dim")]])

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            _print_table(rows, list(rows[0]), as_they_are=True)
        else:
            _print(sys.stdout, [[("no rows", "dim")]])

    def event(self, record: Mapping[str, Any], line: Line, level: str = "info") -> None:
        if not (self.quiet and level == "info"):
            _print(sys.stderr, [line])

    def line(self, record: Mapping[str, Any], line: Line) -> None:
        _print(sys.stdout, [line])

    def note(self, text: str) -> None:
        if not self.quiet:
            _print(sys.stderr, [[(text, "dim")]])

    def error(self, error: AnabranchError) -> None:
        _print(sys.stderr, error_lines(error))


@dataclass(slots=True)
class JsonOutput:
    """For programs: nothing but JSON on stdout."""

    quiet: bool = False
    streaming: bool = False

    def show(self, document: Any, *parts: Part) -> None:
        self._document(hidden(json_value(document)))

    def rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._document(json_value(rows))

    def event(self, record: Mapping[str, Any], line: Line, level: str = "info") -> None:
        self.streaming = True
        _write(sys.stdout, json.dumps(hidden(json_value(record)), ensure_ascii=False))

    def line(self, record: Mapping[str, Any], line: Line) -> None:
        self.event(record, line)

    def note(self, text: str) -> None:
        if not self.quiet:
            _write(sys.stderr, hide(text))

    def error(self, error: AnabranchError) -> None:
        self.show({"error": error.as_record()})

    def _document(self, value: Any) -> None:
        _write(sys.stdout, json.dumps(value, indent=None if self.streaming else 2, ensure_ascii=False))


def json_value(value: Any) -> Any:
    """The value in what JSON knows: no NaN, no tuples, times as ISO text, bytes as hexadecimal.

    >>> json_value({"a": (1, float("nan")), "b": b"\\x01"})
    {'a': [1, None], 'b': '01'}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(k): json_value(v) for k, v in value.items()}
        case bytes() | bytearray():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case Iterable():
            return [json_value(v) for v in value]
        case _:
            return str(value)


def cell(value: Any) -> str:
    r"""A value as one line of text that cannot disturb the terminal.

    >>> cell(None), cell(True), cell("a\nb"), cell({"k": [1]})
    ('-', 'true', 'a\\nb', '{"k": [1]}')
    """
    if value is None:
        return "-"
    plain = json_value(value)
    return plain_text(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False))


def _by_shape(document: Any) -> Part:
    if isinstance(document, Mapping):
        return Facts(document)
    if isinstance(document, Sequence) and not isinstance(document, str):
        return Table(document)
    return cell(document)


def _fact_lines(values: Mapping[str, Any]) -> list[Line]:
    width = max((len(name) for name in values), default=0)
    return [[(f"{name:<{width}}  ", "dim"), (cell(value), "")] for name, value in values.items()]


def _print_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_they_are: bool = False) -> None:
    cells = [[cell(row.get(c) if as_they_are else hidden(row.get(c))) for c in columns] for row in rows]
    numeric = [all(isinstance(r.get(c), int | float | None) for r in rows) for c in columns]
    if sys.stdout.isatty():
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for name, right in zip(columns, numeric, strict=True):
            table.add_column(Text(name), justify="right" if right else "left", overflow="fold")
        for row in cells:
            table.add_row(*(Text(text, style=_STATES.get(text, "")) for text in row))
        console(sys.stdout).print(table)
        return
    widths = [max(len(c), *(len(row[i]) for row in cells)) for i, c in enumerate(columns)]
    for row in [list(columns), *cells]:
        parts = (t.rjust(w) if right else t.ljust(w) for t, w, right in zip(row, widths, numeric, strict=True))
        _write(sys.stdout, "  ".join(parts).rstrip())


#: Words that say how something stands, wherever they are a whole cell.
_STATES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def _print(stream: TextIO, lines: Iterable[Line]) -> None:
    if stream.isatty():
        from rich.text import Text

        on = console(stream)
        for line in lines:
            on.print(Text.assemble(*((hide(text), style) for text, style in line)), soft_wrap=True)
        return
    for line in lines:
        _write(stream, hide("".join(text for text, _ in line)))


def console(stream: TextIO) -> Any:
    """Rich on a stream, without any guessing about what the text means."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def _write(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
