"""Graphs: every problem is found, all together; what is built is sound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.changes import Changes
from anabranch.core.channels import channels
from anabranch.core.declarations import Dataset, Flow, Kind, Pipeline
from anabranch.core.graph import Graph, build, problems, warnings
from anabranch.core.where import Where
from anabranch.errors import ProjectError, ProjectErrors

pytestmark = pytest.mark.core


def pipeline(edges: dict[str, Iterable[str]], kinds: dict[str, Kind] | None = None) -> Pipeline:
    """Datasets with one flow each, from name -> inputs."""
    kinds = kinds or {}
    datasets, flows = [], []
    for line, (name, inputs) in enumerate(edges.items(), start=1):
        where = Where("p.py", line)
        datasets.append(Dataset(name, kinds.get(name, Kind.STREAMING_TABLE), where))
        flows.append(Flow(name, name, lambda: None, where, inputs=tuple(inputs)))
    return Pipeline("p", tuple(datasets), tuple(flows), Where("anabranch.yml"))


def codes(found: Iterable[ProjectError]) -> list[str]:
    return sorted(p.code for p in found)


names = st.sampled_from([f"d{i}" for i in range(8)])


@st.composite
def acyclic(draw: st.DrawFn) -> dict[str, list[str]]:
    order = draw(st.permutations([f"d{i}" for i in range(draw(st.integers(1, 8)))]))
    edges = {n: draw(st.lists(st.sampled_from(order[:i]), unique=True)) if i else [] for i, n in enumerate(order)}
    shuffled = draw(st.permutations(list(edges)))
    return {n: edges[n] for n in shuffled}


@given(acyclic())
def test_an_acyclic_graph_has_no_problem_and_an_order(edges: dict[str, list[str]]) -> None:
    graph = build(pipeline(edges))
    position = {name: i for i, name in enumerate(graph.order)}
    assert sorted(position) == sorted(edges)
    assert all(position[i] < position[n] for n, inputs in edges.items() for i in inputs)


@given(acyclic())
def test_channels_are_the_connected_parts(edges: dict[str, list[str]]) -> None:
    found = channels(build(pipeline(edges)))
    # An independent way to connected parts: grow sets until nothing changes.
    parts = [{n} for n in edges]
    for n, inputs in edges.items():
        touched = [p for p in parts if n in p or set(inputs) & p]
        parts = [p for p in parts if p not in touched] + [set().union(*touched)]
    assert sorted(sorted(d.name for d in c.datasets) for c in found) == sorted(sorted(p) for p in parts)
    assert len({c.name for c in found}) == len(found)


@given(acyclic(), st.data())
def test_a_channel_keeps_its_name_when_outputs_come_and_go(edges: dict[str, list[str]], data: st.DataObject) -> None:
    before = channels(build(pipeline(edges)))
    known = {d.name: c.name for c in before for d in c.outputs}
    keep = data.draw(st.permutations(list(edges)))
    reordered = {n: edges[n] for n in keep} | {"new": [keep[0]]}
    after = channels(build(pipeline(reordered)), known)
    assert {d.name: c.name for c in after for d in c.outputs if d.name != "new"} == known


@given(st.dictionaries(names, st.lists(names, unique=True), min_size=1))
def test_a_cycle_is_found_exactly_when_there_is_one(edges: dict[str, list[str]]) -> None:
    edges = {n: [i for i in inputs if i in edges] for n, inputs in edges.items()}

    def reaches(start: str) -> set[str]:
        seen: set[str] = set()
        todo = list(edges[start])
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                todo += edges[name]
        return seen

    looping = {n for n in edges if n in reaches(n)}
    found = [p for p in problems(pipeline(edges)) if p.code == "PROJECT_CYCLE"]
    assert bool(found) == bool(looping)
    named = {n for p in found for n in p.message.split(": ")[1].split(" -> ")}
    assert named == looping


def test_all_problems_are_reported_together() -> None:
    where = Where("p.py", 1)
    broken = Pipeline(
        "p",
        (
            Dataset("requests", Kind.TEMPORARY_VIEW, Where("p.py", 1)),
            Dataset("errors", Kind.STREAMING_TABLE, Where("p.py", 2)),
            Dataset("errors", Kind.STREAMING_TABLE, Where("p.py", 3)),
            Dataset("lonely", Kind.STREAMING_TABLE, Where("p.py", 4)),
            Dataset("alerts", Kind.SINK, Where("p.py", 5)),
        ),
        (
            Flow("requests", "requests", lambda: None, where),
            Flow("errors", "errors", lambda: None, Where("p.py", 2), inputs=("reqests",)),
            Flow("errors", "errors", lambda: None, Where("p.py", 3), inputs=("requests",)),
            Flow("to_alerts", "alerts", lambda: None, where, inputs=("errors",)),
            Flow("stray", "nowhere", lambda: None, where, inputs=("alerts",)),
            Flow("into_view", "requests", lambda: None, where),
        ),
        Where("anabranch.yml"),
    )
    found = problems(broken)
    assert codes(found) == [
        "PROJECT_NO_FLOW",
        "PROJECT_READS_SINK",
        "PROJECT_TARGET_IS_VIEW",
        "PROJECT_TWO_CREATORS",
        "PROJECT_UNKNOWN_INPUT",
        "PROJECT_UNKNOWN_TARGET",
    ]
    assert all(p.where and p.where.line and p.hint for p in found)
    assert 'did you mean "requests"?' in [p.hint for p in found]
    with pytest.raises(ProjectErrors) as raised:
        build(broken)
    assert len(raised.value.problems) == 6


def test_two_flows_of_one_name_are_a_problem() -> None:
    base = pipeline({"a": [], "b": []})
    twin = Flow("a", "b", lambda: None, Where("p.py", 9))
    assert codes(problems(Pipeline("p", base.datasets, (*base.flows, twin), base.where))) == ["PROJECT_TWO_FLOWS"]


def test_many_flows_may_feed_one_table() -> None:
    base = pipeline({"a": []})
    more = Flow("more", "a", lambda: None, Where("p.py", 9))
    graph = build(Pipeline("p", base.datasets, (*base.flows, more), base.where))
    assert [f.name for f in graph.feeding("a")] == ["a", "more"]


def test_a_qualified_unknown_name_is_a_table_from_outside() -> None:
    graph = build(pipeline({"a": ["warehouse.customers"]}))
    assert graph.inputs(graph.pipeline.flows[0]) == ()


def test_a_view_nobody_reads_is_a_warning_only() -> None:
    lone = pipeline({"v": []}, {"v": Kind.TEMPORARY_VIEW})
    assert problems(lone) == []
    assert codes(warnings(lone)) == ["PROJECT_ORPHAN"]


def test_a_setting_without_effect_is_a_warning() -> None:
    clustered = Dataset("t", Kind.STREAMING_TABLE, Where("p.py", 1), cluster_by=("day",))
    flow = Flow("t", "t", lambda: None, Where("p.py", 1))
    assert codes(warnings(Pipeline("p", (clustered,), (flow,), Where("anabranch.yml")))) == ["SETTING_IGNORED"]


def test_two_channels_that_become_one_are_refused() -> None:
    graph = build(pipeline({"a": [], "b": ["a"]}))
    with pytest.raises(ProjectError) as raised:
        channels(graph, {"a": "one", "b": "two"})
    assert raised.value.code == "CHANNELS_MERGED"


def test_a_graph_of_nothing_is_empty() -> None:
    assert Graph(pipeline({})).order == ()
    assert channels(build(pipeline({}))) == ()


def _with_changes(made: Pipeline, target: str) -> Pipeline:
    changes = Changes("source", keys=("id",), sequence_by="at")
    return replace(made, flows=tuple(replace(f, changes=changes) if f.target == target else f for f in made.flows))


@given(acyclic(), st.data())
def test_a_table_that_changes_by_key_is_read_by_views_of_the_cut_only(
    edges: dict[str, list[str]], data: st.DataObject
) -> None:
    target = data.draw(st.sampled_from(sorted(edges)))
    others = sorted(set(edges) - {target})
    kinds = {
        n: data.draw(st.sampled_from([Kind.STREAMING_TABLE, Kind.TEMPORARY_VIEW, Kind.MATERIALIZED_VIEW]))
        for n in others
    }
    made = _with_changes(pipeline(edges, {**kinds, target: Kind.STREAMING_TABLE}), target)
    found = {(p.code, p.where.line) for p in problems(made) if p.where}
    # An independent way: a reader is wrong if a stream comes out of it, through views, into a table.
    views = {n for n in others if kinds[n] is Kind.MATERIALIZED_VIEW}

    def streams(name: str) -> bool:
        if name in views:
            return False
        if kinds.get(name) is not Kind.TEMPORARY_VIEW or not views:
            return True
        return any(streams(reader) for reader, inputs in edges.items() if name in inputs)

    wrong = {line for line, (n, inputs) in enumerate(edges.items(), 1) if target in inputs and streams(n)}
    assert found == {("CHANGES_READ_AS_STREAM", line) for line in wrong}
