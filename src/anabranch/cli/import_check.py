"""`anabranch import-check`: what of a project made for Spark's or Databricks' pipelines runs here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.output import Table
from anabranch.cli.verb import Invocation
from anabranch.core.where import shown_place


def import_check(
    at: Invocation,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", help="Files, a folder or a project file. Default: this folder.", show_default=False
        ),
    ] = None,
) -> None:
    """Say what of a Spark or Databricks project runs as it is, what differs and what is not supported. No Java."""
    from anabranch.load.databricks import Verdict
    from anabranch.load.importing import look_at

    findings = look_at(paths or [Path()])
    counts = {verdict: sum(f.verdict is verdict for f in findings) for verdict in Verdict}
    records = [
        {
            "verdict": str(f.verdict),
            "what": f.what,
            "where": str(f.where),
            "why": f.why or None,
            "hint": f.hint,
            "code": f.code,
        }
        for f in findings
    ]
    rows: list[dict[str, Any]] = [
        {
            "verdict": str(f.verdict),
            "where": shown_place(f.where),
            "what": f.what,
            "why, and what to do": "; ".join(text for text in (f.why, f.hint) if text),
        }
        for f in findings
    ]
    ok = not counts[Verdict.NOT_SUPPORTED]
    summary = "{} run as they are, {} differ, {} not supported".format(*counts.values())
    at.out.show(
        {"ok": ok, "counts": {str(verdict): count for verdict, count in counts.items()}, "findings": records},
        Table(rows, empty="nothing is declared here"),
        "",
        summary,
    )
    if not ok:
        raise typer.Exit(1)
