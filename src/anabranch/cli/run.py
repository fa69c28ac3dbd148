"""`anabranch run`."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.configuration import Configuration, Master, configured
from anabranch.cli.progress import watching
from anabranch.cli.show_errors import UsageProblem
from anabranch.cli.verb import Invocation


def run(
    at: Invocation,
    once: Annotated[
        bool, typer.Option("--once/--follow", help="Stop when everything available is read, or go on until stopped.")
    ] = True,
    refresh: Annotated[
        str, typer.Option("--refresh", metavar="A,B", help="Bring only these datasets up to date.")
    ] = "",
    full_refresh: Annotated[
        str, typer.Option("--full-refresh", metavar="A,B", help="Rebuild these datasets from what they read.")
    ] = "",
    full_refresh_all: Annotated[
        bool, typer.Option("--full-refresh-all", help="Rebuild every dataset that may be.")
    ] = False,
    conf: Configuration = None,
    master: Master = None,
) -> None:
    """Run the pipeline. Safe to stop, kill and start again at any time."""
    from anabranch.core.selection import Selection
    from anabranch.engine.run import run as run_project
    from anabranch.load.project import read_project

    if full_refresh_all and (refresh or full_refresh):
        raise UsageProblem(
            "USAGE",
            "--full-refresh-all is about every dataset, so no other can be named",
            hint="leave out --refresh and --full-refresh, or --full-refresh-all",
        )
    selection = Selection(_names(refresh), _names(full_refresh), full_refresh_all)
    project = configured(read_project(at.project), conf, master)
    with watching(at.out) as listener:
        run_project(project, once=once, listener=listener, selection=selection)


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())
