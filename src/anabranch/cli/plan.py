"""`anabranch plan` and `anabranch dry-run`: what a run would do."""

from __future__ import annotations

from anabranch.cli.output import Table
from anabranch.cli.show_errors import one_line
from anabranch.cli.verb import Invocation


def plan(at: Invocation) -> None:
    """Show the steps of each epoch: what is read, computed, staged, decided, applied, published. Starts no Java."""
    from anabranch.core.explain import as_records, as_text
    from anabranch.core.graph import build
    from anabranch.core.plan import make_plan
    from anabranch.load.project import read_project
    from anabranch.load.python_files import load_pipeline

    project = read_project(at.project)
    loaded = load_pipeline(project, with_spark=False)
    for note in loaded.notes:
        at.out.note(one_line(note))
    made = make_plan(build(loaded.pipeline))
    at.out.show(as_records(made), as_text(made).replace(f"{project.root}/", ""))


def dry_run(at: Invocation) -> None:
    """Let Spark analyse every flow, and check the tables' schemas. Reads no row, writes nothing."""
    from anabranch.engine.dry_run import dry_run as look
    from anabranch.load.project import read_project

    rows = look(read_project(at.project))
    at.out.show(rows, Table(rows, ("channel", "output", "format", "columns", "state"), empty="no outputs"))
    at.out.note(f"ok: {len(rows)} outputs; nothing was read or written")
