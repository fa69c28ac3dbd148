"""`anabranch check`: whether the project is in order, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.cli.output import Table
from anabranch.cli.show_errors import one_line
from anabranch.cli.verb import Invocation
from anabranch.core.where import shown_place
from anabranch.errors import ProjectError, ProjectErrors

if TYPE_CHECKING:
    from anabranch.core.declarations import Pipeline
    from anabranch.load.python_files import Loaded

#: What may only seem wrong when a part of the files could not be run.
OF_MISSING_NAMES = {"PROJECT_UNKNOWN_INPUT", "PROJECT_UNKNOWN_TARGET", "PROJECT_NO_FLOW"}


def check(at: Invocation) -> None:
    """Load the project and report everything that is wrong with it. Starts no Java."""
    from anabranch.core import graph
    from anabranch.core.plan import refused
    from anabranch.load.databricks import ignored_cloud_options
    from anabranch.load.project import examine_project
    from anabranch.load.python_files import examine_pipeline

    examined = examine_project(at.project)
    if examined.project is None:
        raise ProjectErrors(examined.problems)
    loaded = examine_pipeline(examined.project, with_spark=False)
    found = [p for p in graph.problems(loaded.pipeline) if loaded.complete or p.code not in OF_MISSING_NAMES]
    problems: list[ProjectError] = [*examined.problems, *loaded.problems, *found, *refused(loaded.pipeline)]
    if problems:
        raise ProjectErrors(problems)
    warnings = [*loaded.notes, *(graph.warnings(loaded.pipeline) if loaded.complete else [])]
    warnings += ignored_cloud_options(examined.project.files)
    for warning in warnings:
        at.out.note(f"warning: {one_line(warning)}")
    channels = _channels(loaded)
    rows = _datasets(loaded.pipeline, channels)
    document = {
        "ok": True,
        "pipeline": loaded.pipeline.name,
        "channels": list(dict.fromkeys(channels.values())) if loaded.complete else None,
        "datasets": rows,
        "flows": len(loaded.pipeline.flows),
        "warnings": [w.as_record() for w in warnings],
    }
    summary = _summary(loaded, channels)
    at.out.show(document, *([Table(rows), "", summary] if at.verbose and rows else [summary]))


def _channels(loaded: Loaded) -> Mapping[str, str]:
    """The channel of each dataset; none are known while a part of the files needs Spark to run."""
    from anabranch.core.graph import build
    from anabranch.core.plan import make_plan

    if not loaded.complete:
        return {}
    plan = make_plan(build(loaded.pipeline))
    return {d.name: part.channel.name for part in plan.channels for d in part.channel.datasets}


def _datasets(pipeline: Pipeline, channels: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": d.name, "kind": str(d.kind), "channel": channels.get(d.name), "where": shown_place(d.where)}
        for d in pipeline.datasets
    ]


def _summary(loaded: Loaded, channels: Mapping[str, str]) -> str:
    counts = f"{_count(loaded.pipeline.datasets, 'dataset')}, {_count(loaded.pipeline.flows, 'flow')}"
    if not loaded.complete:
        return f"ok so far: {counts}; `anabranch dry-run` looks at the rest, with Spark"
    return f"ok: {counts}, {_count(set(channels.values()), 'channel')}"


def _count(things: Any, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
