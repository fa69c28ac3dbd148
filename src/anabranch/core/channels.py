"""Split a graph into channels: the parts that share epochs, one streaming query and one checkpoint each.

A materialized view is a channel of its own, without a query that goes on: it is computed from the cut. So is a table
that only snapshots, or flows that run once, feed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.core.declarations import Dataset, Flow, Kind
from anabranch.core.detached import turns
from anabranch.core.graph import Graph
from anabranch.errors import ProjectError


@dataclass(frozen=True, slots=True)
class Channel:
    """A connected part of the graph; `datasets` are in an order in which each comes after what it reads."""

    name: str
    datasets: tuple[Dataset, ...]
    flows: tuple[Flow, ...]
    turn: int = 0  # see `detached.turns`

    @property
    def outputs(self) -> tuple[Dataset, ...]:
        """What the channel writes."""
        return tuple(d for d in self.datasets if d.is_output)

    @property
    def trigger(self) -> float | None:
        """Seconds between two looks for new rows, if its datasets say so: the shortest of them."""
        return min((d.trigger for d in self.datasets if d.trigger is not None), default=None)

    @property
    def at_rest(self) -> bool:
        """Whether it reads no stream."""
        views = any(d.kind is Kind.MATERIALIZED_VIEW for d in self.datasets)
        return views or (bool(self.flows) and all(f.at_rest for f in self.flows))


def channels(graph: Graph, known: Mapping[str, str] | None = None) -> tuple[Channel, ...]:
    """The channels of a graph.

    `known` says to which channel an output belonged before. A part that holds such an output keeps that channel's
    name, so that adding, removing or renaming around it does not start it from nothing. A new part is named after its
    first dataset.
    """
    turn_of = turns(graph)
    return tuple(_channel(graph, part, known or {}, turn_of[part[0]]) for part in _parts(graph, turn_of))


def _channel(graph: Graph, part: list[str], known: Mapping[str, str], turn: int) -> Channel:
    needed = _needed(graph, part)
    members = tuple(graph.datasets[name] for name in graph.order if name in part and name in needed)
    # What is computed from the cut has no checkpoint to keep: the channel it may have been part of goes on without it.
    at_rest = any(is_at_rest(graph, d.name) for d in members)
    before = {} if at_rest else {known[d.name]: d for d in members if d.is_output and d.name in known}
    if len(before) > 1:
        (one, first), (other, second) = list(before.items())[:2]
        raise ProjectError(
            "CHANNELS_MERGED",
            f'"{first.name}" of channel "{one}" and "{second.name}" of channel "{other}" are now connected; '
            "two channels with their own offsets cannot become one",
            where=second.where,
            hint="read a table instead of the other channel's view, or rename one of the outputs",
        )
    name = next(iter(before), members[0].name)
    # The implicit flow of each dataset, then its append flows: the order they were declared in.
    flows = tuple(f for d in members for f in graph.feeding(d.name))
    return Channel(name, members, flows, turn)


def is_at_rest(graph: Graph, name: str) -> bool:
    """Whether a dataset is computed from tables as they are at the cut."""
    feeding = graph.feeding(name)
    if graph.datasets[name].kind is Kind.MATERIALIZED_VIEW:
        return True
    return graph.datasets[name].is_output and bool(feeding) and all(f.at_rest for f in feeding)


def _needed(graph: Graph, part: list[str]) -> set[str]:
    """What feeds an output of the part; a part without outputs is left whole. Views of the cut read on their own."""
    needed = {name for name in part if graph.datasets[name].is_output}
    for name in reversed(graph.order):
        if name in needed:
            needed |= {i for f in graph.feeding(name) if not f.at_rest for i in graph.inputs(f) if i in part}
    return needed or set(part)


def _parts(graph: Graph, turn_of: Mapping[str, int]) -> list[list[str]]:
    """Connected parts, in declaration order. What is read in a later turn is read as a table, and connects nothing."""
    part_of: dict[str, list[str]] = {name: [name] for name in graph.datasets}
    at_rest = {name for name in graph.datasets if is_at_rest(graph, name)}
    for flow in graph.pipeline.flows:
        inputs = () if flow.at_rest or flow.target in at_rest else graph.inputs(flow)
        for name in inputs:
            if name in at_rest or turn_of[name] != turn_of[flow.target]:
                continue
            joined, other = part_of[flow.target], part_of[name]
            if joined is not other:
                joined.extend(other)
                part_of.update(dict.fromkeys(other, joined))
    position = {name: i for i, name in enumerate(graph.datasets)}
    unique = {id(part): sorted(part, key=position.__getitem__) for part in part_of.values()}
    return sorted(unique.values(), key=lambda part: position[part[0]])
