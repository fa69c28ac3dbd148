"""`anabranch profile`: what the columns of a table are like, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import Table
from anabranch.cli.verb import Invocation
from anabranch.store.status import moment

if TYPE_CHECKING:
    from anabranch.core.profile import TableProfile
    from anabranch.store.history import History
    from anabranch.store.profiles import StoredProfile

_COLUMNS = ("column", "kind", "nulls", "distinct", "min", "median", "max", "length")


def profile(
    at: Invocation,
    dataset: Annotated[str, typer.Argument(help="The table to look at.")],
    first: Annotated[
        str | None, typer.Option("--from", metavar="VERSION", help="Only rows added since: a version, or epoch:N.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="VERSION", help="The last version, or epoch:N. Default: published.")
    ] = None,
    columns: Annotated[str | None, typer.Option("--columns", metavar="A,B", help="Only these columns.")] = None,
    since_last: Annotated[
        bool, typer.Option("--since-last", help="Rows added since the last profile of the table that was finished.")
    ] = False,
    history: Annotated[bool, typer.Option("--history", help="Show how the columns moved; read no table.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many profiles --history shows.")] = 20,
) -> None:
    """Profile the columns of a table: nulls, distinct values, least and greatest, median.

    What it looks at is saved before it looks: run again after it was killed, it looks at the same. It reads files, not
    the run that writes them. Distinct values and medians are estimates, to within some percent.
    """
    from anabranch.load.project import read_project

    chosen = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    if history:
        if first or last or since_last:
            raise typer.BadParameter("--history shows what was found; it goes with --columns and --limit only")
        from anabranch.store.history import History

        _show_history(at, History.of(read_project(at.project).storage), dataset, chosen, limit)
        return
    if since_last and (first or last):
        raise typer.BadParameter("--since-last says where to begin and to end; leave --from and --to out")
    from anabranch.engine.observe_offline import Asked, profile_table

    found = profile_table(
        at.project,
        dataset,
        Asked(first, last, chosen, since_last),
        lambda job: at.out.note(f"{dataset}: {job.in_words()}{', once more' if job.again else ''}"),
    )
    if found is None:
        at.out.show({"dataset": dataset, "rows": 0, "columns": {}}, f"{dataset}: nothing new since the last profile")
        return
    record = {
        "dataset": dataset,
        "job": found.job.job,
        "from": found.job.first,
        "to": found.job.last,
        "rows": found.profile.rows,
        "columns": figures(found.profile),
        "left_out": list(found.profile.left_out),
    }
    head = f"{dataset}: {found.profile.rows:,} rows, {found.job.in_words()}"
    more = [f"too many columns, left out: {', '.join(found.profile.left_out)}"] if found.profile.left_out else []
    at.out.show(record, head, Table(_shown(found.profile), _COLUMNS, empty="no columns"), *more)


def figures(profile: TableProfile) -> dict[str, dict[str, Any]]:
    """The figures of each column."""
    return {name: column.figures() for name, column in profile.columns.items()}


def _shown(profile: TableProfile) -> list[dict[str, Any]]:
    rows = []
    for name, said in figures(profile).items():
        share = f" ({said['nulls'] / said['rows']:.1%})" if said["nulls"] else ""
        length, middle = said["length"], said["median"]
        rows.append(
            {
                **said,
                "column": name,
                "nulls": f"{said['nulls']:,}{share}" + (f", {said['nans']:,} NaN" if said["nans"] else ""),
                "distinct": f"{said['distinct']:,}" if said["distinct"] is not None else None,
                "median": None if length else middle,
                "length": f"{length['min']} to {length['max']}, mean {length['mean']:.1f}" if length else None,
            }
        )
    return rows


def _show_history(at: Invocation, history: History, dataset: str, columns: tuple[str, ...], limit: int) -> None:
    from anabranch.store.profiles import profiles_of

    found = profiles_of(history, dataset, limit=limit)
    rows = [row for one in found for row in _moved(one, columns)]
    rows.sort(key=lambda row: row["column"])  # stable: within a column by time
    shown = [{**row, "rows": f"{row['rows']:,}", "nulls": f"{row['nulls']:,}"} for row in rows]
    empty = f"{dataset} was not profiled yet: declare observe=True, or run anabranch profile {dataset}"
    at.out.show(rows, Table(shown, ("column", "at", "of", "rows", "nulls", "distinct", "min", "max"), empty=empty))


def _moved(one: StoredProfile, columns: tuple[str, ...]) -> list[dict[str, Any]]:
    return [
        {"column": name, "at": moment(one.at), "of": one.name, **column.figures()}
        for name, column in one.profile.columns.items()
        if not columns or name.partition(".")[0].removesuffix("[]") in columns
    ]
