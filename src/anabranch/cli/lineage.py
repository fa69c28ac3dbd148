"""`anabranch lineage`: what a dataset is computed from, and what is computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import Table
from anabranch.cli.show_errors import one_line
from anabranch.cli.verb import Invocation
from anabranch.core.lineage import Lineage
from anabranch.core.where import shown_place

if TYPE_CHECKING:
    from anabranch.core.graph import Graph
    from anabranch.core.lineage import Node
    from anabranch.load.project import Project


class Direction(StrEnum):
    """Against the stream or with it; the columns of one dataset; or all datasets."""

    UP = "up"
    DOWN = "down"
    COLUMNS = "columns"
    LIST = "list"


def lineage(
    at: Invocation,
    direction: Annotated[
        Direction,
        typer.Argument(
            help="up: what it is computed from. down: what reads it. columns: its columns, each with what it is "
            "computed from. list: all datasets, with who answers for them."
        ),
    ],
    dataset: Annotated[str | None, typer.Argument(help="A table, view or sink; DATASET.COLUMN for one column.")] = None,
    version: Annotated[
        int | None, typer.Option("--at", min=1, help="The columns as they were: a version that --versions lists.")
    ] = None,
    versions: Annotated[bool, typer.Option("--versions", help="List the versions of the columns' lineage.")] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Ask Spark what the files say now, instead of what the last run found.")
    ] = False,
    owner: Annotated[str | None, typer.Option("--owner", help="With list: only what this one answers for.")] = None,
) -> None:
    """Show what a dataset or a column is computed from, or what is computed from it.

    Datasets come from the files alone, columns from what the runs have found: both without Java.
    """
    from anabranch.load.project import read_project

    project = read_project(at.project)
    if direction is Direction.LIST:
        _list(at, project, owner)
        return
    if dataset is None:
        raise typer.BadParameter(f"say which dataset: anabranch lineage {direction} DATASET")
    if direction is Direction.COLUMNS:
        from anabranch.cli.column_lineage import asked, show_columns, show_versions

        known = asked(at, project, fresh=fresh)
        if versions:
            show_versions(at, known, dataset)
        else:
            show_columns(at, known, dataset, version)
        return
    if version is not None or versions:
        raise typer.BadParameter("--at and --versions go with: anabranch lineage columns DATASET")
    _up_or_down(at, project, direction, dataset, fresh=fresh)


def _up_or_down(at: Invocation, project: Project, direction: Direction, text: str, *, fresh: bool) -> None:
    from anabranch.core.names import resolve
    from anabranch.errors import ProjectError, did_you_mean

    graph, found = declared(at, project)
    name = text if text in found.by_name else resolve(text, graph.datasets, graph.pipeline.home)
    if name is None and resolve(text.rpartition(".")[0], graph.datasets, graph.pipeline.home):
        from anabranch.cli.column_lineage import asked, show_down, show_up

        known = asked(at, project, fresh=fresh)
        of, column = known.name(text)
        (show_up if direction is Direction.UP else show_down)(at, known, of, column or "")
        return
    if name is None:
        raise ProjectError(
            "DATASET_UNKNOWN",
            f'"{text}" is no table, view or sink of this pipeline',
            hint=did_you_mean(text, graph.datasets) or f"there are: {', '.join(graph.datasets)}",
        )
    part = found.up(name) if direction is Direction.UP else found.down(name)
    after = part.inputs if direction is Direction.UP else part.readers
    document = {"dataset": name, "direction": str(direction), **as_records(part)}
    at.out.show(document, "\n".join(_tree(part, name, {n.name: after(n.name) for n in part.nodes})))


def _list(at: Invocation, project: Project, owner: str | None) -> None:
    _, found = declared(at, project)
    nodes = [n for n in found.nodes if not n.is_outside and (owner is None or (n.owner or "").lower() == owner.lower())]
    records = as_records(Lineage(tuple(nodes), ()))["nodes"]
    shown = [{**row, "tags": ", ".join(f"{k}: {v}" for k, v in row["tags"].items())} for row in records]
    empty = "no dataset" if owner is None else f'"{owner}" answers for no dataset'
    at.out.show(records, Table(shown, ("name", "kind", "owner", "tags", "where"), empty=empty))


def declared(at: Invocation, project: Project) -> tuple[Graph, Lineage]:
    """What a project declares, from its files alone; sources as far as a run has named them."""
    from anabranch.core.channels import channels
    from anabranch.core.graph import build
    from anabranch.core.lineage import lineage as lineage_of
    from anabranch.load.python_files import load_pipeline

    loaded = load_pipeline(project, with_spark=False)
    for note in loaded.notes:
        at.out.note(one_line(note))
    graph = build(loaded.pipeline)
    parts = channels(graph)
    found = lineage_of(graph, {d.name: c.name for c in parts for d in c.datasets}, _sources(project))
    if found.unsure:
        at.out.note(f"what these flows read is computed, so it may be missing: {', '.join(found.unsure)}")
    return graph, found


def as_records(found: Lineage) -> dict[str, Any]:
    """For programs."""
    return {
        "nodes": [
            {
                "name": node.name,
                "kind": node.kind,
                "zone": node.zone or None,
                "channel": node.channel,
                "format": node.format,
                "comment": node.comment,
                "owner": node.owner,
                "tags": dict(node.tags),
                "where": shown_place(node.where) if node.where else None,
            }
            for node in found.nodes
        ],
        "edges": [
            {
                "from": edge.source,
                "to": edge.target,
                "flow": edge.flow,
                "where": shown_place(edge.where) if edge.where else None,
                "sure": edge.sure,
            }
            for edge in found.edges
        ],
        "unsure_flows": list(found.unsure),
    }


def _sources(project: Project) -> Mapping[str, Sequence[str]]:
    """What each channel read when it last ran."""
    from pathlib import Path

    from anabranch.engine.checkpoint import Checkpoint

    folder = Path(project.storage) / "_anabranch" / "checkpoints"
    newest = {
        channel.name: max((g for g in channel.iterdir() if g.name.isdigit()), key=lambda g: int(g.name), default=None)
        for channel in (sorted(folder.iterdir()) if folder.is_dir() else ())
    }
    inside = f"{project.root}/"
    return {
        channel: [text.replace(inside, "") for text in Checkpoint(found).sources()]
        for channel, found in newest.items()
        if found
    }


def _tree(found: Lineage, root: str, after: Mapping[str, Sequence[str]]) -> list[str]:
    """Each dataset below the one that leads to it; one that was shown before is only named again."""
    lines: list[str] = []
    shown: set[str] = set()

    def add(name: str, lead: str, below: str) -> None:
        again = name in shown and bool(after[name])
        lines.append(f"{lead}{_described(found.by_name[name])}{'  (see above)' if again else ''}")
        if not again:
            shown.add(name)
            for number, other in enumerate(after[name], start=1):
                last = number == len(after[name])
                add(other, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}")

    add(root, "", "")
    return lines


def _described(node: Node) -> str:
    place = f"  {shown_place(node.where)}" if node.where else ""
    owner = f"  owner: {node.owner}" if node.owner else ""
    return f"{node.name}  {node.kind}{place}{owner}"
