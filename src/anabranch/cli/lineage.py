"""`anabranch lineage`: what a dataset is computed from, and what is computed from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.show_errors import one_line
from anabranch.cli.verb import Invocation
from anabranch.core.where import shown_place

if TYPE_CHECKING:
    from anabranch.core.graph import Graph
    from anabranch.core.lineage import Lineage, Node
    from anabranch.load.project import Project


class Direction(StrEnum):
    """Against the stream or with it."""

    UP = "up"
    DOWN = "down"


def lineage(
    at: Invocation,
    direction: Annotated[Direction, typer.Argument(help="up: what it is computed from. down: what reads it.")],
    dataset: Annotated[str, typer.Argument(help="The table, view or sink.")],
) -> None:
    """Show what a dataset is computed from, or what is computed from it. From the files alone, without Java."""
    from anabranch.core.names import resolve
    from anabranch.errors import ProjectError, did_you_mean
    from anabranch.load.project import read_project

    graph, found = declared(at, read_project(at.project))
    name = dataset if dataset in found.by_name else resolve(dataset, graph.datasets, graph.pipeline.home)
    if name is None:
        raise ProjectError(
            "DATASET_UNKNOWN",
            f'"{dataset}" is no table, view or sink of this pipeline',
            hint=did_you_mean(dataset, graph.datasets) or f"there are: {', '.join(graph.datasets)}",
        )
    part = found.up(name) if direction is Direction.UP else found.down(name)
    after = part.inputs if direction is Direction.UP else part.readers
    document = {"dataset": name, "direction": str(direction), **as_records(part)}
    at.out.show(document, "\n".join(_tree(part, name, {n.name: after(n.name) for n in part.nodes})))


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
    return f"{node.name}  {node.kind}{place}"
