"""Split a graph into channels: the parts that share epochs, one streaming query and one checkpoint each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.core.declarations import Dataset, Flow
from anabranch.core.graph import Graph
from anabranch.errors import ProjectError


@dataclass(frozen=True, slots=True)
class Channel:
    """A connected part of the graph; `datasets` are in an order in which each comes after what it reads."""

    name: str
    datasets: tuple[Dataset, ...]
    flows: tuple[Flow, ...]

    @property
    def outputs(self) -> tuple[Dataset, ...]:
        """What the channel writes."""
        return tuple(d for d in self.datasets if d.is_output)


def channels(graph: Graph, known: Mapping[str, str] | None = None) -> tuple[Channel, ...]:
    """The channels of a graph.

    `known` says to which channel an output belonged before. A part that holds such an output keeps that channel's
    name, so that adding, removing or renaming around it does not start it from nothing. A new part is named after its
    first dataset.
    """
    return tuple(_channel(graph, part, known or {}) for part in _parts(graph))


def _channel(graph: Graph, part: list[str], known: Mapping[str, str]) -> Channel:
    members = tuple(graph.datasets[name] for name in graph.order if name in part)
    before = {known[d.name]: d for d in members if d.is_output and d.name in known}
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
    return Channel(name, members, flows)


def _parts(graph: Graph) -> list[list[str]]:
    """Connected parts, each in declaration order."""
    part_of: dict[str, list[str]] = {name: [name] for name in graph.datasets}
    for flow in graph.pipeline.flows:
        for name in graph.inputs(flow):
            joined, other = part_of[flow.target], part_of[name]
            if joined is not other:
                joined.extend(other)
                part_of.update(dict.fromkeys(other, joined))
    position = {name: i for i, name in enumerate(graph.datasets)}
    unique = {id(part): sorted(part, key=position.__getitem__) for part in part_of.values()}
    return sorted(unique.values(), key=lambda part: position[part[0]])
