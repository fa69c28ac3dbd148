"""What comes from what: the datasets of a pipeline, what they read from outside, and the flows between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from anabranch.core.declarations import Dataset
from anabranch.core.graph import Graph
from anabranch.core.quality import quarantine_of
from anabranch.core.where import Where

SOURCE = "source"
OUTSIDE = "table from outside"
QUARANTINE = "quarantine table"


@dataclass(frozen=True, slots=True)
class Node:
    """A dataset, or something outside that is read; `zone` is the first part of a name that has several.

    >>> Node("silver.orders", "streaming table").zone, Node("orders", "streaming table").zone
    ('silver', '')
    """

    name: str
    kind: str
    channel: str | None = None
    where: Where | None = None
    format: str | None = None
    comment: str | None = None
    owner: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_outside(self) -> bool:
        """Whether the pipeline only reads it."""
        return self.kind in (SOURCE, OUTSIDE)

    @property
    def zone(self) -> str:
        """The lane it is drawn in."""
        *before, _ = self.name.split(".")
        return "" if self.is_outside or not before else before[-1]


@dataclass(frozen=True, slots=True)
class Edge:
    """A flow that reads `source` and feeds `target`; `sure` is False where only some flow of the channel reads it."""

    source: str
    target: str
    flow: str
    where: Where | None = None
    sure: bool = True


@dataclass(frozen=True)
class Lineage:
    """Nodes, each after what it reads, and the edges between them.

    `unsure` are flows whose code computes the names of what they read, so that edges may be missing.
    """

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    unsure: tuple[str, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return {node.name: node for node in self.nodes}

    def up(self, name: str) -> Lineage:
        """A dataset and everything it is computed from."""
        return self._reached(name, {n: self.inputs(n) for n in self.by_name})

    def down(self, name: str) -> Lineage:
        """A dataset and everything that is computed from it."""
        return self._reached(name, {n: self.readers(n) for n in self.by_name})

    def inputs(self, name: str) -> tuple[str, ...]:
        """What a dataset reads."""
        return tuple(dict.fromkeys(e.source for e in self.edges if e.target == name))

    def readers(self, name: str) -> tuple[str, ...]:
        """The datasets that read it."""
        return tuple(dict.fromkeys(e.target for e in self.edges if e.source == name))

    def _reached(self, name: str, after: Mapping[str, Iterable[str]]) -> Lineage:
        found, waiting = {name}, [name]
        while waiting:
            more = set(after[waiting.pop()]) - found
            found |= more
            waiting += more
        edges = tuple(e for e in self.edges if e.source in found and e.target in found)
        flows = {e.flow for e in edges}
        nodes = tuple(n for n in self.nodes if n.name in found)
        return Lineage(nodes, edges, tuple(f for f in self.unsure if f in flows))


def lineage(graph: Graph, channels: Mapping[str, str], sources: Mapping[str, Sequence[str]] | None = None) -> Lineage:
    """The lineage of a graph.

    `channels` has the channel of each dataset; `sources` what each channel reads, as a run before has found it.
    """
    outside: dict[str, Node] = {}
    edges: list[Edge] = []
    for flow in graph.pipeline.flows:
        for text in dict.fromkeys(flow.inputs):
            name = graph.meaning(text)
            if name is None:
                name = text
                outside.setdefault(name, Node(name, OUTSIDE))
            edges.append(Edge(name, flow.target, flow.name, flow.where))
    for channel, found in (sources or {}).items():
        first = [f for f in graph.pipeline.flows if channels.get(f.target) == channel and not f.inputs]
        for name in dict.fromkeys(found) if first else ():
            outside.setdefault(name, Node(name, SOURCE, channel))
            sure = len(first) == 1 or len(set(found)) == 1
            edges += [Edge(name, f.target, f.name, f.where, sure) for f in first]
    own: list[Node] = []
    for dataset in (graph.datasets[name] for name in graph.order):
        shared = channels.get(dataset.name)
        own.append(_node(dataset, str(dataset.kind), shared))
        if aside := quarantine_of(dataset):
            # Whoever answers for a dataset answers for the rows it did not take.
            own.append(_node(replace(aside, owner=dataset.owner, tags=dataset.tags), QUARANTINE, shared))
            edges.append(Edge(dataset.name, aside.name, dataset.name, aside.where))
    unsure = tuple(f.name for f in graph.pipeline.flows if not f.inputs_known)
    return Lineage((*outside.values(), *own), tuple(dict.fromkeys(edges)), unsure)


def _node(dataset: Dataset, kind: str, channel: str | None) -> Node:
    stored = dataset.format if dataset.is_output else None
    return Node(dataset.name, kind, channel, dataset.where, stored, dataset.comment, dataset.owner, dataset.tags)
