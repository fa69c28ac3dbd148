"""`anabranch history`: the runs of a project and how each of them ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import Table
from anabranch.cli.verb import Invocation
from anabranch.store.status import moment

if TYPE_CHECKING:
    from anabranch.store.history import StoredRun

_COLUMNS = ("run", "started", "outcome", "seconds", "epochs", "rows")
_WHY = ("code", "message")


def history(
    at: Invocation,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")] = 20,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that failed or died.")] = False,
) -> None:
    """List runs, newest first: when, how long, how many rows, and how each ended.

    A run that has no end and whose process is gone has died; the next run recovers what it left.
    """
    from anabranch.load.project import read_project
    from anabranch.store.history import History

    known = History.of(read_project(at.project).storage)
    if failed:
        both = [*known.runs(outcome="failed", limit=limit), *known.runs(outcome="died", limit=limit)]
        found = sorted(both, key=lambda run: run.started, reverse=True)[:limit]
    else:
        found = known.runs(limit=limit)
    rows = [run_record(run) for run in found]
    extra = tuple(name for name in ("selection", *_WHY) if any(row[name] for row in rows))
    shown = [{**row, "run": row["run"][:8]} for row in rows]
    at.out.show(rows, Table(shown, (*_COLUMNS, *extra), empty="no runs yet" if not failed else "no run failed"))


def run_record(run: StoredRun) -> dict[str, Any]:
    """A run for people and programs."""
    times = {"started": moment(run.started), "ended": moment(run.ended), "seen": moment(run.seen)}
    return {**asdict(run), **times, "seconds": round(run.seconds, 2)}
