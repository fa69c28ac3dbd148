"""`anabranch recover`, `reset`, `vacuum` and `drop`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from anabranch.cli.output import Table
from anabranch.cli.progress import progress
from anabranch.cli.verb import Invocation


def recover(
    at: Invocation,
    moved: Annotated[
        bool, typer.Option("--moved", help="Accept that the storage or the ledger was moved here, and is no copy.")
    ] = False,
) -> None:
    """Finish what was decided and remove what was not. A run does the same at its start."""
    from anabranch.engine.opened import open_project
    from anabranch.engine.upkeep import declared_outputs, recover_all
    from anabranch.load.project import read_project

    with open_project(read_project(at.project), moved=moved) as opened:
        found = recover_all(opened, progress(at.out), declared_outputs(opened))
    done = [{"channel": name, **asdict(channel)} for name, channel in found.items()]
    at.out.show(done, Table(done, ("channel", "finished", "restage", "files", "bytes"), empty="no channels yet"))


def reset(
    at: Invocation,
    channel: Annotated[str, typer.Argument(help="The channel to start over.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Start a channel over: its next run reads the sources from the start and replaces what its tables hold."""
    from anabranch.engine.opened import open_project
    from anabranch.engine.upkeep import reset as start_over
    from anabranch.load.project import read_project

    with open_project(read_project(at.project)) as opened:
        if not yes:
            typer.confirm(
                f'Rebuild every table of channel "{channel}" from its sources at the next run?', abort=True, err=True
            )
        generation = start_over(opened, channel)
    at.out.show(
        {"channel": channel, "generation": generation},
        f'channel "{channel}" is at generation {generation}; the next run rebuilds its tables',
    )


def vacuum(
    at: Invocation,
    apply: Annotated[bool, typer.Option("--apply", help="Remove the files; without it they are only listed.")] = False,
) -> None:
    """Remove data files that neither a table nor a retained cut needs."""
    from anabranch.engine.opened import open_project
    from anabranch.engine.upkeep import vacuum as remove
    from anabranch.load.project import read_project

    with open_project(read_project(at.project)) as opened:
        done = remove(opened, dry_run=not apply)
    rows = [{"table": v.table, "files": len(v.files)} for v in done]
    at.out.show([asdict(v) for v in done], Table(rows, empty="no tables yet"))
    if not apply and any(v.files for v in done):
        at.out.note("nothing was removed; do it with: anabranch vacuum --apply")


def drop(
    at: Invocation,
    dataset: Annotated[str, typer.Argument(help="The output, which the project no longer declares.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove the table of an output that is no longer declared, with all its rows.

    It leaves the newest cut at once. Older cuts still name it; whoever reads it there is told VERSION_GONE.
    """
    from anabranch.engine.drop import drop as remove
    from anabranch.engine.drop import droppable
    from anabranch.engine.opened import open_project
    from anabranch.engine.upkeep import declared_outputs
    from anabranch.load.project import read_project
    from anabranch.load.python_files import load_pipeline

    project = read_project(at.project)
    pipeline = load_pipeline(project, with_spark=False).pipeline
    with open_project(project) as opened:
        found = droppable(opened, pipeline, dataset)
        if not yes:
            typer.confirm(f'Remove "{dataset}" and every file in {found.place}?', abort=True, err=True)
        remove(opened, found, progress(at.out), declared_outputs(opened))
    at.out.show({"dataset": dataset, "removed": found.place}, f'"{dataset}" is gone, with the files in {found.place}')
