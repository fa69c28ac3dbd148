"""`anabranch show` and `anabranch sql`: rows at the published cut, without a JVM."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from anabranch.cli.verb import Invocation

Epoch = Annotated[
    list[str], typer.Option("--at", metavar="[CHANNEL=]EPOCH", help="An older epoch instead of the last published one.")
]


def show(
    at: Invocation,
    table: Annotated[str, typer.Argument(help="The table.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many rows.")] = 20,
    where: Annotated[str | None, typer.Option("--where", help="A condition in SQL.")] = None,
    epoch: Epoch = [],  # noqa: B006  typer copies it
) -> None:
    """Show rows of a table at the published cut."""
    from anabranch import read

    cut = read.cut(at.project, at=wanted(epoch))
    condition = f" WHERE {where}" if where else ""
    cut.dataset(table)  # an unknown table is our error to tell, with its names
    rows = answer(cut, f'SELECT * FROM "{table}"{condition} LIMIT {limit}')
    at.out.rows(rows)
    at.out.note(f"{table} at " + ", ".join(f"{c} epoch {n}" for c, n in cut.epochs.items()))


def sql(
    at: Invocation,
    query: Annotated[str, typer.Argument(help="A query in DuckDB's SQL; every table is there by its name.")],
    epoch: Epoch = [],  # noqa: B006  typer copies it
) -> None:
    """Query all tables at one cut, with DuckDB."""
    from anabranch import read

    rows = answer(read.cut(at.project, at=wanted(epoch)), query)
    at.out.rows(rows)


def answer(cut: Any, query: str) -> list[dict[str, Any]]:
    """The rows of a query; what DuckDB refuses is told in its words."""
    import duckdb

    from anabranch.errors import ProjectError

    try:
        rows: list[dict[str, Any]] = cut.sql(query).to_pylist()
    except duckdb.Error as error:
        text = str(error).strip()
        raise ProjectError("QUERY_FAILED", text, hint=f"tables there: {', '.join(cut.versions)}") from error
    return rows


def wanted(epochs: list[str]) -> int | dict[str, int] | None:
    """What `--at` asks for.

    >>> wanted([]), wanted(["7"]), wanted(["requests=7", "orders=2"])
    (None, 7, {'requests': 7, 'orders': 2})
    """
    if not epochs:
        return None
    pairs = [text.rpartition("=") for text in epochs]
    if not all(number.isdigit() for _, _, number in pairs) or (len(pairs) > 1 and not all(c for c, _, _ in pairs)):
        raise typer.BadParameter("--at takes an epoch number, or CHANNEL=EPOCH for each channel")
    return {c: int(n) for c, _, n in pairs} if pairs[0][0] else int(pairs[0][2])
