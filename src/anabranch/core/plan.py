"""The plan: the steps of one epoch of every channel, as records that `run` executes and `explain` prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.core.channels import Channel, channels
from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.graph import Graph
from anabranch.core.quality import quarantine_of
from anabranch.errors import ProjectError, ProjectErrors


@dataclass(frozen=True, slots=True)
class RunFlow:
    """Compute a flow's rows; `inputs` are the datasets of this channel it reads, none for a source.

    `how` is known once Spark has looked at it: "fused" into one pass with others, or "branch" and why.
    """

    flow: Flow
    inputs: tuple[str, ...]
    how: str | None = None


@dataclass(frozen=True, slots=True)
class StageOutput:
    """Write an output's rows durably where no reader sees them."""

    dataset: Dataset


@dataclass(frozen=True, slots=True)
class Decide:
    """Write the epoch record with every receipt: the only commit point."""

    channel: str


@dataclass(frozen=True, slots=True)
class ApplyOutput:
    """Hand an output its receipt; once, however often it is tried."""

    dataset: Dataset


@dataclass(frozen=True, slots=True)
class Publish:
    """Move the cut that readers use."""

    channel: str
    outputs: tuple[str, ...]


Step = RunFlow | StageOutput | Decide | ApplyOutput | Publish


@dataclass(frozen=True, slots=True)
class ChannelPlan:
    """The steps of one epoch of a channel, in order; `scans` has a line for each time a source is read, if known."""

    channel: Channel
    steps: tuple[Step, ...]
    scans: tuple[str, ...] = ()

    @property
    def flows(self) -> tuple[RunFlow, ...]:
        """The flows, each after those it reads."""
        return tuple(s for s in self.steps if isinstance(s, RunFlow))

    @property
    def outputs(self) -> tuple[Dataset, ...]:
        """The outputs, in the order they are staged and applied."""
        return tuple(s.dataset for s in self.steps if isinstance(s, StageOutput))


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of the whole pipeline does in each epoch."""

    pipeline: str
    channels: tuple[ChannelPlan, ...]


#: Sink formats this version can write.
FORMATS = ("delta",)


def make_plan(graph: Graph, known: Mapping[str, str] | None = None) -> Plan:
    """The plan of a graph; raises `ProjectErrors` for what this version cannot run.

    `known` is passed on to `channels`.
    """
    found = refused(graph.pipeline)
    if found:
        raise ProjectErrors(found)
    parts = tuple(c for c in channels(graph, known) if c.outputs)
    return Plan(graph.pipeline.name, tuple(_channel_plan(graph, c) for c in parts))


def refused(pipeline: Pipeline) -> list[ProjectError]:
    """What this version cannot run."""
    datasets = (check(d) for d in pipeline.datasets for check in (_refused, _unique))
    flows = (check(f) for f in pipeline.flows for check in (_changes, _once, _updates))
    return [problem for problem in (*datasets, *flows) if problem]


def with_program(plan: ChannelPlan, how: Mapping[str, str], scans: tuple[str, ...]) -> ChannelPlan:
    """The plan with what Spark's look at it has shown."""
    steps = (replace(s, how=how.get(s.flow.name)) if isinstance(s, RunFlow) else s for s in plan.steps)
    return replace(plan, steps=tuple(steps), scans=scans)


def _channel_plan(graph: Graph, channel: Channel) -> ChannelPlan:
    aside = (quarantine_of(d) for d in channel.datasets)
    outputs = [*channel.outputs, *(d for d in aside if d)]
    steps: list[Step] = [RunFlow(f, graph.inputs(f)) for f in channel.flows]
    steps += [StageOutput(d) for d in outputs]
    steps.append(Decide(channel.name))
    steps += [ApplyOutput(d) for d in outputs]
    steps.append(Publish(channel.name, tuple(d.name for d in outputs)))
    return ChannelPlan(channel, tuple(steps))


def _refused(dataset: Dataset) -> ProjectError | None:
    if not dataset.name.isidentifier():
        return ProjectError(
            "NAME_NOT_SIMPLE",
            f'"{dataset.name}" is not a simple name; this version takes letters, digits and underscores',
            where=dataset.where,
            hint=f'call it "{re.sub(r"[^0-9A-Za-z_]", "_", dataset.name)}"',
        )
    if dataset.kind is Kind.MATERIALIZED_VIEW:
        return ProjectError(
            "KIND_NOT_SUPPORTED",
            f'"{dataset.name}" is a materialized view, which this version does not run',
            where=dataset.where,
            hint="declare a streaming table, or query the tables at the cut with `anabranch sql`",
        )
    if dataset.is_output and dataset.format not in FORMATS:
        return ProjectError(
            "FORMAT_NOT_SUPPORTED",
            f'"{dataset.name}" has format "{dataset.format}", which this version does not write',
            where=dataset.where,
            hint=f"formats that can be written: {', '.join(FORMATS)}",
        )
    return None


def _unique(dataset: Dataset) -> ProjectError | None:
    if not dataset.unique:
        return None
    return ProjectError(
        "UNIQUE_NOT_SUPPORTED",
        f'"{dataset.name}" has the rule "{dataset.unique[0].name}", and this version cannot check what is unique',
        where=dataset.unique[0].where,
        hint="drop repeated rows in the flow: withWatermark and dropDuplicatesWithinWatermark",
    )


def _changes(flow: Flow) -> ProjectError | None:
    if flow.changes is None or not flow.changes.snapshot:
        return None
    return ProjectError(
        "CHANGES_NOT_SUPPORTED",
        f'flow "{flow.name}" takes snapshots, which this version does not do',
        where=flow.where,
        hint="give the changes themselves to create_auto_cdc_flow",
    )


def _once(flow: Flow) -> ProjectError | None:
    if not flow.once:
        return None
    return ProjectError(
        "ONCE_NOT_SUPPORTED",
        f'flow "{flow.name}" is to run once, which this version does not do',
        where=flow.where,
        hint="read the files with spark.readStream: those that were read are not read again",
    )


def _updates(flow: Flow) -> ProjectError | None:
    if flow.mode != "update":
        return None
    return ProjectError(
        "UPDATE_NOT_SUPPORTED",
        f'flow "{flow.name}" writes in update mode, which this version does not do',
        where=flow.where,
        hint="use append_flow, with a watermark before an aggregation",
    )
