"""Plan with Spark: load the project's files, call its flows, make the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.core.events import Listener, Notice
from anabranch.core.graph import Graph
from anabranch.core.plan import Plan, make_plan, with_program
from anabranch.engine.cloud_files import cloud_files
from anabranch.engine.dataset_names import dataset_names
from anabranch.engine.flows import resolve_flows
from anabranch.engine.opened import known_channels
from anabranch.engine.program import make_program
from anabranch.engine.row_origins import origin_notes
from anabranch.engine.secret_options import secret_options
from anabranch.engine.session import open_session
from anabranch.engine.storage import Storage
from anabranch.engine.table_streams import TableStreams
from anabranch.engine.watermarks import shared_watermark
from anabranch.load.project import Project
from anabranch.load.python_files import load_pipeline
from anabranch.load.surroundings import surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Planned:
    """A project that Spark has looked at: its plan, and the frame of each flow.

    `calling` is the world in which the functions of the project run, for those that are called again.
    """

    plan: Plan
    frames: Mapping[str, DataFrame]
    graph: Graph
    calling: Callable[[], AbstractContextManager[object]] = nullcontext
    missing: frozenset[str] = frozenset()  # tables that detached ones read and that are not made yet: plan again then


#: Makes the plan, given the session and to which channel each output belonged before.
Planner = Callable[["SparkSession", Mapping[str, str]], Planned]


def open_spark(project: Project, listener: Listener, logs: Path | None = None) -> SparkSession:
    """The Spark session of a project; it logs below the storage, or to another folder."""
    logs = logs or Storage.of(project.storage).logs
    listener(Notice("starting Spark ..."))
    return open_session(
        app_name=project.name,
        log_folder=logs,
        settings=project.configuration,
        progress=lambda line: listener(Notice(line)),
    )


def plan_with_spark(project: Project, spark: SparkSession, known: Mapping[str, str], *, pin: bool = True) -> Planned:
    """Load the project's files, call its flows, make the plan; with `pin`, inferred schemas of sources are kept."""
    storage = Storage.of(project.storage)
    schemas = storage.schemas

    @contextmanager
    def calling() -> Iterator[None]:
        beside = surroundings(project.root, project.files, {"spark": spark})  # flows may import what stands beside them
        with dataset_names(), cloud_files(schemas, pin=pin), secret_options(), beside:
            yield

    with dataset_names(), cloud_files(schemas, pin=pin), secret_options():
        loaded = load_pipeline(project, with_spark=True)
    tables = TableStreams(spark, storage)
    with calling():
        resolved = resolve_flows(spark, loaded.pipeline, tables)
    plan = make_plan(resolved.graph, known)
    return Planned(plan, resolved.frames, resolved.graph, calling, frozenset(tables.missing))


def full_plan(project: Project, listener: Listener) -> Plan:
    """The plan with how each flow is computed and how often each source is read."""
    planned = plan_with_spark(project, open_spark(project, listener), known_channels(project), pin=False)
    parts = []
    for part in planned.plan.channels:
        program = make_program(part, planned.frames)
        notes = (*shared_watermark(part, planned.frames), *origin_notes(part, planned.frames))
        parts.append(with_program(part, program.how, program.sources, notes))
    return Plan(planned.plan.pipeline, tuple(parts), planned.plan.views)
