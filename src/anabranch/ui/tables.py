"""Tables at the cut: schema, size and rows. A version never changes, so what was read once is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.connectors.registry import is_readable, read_dataset
from anabranch.core.epoch import CutTable
from anabranch.errors import AnabranchError, StateError
from anabranch.ui.words import Cell, cell, pretty, seen

if TYPE_CHECKING:
    import duckdb
    import pyarrow.dataset as ds

T = TypeVar("T")

#: Rows and columns that a preview shows.
ROWS = 20
COLUMNS = 60
#: Dead letters on one page.
LETTERS = 50


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is in a table at one version; `bytes` and `files` are None where they cannot be known."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    files: int | None
    bytes: int | None

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns of the preview."""
        return self.columns[:COLUMNS]


@dataclass(frozen=True, slots=True)
class Letter:
    """A row that was put aside: why, by which flow, in which epoch, and the row itself as JSON."""

    reasons: tuple[str, ...]
    flow: str
    generation: int
    epoch: int
    short: str
    payload: str


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters of one table: all of them counted by reason, and some of them."""

    total: int
    by_reason: tuple[tuple[str, int], ...]
    found: tuple[Letter, ...]
    matching: int


def facts(table: CutTable, location: str) -> TableFacts | None:
    """What a table holds; None for a sink that cannot be read."""
    return _facts(table.format, location, table.version) if is_readable(table.format) else None


def letters(table: CutTable, location: str, reason: str | None, skip: int) -> Letters:
    """The dead letters of a table, newest epoch first."""
    return _letters(table.format, location, table.version, reason, skip)


def letters_total(table: CutTable, location: str) -> int:
    """How many dead letters a table holds."""
    return _total(table.format, location, table.version)


@lru_cache(maxsize=64)
def _facts(form: str, location: str, version: str) -> TableFacts:
    return _readable(location, lambda: _read_facts(read_dataset(form, location, version)))


def _read_facts(dataset: ds.Dataset) -> TableFacts:
    columns = tuple(Column(seen(f.name, 200), seen(str(f.type), 200), f.nullable) for f in dataset.schema)
    chosen = dataset.schema.names[:COLUMNS]
    # A struct may hold two fields of one name, and a table two columns: rows are therefore not made into dicts.
    head = dataset.head(ROWS, columns=chosen)
    values = [_column_cells(column) for column in head.columns]
    files = getattr(dataset, "files", None)  # other kinds of datasets have none
    sizes = [info.size for info in dataset.filesystem.get_file_info(files)] if files else []
    known = None if files is None or None in sizes else sum(sizes)
    return TableFacts(columns, tuple(zip(*values, strict=True)), None if files is None else len(files), known)


def _column_cells(column: Any) -> list[Cell]:
    return [cell(_python(value)) for value in column]


def _python(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError, UnicodeDecodeError):  # a date outside of Python's calendar, a broken text
        return str(value)


@lru_cache(maxsize=64)
def _total(form: str, location: str, version: str) -> int:
    return _readable(location, lambda: int(read_dataset(form, location, version).count_rows()))


@lru_cache(maxsize=64)
def _letters(form: str, location: str, version: str, reason: str | None, skip: int) -> Letters:
    return _readable(location, lambda: _read_letters(read_dataset(form, location, version), reason, skip))


def _read_letters(dataset: ds.Dataset, reason: str | None, skip: int) -> Letters:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("letters", dataset)
        total = _one(connection, "SELECT count(*) FROM letters")
        by_reason = connection.execute(
            "SELECT reason, count(*) AS n FROM (SELECT unnest(list_distinct(reasons)) AS reason FROM letters) "
            "GROUP BY reason ORDER BY n DESC, reason LIMIT 200"
        ).fetchall()
        test, given = ("WHERE list_contains(reasons, ?)", [reason]) if reason is not None else ("", [])
        matching = _one(connection, f"SELECT count(*) FROM letters {test}", given) if reason is not None else total
        rows = connection.execute(
            f"SELECT reasons, flow, generation, epoch, payload FROM letters {test} "
            f"ORDER BY generation DESC, epoch DESC LIMIT {LETTERS} OFFSET {int(skip)}",
            given,
        ).fetchall()
    found = tuple(
        Letter(tuple(r or ()), flow or "", generation, epoch, cell(payload).text, pretty(payload))
        for r, flow, generation, epoch, payload in rows
    )
    return Letters(total, tuple((r, n) for r, n in by_reason), found, matching)


def _one(connection: duckdb.DuckDBPyConnection, query: str, given: Sequence[Any] = ()) -> int:
    row = connection.execute(query, list(given)).fetchone()
    assert row is not None
    return int(row[0])


def _readable(location: str, read: Callable[[], T]) -> T:
    """What is read, or an error of ours: other libraries have many, and one table must not take the page down."""
    try:
        return read()
    except AnabranchError:
        raise
    except Exception as error:
        raise StateError(
            "TABLE_UNREADABLE",
            f"{location} cannot be read: {type(error).__name__}: {error}",
            hint="look at the table's files; `anabranch doctor` checks what can be checked",
        ) from error


def offsets_lines(text: str) -> list[str]:
    """The offsets of an epoch, one source each, as JSON over several lines where they are JSON.

    >>> offsets_lines('{"a":1}')
    ['{\\n  "a": 1\\n}']
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return [pretty(line, 4_000) for line in lines] if all(_is_json(line) for line in lines) else [pretty(text, 4_000)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
