"""Where the nodes of the graph stand: in which column, and which columns belong to which zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from anabranch.core.lineage import QUARANTINE
from anabranch.ui.declared import Edge, Node

#: The lane of outputs without a zone, beside those that have one.
OTHERS = "other outputs"


@dataclass(frozen=True, slots=True)
class Lane:
    """The columns of one zone, from first to last."""

    zone: str
    first: int
    last: int


def columns(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[dict[str, int], tuple[Lane, ...]]:
    """The column of each node, right of all that it reads, and the zones' lanes.

    A quarantine table stands in the column of its dataset, below it. Zones that read each other, or names without
    zones, give no lanes.

    >>> nodes = [Node("s", "source", outside=True), Node("bronze.a", "table", "bronze"), Node("gold.b", "view", "gold")]
    >>> columns(nodes, [Edge("s", "bronze.a", "a"), Edge("s", "gold.b", "b")])
    ({'s': 0, 'bronze.a': 1, 'gold.b': 2}, (Lane(zone='bronze', first=1, last=1), Lane(zone='gold', first=2, last=2)))
    """
    aside = {n.name for n in nodes if n.kind == QUARANTINE}
    main = [n for n in nodes if n.name not in aside]
    named = {n.name for n in main}
    links = [e for e in edges if e.source in named and e.target in named]
    found, lanes = _placed(main, links)
    above = {e.target: e.source for e in edges if e.target in aside}
    return found | {name: found.get(above.get(name, ""), 0) for name in aside}, lanes


def _placed(nodes: Sequence[Node], edges: Sequence[Edge]) -> tuple[dict[str, int], tuple[Lane, ...]]:
    inputs = {n.name: [e.source for e in edges if e.target == n.name] for n in nodes}
    order = list(TopologicalSorter(inputs).static_order())
    zone_of = _zones({n.name: n.zone for n in nodes}, order, inputs)
    zones = _in_order(zone_of, edges)
    found: dict[str, int] = {}
    lanes: list[Lane] = []
    # What comes before all zones, or everything where there are none to draw, stands as its inputs let it.
    split = zones is not None and len(zones) > 1
    for name in (n for n in order if not split or not zone_of[n]):
        found[name] = max((found[i] + 1 for i in inputs[name]), default=0)
    begin = max(found.values(), default=-1) + 1
    for zone in (zones or ()) if split else ():
        inside = [n for n in order if zone_of[n] == zone]
        for name in inside:
            found[name] = max([begin, *(found[i] + 1 for i in inputs[name])])
        lanes.append(Lane(zone, begin, max(found[n] for n in inside)))
        begin = lanes[-1].last + 1
    return found, tuple(lanes)


def _zones(said: Mapping[str, str], order: Sequence[str], inputs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The zone that each node is drawn in; none for what no zone comes before.

    What has no zone of its own is drawn with what it feeds, or, when no zone reads it, behind them all.
    """
    readers: dict[str, list[str]] = {name: [] for name in order}
    behind: set[str] = set()  # what reads a zone, at once or by others
    for name in order:
        for before in inputs[name]:
            readers[before].append(name)
        if any(said[i] or i in behind for i in inputs[name]):
            behind.add(name)
    found: dict[str, str] = {}
    for name in reversed(order):
        fed = [zone for reader in readers[name] if (zone := found[reader]) not in ("", OTHERS)]
        found[name] = said[name] or (next(iter(fed), OTHERS) if name in behind else "")
    return {name: found[name] for name in said}  # in the order they were declared, which zones keep where they can


def _in_order(zone_of: Mapping[str, str], edges: Iterable[Edge]) -> list[str] | None:
    """The zones, each after those it reads; None when two read each other."""
    after: dict[str, set[str]] = {zone: set() for zone in zone_of.values() if zone}
    for edge in edges:
        source, target = zone_of[edge.source], zone_of[edge.target]
        if source and target and source != target:
            after[target].add(source)
    if OTHERS in after:  # last, unless something reads them
        after[OTHERS] |= {zone for zone in after if zone != OTHERS and OTHERS not in after[zone]}
    try:
        return list(TopologicalSorter(after).static_order())
    except CycleError:
        return None
