"""Run a project's files under our registry: what they declare becomes a Pipeline.

A boundary is drawn around the user's code: whatever goes wrong in it is reported with the place in the user's file, and
the other files are still run, so that one load finds the faults of all of them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from anabranch.core.declarations import Flow, Pipeline
from anabranch.core.names import HOME
from anabranch.core.secrets import only_references
from anabranch.core.where import Where
from anabranch.errors import ProjectError, ProjectErrors
from anabranch.load.declare import without_live
from anabranch.load.detectors import finished_detectors
from anabranch.load.inputs import find_inputs
from anabranch.load.lakeflow import lakeflow_module
from anabranch.load.late_binding import as_seen
from anabranch.load.owners import with_default_owner
from anabranch.load.project import Project
from anabranch.load.registry import DeclaredFlow, Registry, registering
from anabranch.load.sql_files import declare_sql
from anabranch.load.standin import NeedsSpark, StandIn
from anabranch.load.standin_modules import standing_in
from anabranch.load.surroundings import PACKAGE, Surroundings, surroundings
from anabranch.load.user_errors import NOTE, needs_spark_note, problem_in
from anabranch.load.zones_declare import declare_zones


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the files declare.

    `notes` name what could not be looked at without Spark; `problems` what is wrong. `complete` is False if some file
    did not run to its end: names that seem to be missing may then be declared in the part that did not run.
    """

    pipeline: Pipeline
    notes: tuple[ProjectError, ...]
    problems: tuple[ProjectError, ...] = ()
    complete: bool = True


def load_pipeline(project: Project, *, with_spark: bool) -> Loaded:
    """Run the project's files; ProjectErrors names everything that is wrong with them.

    With Spark, the files get the real pyspark and the active session as `spark`. Without, pyspark is not imported at
    all (see `standin`). The working folder, `sys.path` and `sys.modules` are changed meanwhile, for the whole process.
    """
    loaded = examine_pipeline(project, with_spark=with_spark)
    if loaded.problems:
        raise ProjectErrors(loaded.problems)
    return loaded


def examine_pipeline(
    project: Project, *, with_spark: bool, notebook: Mapping[str, Any] = MappingProxyType({})
) -> Loaded:
    """Like `load_pipeline`, but the problems are returned beside what could be loaded.

    `notebook` has names that files get beside `spark`.
    """
    home = (project.catalog or HOME[0], project.database or HOME[1])
    registry = Registry(home)
    with ExitStack() as stack:
        spark = stack.enter_context(_spark(registry) if with_spark else _no_spark(project))
        stack.enter_context(registering(registry))
        injected = {**notebook, **({} if spark is None else {"spark": spark})}
        around = stack.enter_context(surroundings(project.root, project.files, injected))
        if with_spark:
            stack.enter_context(_shipped_by_value())
        stopped = [found for file in project.files if (found := _run(file, around, registry, with_spark))]
        if project.zones is not None:
            declare_zones(project.zones, registry)
        flows = tuple(_finished(declared, around, registry) for declared in registry.flows)
        datasets = with_default_owner(registry.finished_datasets(), project.zones)
    detectors, wrong = finished_detectors(
        [*project.detectors, *registry.detectors], datasets, flows, home, complete=not stopped
    )
    notes = tuple(found for found in stopped if found.code == NOTE)
    problems = [*(found for found in stopped if found.code != NOTE), *registry.problems, *wrong]
    once = {(problem.code, problem.where, problem.message): problem for problem in problems}
    notes += tuple(registry.warnings)
    pipeline = Pipeline(project.name, datasets, flows, Where(str(project.spec_file)), home, detectors)
    return Loaded(pipeline, notes, tuple(once.values()), complete=not stopped)


def _run(file: Path, around: Surroundings, registry: Registry, with_spark: bool) -> ProjectError | None:
    """Run one file; what stopped it, if something did, is a note or a problem."""
    try:
        if file.suffix == ".sql":
            declare_sql(file.read_text(encoding="utf-8-sig"), str(file), registry)
        else:
            around.run(file)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 the boundary around user code, which may also call sys.exit
        note = None if with_spark else needs_spark_note(error, around, file)
        return note or problem_in(error, around, file)
    return None


def _finished(declared: DeclaredFlow, around: Surroundings, registry: Registry) -> Flow:
    """The flow with its variables as they were when it was declared, its target by the name it has, and its inputs."""
    query = as_seen(declared.flow.query, declared.seen)
    flow = dataclasses.replace(declared.flow, target=registry.target(declared.flow.target))
    if declared.inputs_said:
        return flow
    try:
        inputs = find_inputs(query, around.is_ours)
    except NeedsSpark:
        return dataclasses.replace(flow, query=query, inputs_known=False)
    names = tuple(dict.fromkeys(without_live(name) for name in inputs.names))
    return dataclasses.replace(flow, query=query, inputs=names, inputs_known=inputs.known)


@contextmanager
def _no_spark(project: Project) -> Iterator[StandIn]:
    with only_references(), standing_in(lakeflow_module("pyspark.pipelines"), project.configuration):
        yield StandIn("spark")


@contextmanager
def _spark(registry: Registry) -> Iterator[Any]:
    """The active session, if there is one, while declarations made through pyspark are captured."""
    from pyspark.sql import SparkSession

    from anabranch.load.spark_pipelines import capturing

    with capturing(registry):
        yield SparkSession.getActiveSession()


@contextmanager
def _shipped_by_value() -> Iterator[None]:
    """Functions of library files go to Spark's workers by value: these cannot import the files."""
    from pyspark import cloudpickle

    package = sys.modules[PACKAGE]
    cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(package)  # type: ignore[no-untyped-call]
