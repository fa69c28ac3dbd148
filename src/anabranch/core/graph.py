"""Join declarations into a graph and find everything that is wrong with it, all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from graphlib import TopologicalSorter

from anabranch.core.declarations import Dataset, Expectation, Flow, Kind, Pipeline, Unique
from anabranch.core.names import meanings, resolve, view_names, whole_name
from anabranch.errors import ProjectError, ProjectErrors, did_you_mean


@dataclass(frozen=True)
class Graph:
    """A pipeline that is free of problems: every name resolves and no dataset feeds itself."""

    pipeline: Pipeline

    @cached_property
    def datasets(self) -> Mapping[str, Dataset]:
        """Datasets by name, in the order they were declared."""
        return {d.name: d for d in self.pipeline.datasets}

    @cached_property
    def views(self) -> Mapping[str, str]:
        """What the temporary view of each dataset is called."""
        return view_names(self.datasets)

    def meaning(self, text: str) -> str | None:
        """The dataset that a name in a flow's code means; None for a table from outside."""
        return resolve(text, self.datasets, self.pipeline.home)

    def inputs(self, flow: Flow) -> tuple[str, ...]:
        """The datasets of this pipeline that a flow reads; tables from outside are left out."""
        found = (self.meaning(text) for text in flow.inputs)
        return tuple(dict.fromkeys(name for name in found if name))

    def feeding(self, dataset: str) -> tuple[Flow, ...]:
        """The flows into a dataset."""
        return tuple(f for f in self.pipeline.flows if f.target == dataset)

    def readers(self, dataset: str) -> tuple[Flow, ...]:
        """The flows that read a dataset."""
        return tuple(f for f in self.pipeline.flows if dataset in self.inputs(f))

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Dataset names so that each comes after everything it reads; ties as declared."""
        sorter = TopologicalSorter(_edges(self.pipeline))
        position = {name: i for i, name in enumerate(self.datasets)}
        sorter.prepare()
        order: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=position.__getitem__)
            order.extend(ready)
            sorter.done(*ready)
        return tuple(order)


def build(pipeline: Pipeline) -> Graph:
    """The graph of a pipeline; raises `ProjectErrors` with every problem it has."""
    found = problems(pipeline)
    if found:
        raise ProjectErrors(found)
    return Graph(pipeline)


def problems(pipeline: Pipeline) -> list[ProjectError]:
    """Everything that keeps the pipeline from running."""
    return [
        *_duplicates(pipeline),
        *_targets(pipeline),
        *_unfed(pipeline),
        *_unknown_inputs(pipeline),
        *_reads_of_sinks(pipeline),
        *_cycles(pipeline),
        *_rules_twice(pipeline),
        *_changes_beside_others(pipeline),
        *_reads_of_changes(pipeline),
    ]


def warnings(pipeline: Pipeline) -> list[ProjectError]:
    """What runs but is probably not meant: views nobody reads, settings without an effect."""
    return [*_orphans(pipeline), *_without_effect(pipeline)]


def _without_effect(pipeline: Pipeline) -> list[ProjectError]:
    said = [(d.name, d.where, d.ignored) for d in pipeline.datasets]
    said += [(f.name, f.where, f.ignored) for f in pipeline.flows]
    return [
        *(
            ProjectError(
                "SETTING_IGNORED",
                f'"{name}": ignored: {", ".join(ignored)}',
                where=where,
                hint="leave it out if the project runs here only",
            )
            for name, where, ignored in said
            if ignored
        ),
        *_clustered(pipeline),
    ]


def _clustered(pipeline: Pipeline) -> list[ProjectError]:
    return [
        ProjectError(
            "SETTING_IGNORED",
            f'cluster_by of "{d.name}" has no effect: tables are not clustered',
            where=d.where,
            hint="leave it out, or use partition_cols for a column with few values",
        )
        for d in pipeline.datasets
        if d.cluster_by
    ]


def _orphans(pipeline: Pipeline) -> list[ProjectError]:
    if not all(f.inputs_known for f in pipeline.flows):
        return []
    meaning = _meaning(pipeline)
    read = {meaning(text) for f in pipeline.flows for text in f.inputs}
    return [
        ProjectError(
            "PROJECT_ORPHAN",
            f'no flow reads the view "{d.name}"',
            where=d.where,
            hint="remove it, or read it in a flow",
        )
        for d in pipeline.datasets
        if d.kind is Kind.TEMPORARY_VIEW and d.name not in read
    ]


def _duplicates(pipeline: Pipeline) -> Iterable[ProjectError]:
    seen: dict[str, Dataset] = {}
    twice: set[str] = set()
    for dataset in pipeline.datasets:
        first = seen.setdefault(whole_name(dataset.name, pipeline.home), dataset)
        if first is not dataset:
            twice.add(dataset.name)
            yield ProjectError(
                "PROJECT_TWO_CREATORS",
                f'"{dataset.name}" is created a second time; the first is at {first.where}',
                where=dataset.where,
                hint="rename one; to feed one table from several flows use append_flow",
            )
    flows: dict[str, Flow] = {}
    for flow in pipeline.flows:
        other = flows.setdefault(flow.name, flow)
        # The implicit flows of a dataset created twice clash as well, which needs no second message.
        if other is not flow and not (flow.name == flow.target and flow.target in twice):
            yield ProjectError(
                "PROJECT_TWO_FLOWS",
                f'a flow named "{flow.name}" exists already, at {other.where}',
                where=flow.where,
                hint="give one of them another name",
            )


def _targets(pipeline: Pipeline) -> Iterable[ProjectError]:
    by_name = {d.name: d for d in pipeline.datasets}
    for flow in pipeline.flows:
        target = by_name.get(flow.target)
        if target is None:
            yield ProjectError(
                "PROJECT_UNKNOWN_TARGET",
                f'flow "{flow.name}" feeds "{flow.target}", which nothing creates',
                where=flow.where,
                hint=did_you_mean(flow.target, by_name) or f'declare it with create_streaming_table("{flow.target}")',
            )
        elif target.kind in (Kind.TEMPORARY_VIEW, Kind.MATERIALIZED_VIEW) and flow.name != flow.target:
            yield ProjectError(
                "PROJECT_TARGET_IS_VIEW",
                f'flow "{flow.name}" feeds "{flow.target}", which is a {target.kind}',
                where=flow.where,
                hint="a view has exactly one query; feed a streaming table or a sink instead",
            )


def _unfed(pipeline: Pipeline) -> Iterable[ProjectError]:
    fed = {f.target for f in pipeline.flows}
    for dataset in pipeline.datasets:
        if dataset.name not in fed:
            yield ProjectError(
                "PROJECT_NO_FLOW",
                f'no flow feeds "{dataset.name}"',
                where=dataset.where,
                hint=f'add @append_flow(target="{dataset.name}"), or remove it',
            )


def _unknown_inputs(pipeline: Pipeline) -> Iterable[ProjectError]:
    names = [d.name for d in pipeline.datasets]
    for flow in pipeline.flows:
        for text in flow.inputs:
            found = meanings(text, names, pipeline.home)
            if len(found) > 1:
                yield ambiguous_input(flow, text, found)
            # A qualified name may be a table of a catalogue; only Spark can tell.
            elif not found and "." not in text:
                yield ProjectError(
                    "PROJECT_UNKNOWN_INPUT",
                    f'flow "{flow.name}" reads "{text}", which nothing creates',
                    where=flow.where,
                    hint=did_you_mean(text, names) or "a table from outside is named with its database: db.table",
                )


def ambiguous_input(flow: Flow, text: str, found: Iterable[str]) -> ProjectError:
    """The error for a name that is short for several datasets."""
    return ProjectError(
        "PROJECT_AMBIGUOUS_INPUT",
        f'flow "{flow.name}" reads "{text}", which may be one of several datasets',
        where=flow.where,
        hint=f"write the whole name: {' or '.join(found)}",
    )


def _reads_of_sinks(pipeline: Pipeline) -> Iterable[ProjectError]:
    meaning = _meaning(pipeline)
    sinks = {d.name for d in pipeline.datasets if d.kind is Kind.SINK}
    for flow in pipeline.flows:
        for text in flow.inputs:
            if meaning(text) in sinks:
                yield ProjectError(
                    "PROJECT_READS_SINK",
                    f'flow "{flow.name}" reads the sink "{text}"; sinks can only be written',
                    where=flow.where,
                    hint="read the dataset that feeds the sink",
                )


def _cycles(pipeline: Pipeline) -> Iterable[ProjectError]:
    by_name = {d.name: d for d in pipeline.datasets}
    for knot in _knots(_edges(pipeline)):
        names = [name for name in by_name if name in knot]
        yield ProjectError(
            "PROJECT_CYCLE",
            "datasets feed themselves: " + " -> ".join([*names, names[0]]),
            where=by_name[names[0]].where,
            hint="break the circle: one of these must read a source instead",
        )


def _rules_twice(pipeline: Pipeline) -> Iterable[ProjectError]:
    for dataset in pipeline.datasets:
        seen: dict[str, Expectation | Unique] = {}
        rules: list[Expectation | Unique] = [*dataset.expectations, *dataset.unique]
        for rule in rules:
            first = seen.setdefault(rule.name, rule)
            if first is not rule:
                yield ProjectError(
                    "EXPECTATION_TWICE",
                    f'"{dataset.name}" has a rule named "{rule.name}" already, at {first.where}',
                    where=rule.where,
                    hint="give one of them another name: rows are counted by it",
                )


def _changes_beside_others(pipeline: Pipeline) -> Iterable[ProjectError]:
    """Rows that are appended have no sequence, so changes by key cannot be told older or newer than they are."""
    changed = {f.target: f for f in pipeline.flows if f.changes}
    for flow in pipeline.flows:
        by_key = changed.get(flow.target)
        if by_key and not flow.changes:
            yield ProjectError(
                "CHANGES_AND_ROWS",
                f'flow "{flow.name}" appends to "{flow.target}", which "{by_key.name}" changes by key',
                where=flow.where,
                hint="feed the table in one way; let the other flow write to a table of its own",
            )


def _reads_of_changes(pipeline: Pipeline) -> Iterable[ProjectError]:
    meaning = _meaning(pipeline)
    changed = {f.target for f in pipeline.flows if f.changes}
    streams = _fed_by_streams(pipeline) - _detached(pipeline) if changed else set()
    for flow in pipeline.flows:
        for name in dict.fromkeys(meaning(text) for text in flow.inputs):
            if name in changed and flow.target in streams and not flow.at_rest:
                yield changes_as_stream(flow, name)


def _detached(pipeline: Pipeline) -> set[str]:
    """The tables that are detached, and views that only these read: they get the changes of a table, as they come."""
    detached = {d.name for d in pipeline.datasets if d.detached}
    meaning = _meaning(pipeline)
    views = {d.name for d in pipeline.datasets if d.kind is Kind.TEMPORARY_VIEW}
    while found := {
        view
        for view in views - detached
        if (readers := [f.target for f in pipeline.flows if view in map(meaning, f.inputs)]) and {*readers} <= detached
    }:
        detached |= found
    return detached


def changes_as_stream(flow: Flow, dataset: str) -> ProjectError:
    """The error for a flow that reads a table which is changed by key: its rows are no stream, they come and go."""
    return ProjectError(
        "CHANGES_READ_AS_STREAM",
        f'flow "{flow.name}" reads "{dataset}", which is changed by key: its rows come and go, they are no stream',
        where=flow.where,
        hint=f'read the source of the changes instead, or declare a materialized view over "{dataset}"',
    )


def _fed_by_streams(pipeline: Pipeline) -> set[str]:
    """The datasets that streams pass through: all but those computed from the cut, and what only these read."""
    streamed = {f.target for f in pipeline.flows if not f.at_rest}
    views = {
        d.name
        for d in pipeline.datasets
        if d.kind is Kind.MATERIALIZED_VIEW or (d.is_output and d.name not in streamed)
    }
    found = {d.name for d in pipeline.datasets} - views
    if not views or not all(f.inputs_known for f in pipeline.flows):
        return found
    edges = _edges(pipeline)
    found = {d.name for d in pipeline.datasets if d.is_output} - views
    waiting = list(found)
    while waiting:
        more = edges[waiting.pop()] - views - found
        found |= more
        waiting += more
    return found


def _edges(pipeline: Pipeline) -> dict[str, set[str]]:
    """Dataset name -> the datasets it is computed from."""
    meaning = _meaning(pipeline)
    edges: dict[str, set[str]] = {d.name: set() for d in pipeline.datasets}
    for flow in pipeline.flows:
        if flow.target in edges:
            edges[flow.target] |= {name for text in flow.inputs if (name := meaning(text))}
    return edges


def _meaning(pipeline: Pipeline) -> Callable[[str], str | None]:
    return partial(resolve, datasets=[d.name for d in pipeline.datasets], home=pipeline.home)


def _knots(edges: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups of names that reach each other, and names that reach themselves."""
    reach = {name: set(after) for name, after in edges.items()}
    for middle in reach:
        for name in reach:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    knots: list[set[str]] = []
    for name in edges:
        if name in reach[name] and not any(name in knot for knot in knots):
            knots.append({other for other in edges if other in reach[name] and name in reach[other]})
    return knots
