"""The plan: the steps of one epoch of every channel, as records that `run` executes and `explain` prints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.core.changes import Changes
from anabranch.core.channels import Channel, channels
from anabranch.core.declarations import Action, Dataset, Flow, Kind, Pipeline, Unique
from anabranch.core.formats import broken, formats, plugin_fault
from anabranch.core.graph import Graph
from anabranch.core.names import MOST_PARTS, is_name
from anabranch.core.quality import quarantine_of
from anabranch.errors import ProjectError, ProjectErrors, did_you_mean


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
    """The steps of one epoch of a channel, in order; `scans` has a line for each time a source is read, if known.

    `notes` are what is worth knowing of its flows together.
    """

    channel: Channel
    steps: tuple[Step, ...]
    scans: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

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
    views: tuple[ChannelPlan, ...] = ()  # what is computed from the cut, each after those it reads


def make_plan(graph: Graph, known: Mapping[str, str] | None = None) -> Plan:
    """The plan of a graph; raises `ProjectErrors` for what this version cannot run.

    `known` is passed on to `channels`.
    """
    found = refused(graph.pipeline)
    if found:
        raise ProjectErrors(found)
    parts = [c for c in channels(graph, known) if c.outputs]
    views = sorted((c for c in parts if c.at_rest), key=lambda c: graph.order.index(c.datasets[0].name))
    return Plan(
        graph.pipeline.name,
        tuple(_channel_plan(graph, c) for c in parts if not c.at_rest),
        tuple(_channel_plan(graph, c) for c in views),
    )


def refused(pipeline: Pipeline) -> list[ProjectError]:
    """What this version cannot run."""
    datasets = (problem for d in pipeline.datasets for problem in (_refused(d), *_format(d, pipeline)))
    rules = (_unique(d, u, pipeline) for d in pipeline.datasets for u in d.unique)
    flows = (_updates(f, pipeline) for f in pipeline.flows)
    return [problem for problem in (*datasets, *rules, *flows) if problem]


def with_program(
    plan: ChannelPlan, how: Mapping[str, str], scans: tuple[str, ...], notes: tuple[str, ...] = ()
) -> ChannelPlan:
    """The plan with what Spark's look at it has shown."""
    steps = (replace(s, how=how.get(s.flow.name)) if isinstance(s, RunFlow) else s for s in plan.steps)
    return replace(plan, steps=tuple(steps), scans=scans, notes=notes)


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
    if not is_name(dataset.name):
        return ProjectError(
            "NAME_NOT_SIMPLE",
            f'"{dataset.name}" is not a simple name; this version takes letters, digits and underscores, and at most a '
            "catalogue and a database before the table",
            where=dataset.where,
            hint=f'call it "{_simpler(dataset.name)}"',
        )
    if dataset.format == "foreach_batch" and dataset.handler is None:
        return ProjectError(
            "FORMAT_NOT_SUPPORTED",
            f'"{dataset.name}" has format "foreach_batch" and no function that takes the rows',
            where=dataset.where,
            hint=f'declare the function: @dp.foreach_batch_sink(name="{dataset.name}")',
        )
    return None


def _format(dataset: Dataset, pipeline: Pipeline) -> Iterator[ProjectError]:
    """What is wrong with the format of an output, and with its options."""
    if not dataset.is_output:
        return
    form = formats().get(dataset.format)
    if form is None and (plugin := broken(dataset.format)):
        yield plugin_fault(plugin, dataset.name, dataset.where)
        return
    if form is None:
        yield ProjectError(
            "FORMAT_NOT_SUPPORTED",
            f'"{dataset.name}" has format "{dataset.format}", which this version does not write',
            where=dataset.where,
            hint=did_you_mean(dataset.format, formats()) or f"formats that can be written: {', '.join(formats())}",
        )
        return
    for what, hint in form.problems(dataset.options):
        text = f'"{dataset.name}" ({form.name}) {what}'
        yield ProjectError("OPTION_INVALID", text, where=dataset.where, hint=hint)
    if not form.capabilities.merges and (flow := _changed_by(dataset, pipeline)):
        yield ProjectError(
            "CHANGES_INTO_SINK",
            f'flow "{flow.name}" changes rows of "{dataset.name}" by key, which format {form.name} cannot do',
            where=flow.where,
            hint=f"formats that can: {', '.join(f.name for f in formats().values() if f.capabilities.merges)}",
        )


def _changed_by(dataset: Dataset, pipeline: Pipeline) -> Flow | None:
    return next((f for f in pipeline.flows if f.changes and f.target == dataset.name), None)


def _simpler(name: str) -> str:
    parts = name.split(".") if name.count(".") < MOST_PARTS else [name]
    return ".".join(re.sub(r"^(?=\d)|\W", "_", part) or "_" for part in parts)


def _unique(dataset: Dataset, rule: Unique, pipeline: Pipeline) -> ProjectError | None:
    if rule.action in (Action.DROP, Action.QUARANTINE):
        why = f"is to {rule.action} rows: which of several with the same key is left out is not for a rule to say"
        hint = 'drop repeated rows in the flow (dropDuplicatesWithinWatermark), or take action="warn" or "fail"'
    elif not dataset.is_output:
        why, hint = "is about a view, whose rows are kept nowhere", "put the rule on the table that the rows go to"
    elif dataset.handler:
        why, hint = "is about a function, which keeps no rows to compare with", "put the rule on a table"
    elif any(f.changes and not _by_keys(f.changes, rule) for f in pipeline.flows if f.target == dataset.name):
        why = "is about a table that is changed by key, where a later change may mend what an earlier one broke"
        hint = "leave the rule out: with scd_type 1 there is one row for each key, and nothing else can be promised"
    else:
        return None
    text = f'the rule "{rule.name}" of "{dataset.name}" {why}'
    return ProjectError("UNIQUE_NOT_SUPPORTED", text, where=rule.where, hint=hint)


def _by_keys(changes: Changes, rule: Unique) -> bool:
    """Whether a rule says of a table what changes by key see to anyway."""
    keys = {key.lower() for key in changes.keys if isinstance(key, str)}
    return not changes.keeps_history and keys == {c.lower() for c in rule.columns} and len(keys) == len(changes.keys)


def _updates(flow: Flow, pipeline: Pipeline) -> ProjectError | None:
    """Rows that change again and again make sense where somebody takes the newest of each key."""
    kinds = {d.name: d.kind for d in pipeline.datasets}
    if flow.mode != "update" or flow.changes or kinds.get(flow.target, Kind.SINK) is Kind.SINK:
        return None
    return ProjectError(
        "UPDATE_NOT_SUPPORTED",
        f'flow "{flow.name}" gives rows of "{flow.target}" anew whenever they change, and a {kinds[flow.target]} keeps '
        "them all",
        where=flow.where,
        hint="let it feed a sink, such as a function that merges by key (@dp.foreach_batch_sink); or declare "
        f'"{flow.target}" as a materialized view',
    )
