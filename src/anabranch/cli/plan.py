"""`anabranch plan` and `anabranch dry-run`: what a run would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.configuration import Configuration, Master, configured
from anabranch.cli.output import Table
from anabranch.cli.progress import notes
from anabranch.cli.show_errors import one_line
from anabranch.cli.verb import Invocation

if TYPE_CHECKING:
    from anabranch.core.plan import Plan
    from anabranch.load.project import Project


def plan(
    at: Invocation,
    static: Annotated[
        bool,
        typer.Option("--static", help="From the files alone, without Java; leaves out what only Spark can tell."),
    ] = False,
) -> None:
    """Show the steps of each epoch: what is read, computed, staged, decided, applied, published."""
    from anabranch.core.explain import as_records, as_text
    from anabranch.load.project import read_project

    project = read_project(at.project)
    if static:
        made = _from_the_files(at, project)
    else:
        from anabranch.engine.planning import full_plan

        made = full_plan(project, notes(at.out))
    at.out.show(as_records(made), as_text(made).replace(f"{project.root}/", ""))


def _from_the_files(at: Invocation, project: Project) -> Plan:
    from anabranch.core.graph import build
    from anabranch.core.plan import make_plan
    from anabranch.load.python_files import load_pipeline

    loaded = load_pipeline(project, with_spark=False)
    for note in loaded.notes:
        at.out.note(one_line(note))
    return make_plan(build(loaded.pipeline))


def dry_run(at: Invocation, conf: Configuration = None, master: Master = None) -> None:
    """Let Spark analyse every flow, and check the tables' schemas. Reads no row, writes nothing."""
    from anabranch.engine.dry_run import dry_run as look
    from anabranch.load.project import read_project

    rows = look(configured(read_project(at.project), conf, master), notes(at.out))
    at.out.show(rows, Table(rows, ("channel", "output", "format", "columns", "state"), empty="no outputs"))
    at.out.note(f"ok: {len(rows)} outputs; nothing was read or written")
