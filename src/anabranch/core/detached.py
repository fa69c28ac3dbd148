"""Tables that are fed on their own: a detached table reads the tables before it as they come, in a channel of its own.

Everything else moves with what it reads, in one epoch. The turn of a dataset says how many detached tables are on the
way to it: a run over what is available goes turn by turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from anabranch.core.graph import Graph
from anabranch.errors import ProjectError


def turns(graph: Graph) -> Mapping[str, int]:
    """The turn of every dataset: 0 for those that move with the sources."""
    if not any(d.detached for d in graph.datasets.values()):
        return dict.fromkeys(graph.datasets, 0)

    @cache
    def of(name: str) -> int:
        before = [of(i) for f in graph.feeding(name) if not f.at_rest for i in _tables(graph, graph.inputs(f))]
        return max(before, default=0) + graph.datasets[name].detached

    found = {name: of(name) for name, dataset in graph.datasets.items() if dataset.is_output}
    for name in reversed(graph.order):  # a view is computed for whoever reads it
        if name not in found:
            readers = {found[f.target] for f in graph.readers(name)}
            if len(readers) > 1:
                raise _read_in_two_turns(graph, name)
            found[name] = next(iter(readers), 0)
    return found


def tables_between(graph: Graph, turn_of: Mapping[str, int]) -> Mapping[str, frozenset[int]]:
    """The tables that are read as they come, with the turns in which that is."""
    found: dict[str, set[int]] = {}
    for flow in graph.pipeline.flows:
        for name in () if flow.at_rest else graph.inputs(flow):
            if turn_of[name] < turn_of[flow.target]:
                found.setdefault(name, set()).add(turn_of[flow.target])
    return {name: frozenset(later) for name, later in found.items()}


def _tables(graph: Graph, names: Iterable[str]) -> set[str]:
    """The outputs among these and behind the views among them."""
    found: set[str] = set()
    for name in names:
        if graph.datasets[name].is_output:
            found.add(name)
        else:
            found |= _tables(graph, (i for f in graph.feeding(name) for i in graph.inputs(f)))
    return found


def _read_in_two_turns(graph: Graph, name: str) -> ProjectError:
    detached = next(d for d in graph.datasets.values() if d.detached)
    return ProjectError(
        "DETACHED_SHARES_VIEW",
        f'the view "{name}" is read by "{detached.name}", which is detached, and by others that are not',
        where=graph.datasets[name].where,
        hint="let the detached table read a table instead, or declare a view of its own for it",
    )
