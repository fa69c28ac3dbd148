"""What a project declares, as one JSON document on stdout: `python -m anabranch.ui.examine PROJECT`.

The files of a project are programs. They run here, in a process of their own, so that whatever they do (end the
process, wait for ever, change the working folder) does not happen to the page.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.core.channels import channels
from anabranch.core.declarations import Dataset
from anabranch.core.graph import build
from anabranch.core.lineage import Lineage, lineage
from anabranch.core.quality import quarantine_of
from anabranch.errors import AnabranchError, ProjectErrors
from anabranch.load.project import Project, read_project
from anabranch.load.python_files import load_pipeline
from anabranch.read import open_ledger

if TYPE_CHECKING:
    from anabranch.core.where import Where


def examine(path: Path) -> dict[str, Any]:
    """The document: nodes, edges, notes and problems."""
    empty: dict[str, Any] = {"nodes": [], "edges": [], "notes": [], "problems": []}
    try:
        project = read_project(path)
    except AnabranchError as error:
        return {**empty, "problems": problem_records(error, path)}
    try:
        loaded = load_pipeline(project, with_spark=False)
        graph = build(loaded.pipeline)
        parts = channels(graph, _known(project))
    except AnabranchError as error:
        return {**empty, "problems": problem_records(error, project.root)}
    found = lineage(graph, {d.name: c.name for c in parts for d in c.datasets}, sources_of(project))
    notes = [note for one in loaded.notes for note in problem_records(one, project.root)]
    return {
        "nodes": _nodes(found, graph.datasets, project.root),
        "edges": [{"source": e.source, "target": e.target, "flow": e.flow, "sure": e.sure} for e in found.edges],
        "notes": notes,
        "problems": [],
    }


def problem_records(error: AnabranchError, root: Path) -> list[dict[str, Any]]:
    """An error, or each of several, with places relative to the project."""
    several: Iterable[AnabranchError] = error.problems if isinstance(error, ProjectErrors) else (error,)
    return [
        {"code": one.code, "message": one.message, "hint": one.hint, "place": _place(one.where, root)}
        for one in several
    ]


def sources_of(project: Project) -> Mapping[str, Sequence[str]]:
    """What each channel read when it last ran, from the mark in its checkpoint."""
    inside = f"{project.root}/"
    return {
        mark.parts[-3]: [text.replace(inside, "") for text in json.loads(mark.read_text())["sources"]]
        for mark in checkpoint_marks(project)
    }


def checkpoint_marks(project: Project) -> list[Path]:
    """The mark of the newest generation's checkpoint of each channel."""
    folder = Path(project.storage) / "_anabranch" / "checkpoints"
    newest: dict[str, Path] = {}
    marks = (m for m in folder.glob("*/*/anabranch.json") if m.parent.name.isdigit())
    for mark in sorted(marks, key=lambda m: int(m.parent.name)):
        newest[mark.parts[-3]] = mark
    return sorted(newest.values())


def _known(project: Project) -> dict[str, str]:
    """To which channel each output belongs; a ledger that cannot be read is told of elsewhere on the page."""
    try:
        with open_ledger(project) as (ledger, pipeline):
            return {o.name: c.channel for c in ledger.channels(pipeline.pipeline_id) for o in c.outputs}
    except AnabranchError:
        return {}


def _nodes(found: Lineage, datasets: Mapping[str, Dataset], root: Path) -> list[dict[str, Any]]:
    records = []
    for node in found.nodes:
        dataset = datasets.get(node.name)
        records.append(
            {
                "name": node.name,
                "kind": node.kind,
                "zone": node.zone,
                "channel": node.channel,
                "outside": node.is_outside,
                "format": node.format,
                "comment": node.comment,
                "place": _place(node.where, root),
                "owner": dataset.owner if dataset else None,
                "tags": dict(dataset.tags) if dataset else {},
                "rules": _rules(dataset, root) if dataset else [],
                "quarantine": aside.name if dataset and (aside := quarantine_of(dataset)) else None,
            }
        )
    return records


def _rules(dataset: Dataset, root: Path) -> list[dict[str, Any]]:
    rules = [(r.name, r.condition, r.action, r.where) for r in dataset.expectations]
    rules += [(u.name, f"no two rows with the same {', '.join(u.columns)}", u.action, u.where) for u in dataset.unique]
    return [
        {"name": name, "condition": condition, "action": str(action), "place": _place(where, root)}
        for name, condition, action, where in rules
    ]


def _place(where: Where | None, root: Path) -> str | None:
    return None if where is None else str(where).removeprefix(f"{root}/")


def main() -> int:
    """Write the document to the real stdout; what the project's files print goes nowhere."""
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        out.write(json.dumps(examine(Path(sys.argv[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
