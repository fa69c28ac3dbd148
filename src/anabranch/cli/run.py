"""`anabranch run`."""

from __future__ import annotations

from typing import Annotated

import typer

from anabranch.cli.progress import progress
from anabranch.cli.verb import Invocation


def run(
    at: Invocation,
    once: Annotated[
        bool, typer.Option("--once/--follow", help="Stop when everything available is read, or go on until stopped.")
    ] = True,
) -> None:
    """Run the pipeline. Safe to stop, kill and start again at any time."""
    from anabranch.engine.run import run as run_project
    from anabranch.load.project import read_project

    run_project(read_project(at.project), once=once, listener=progress(at.out))
