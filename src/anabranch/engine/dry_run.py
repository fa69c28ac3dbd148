"""Dry run: Spark analyses every flow and the tables' schemas are compared; no row is read, nothing is written."""

from __future__ import annotations

from typing import Any

from anabranch.core.events import Listener
from anabranch.engine.changes import merges
from anabranch.engine.opened import declared_sink, known_channels
from anabranch.engine.planning import open_spark, plan_with_spark
from anabranch.engine.program import make_program, output_schemas
from anabranch.engine.row_types import arrow_types
from anabranch.engine.storage import Storage
from anabranch.load.project import Project


def dry_run(project: Project, listener: Listener) -> list[dict[str, Any]]:
    """One record per output; raises what a run would raise before it reads its first row."""
    planned = plan_with_spark(project, open_spark(project, listener), known_channels(project), pin=False)
    storage = Storage.of(project.storage)
    found: list[dict[str, Any]] = []
    for part in planned.plan.channels:
        schemas, merging = output_schemas(part, planned.frames), merges(part, planned.frames)
        program = make_program(part, planned.frames)
        for dataset in part.outputs:
            sink = declared_sink(dataset, storage, merging.get(dataset.name))
            found.append(
                {
                    "channel": part.channel.name,
                    "output": dataset.name,
                    "format": dataset.format,
                    "columns": len(schemas[dataset.name].fields),
                    "schema": schemas[dataset.name].simpleString(),
                    "state": sink.examine(arrow_types(dataset.name, schemas[dataset.name])),
                    "flows": {
                        f.flow.name: program.how[f.flow.name] for f in part.flows if f.flow.target == dataset.name
                    },
                    "sources": list(program.sources),
                    "where": str(dataset.where),
                }
            )
    return found
