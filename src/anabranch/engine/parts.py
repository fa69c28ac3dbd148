"""What the channels of a run read, write and judge, for whoever watches: said once, when the run begins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from anabranch.core.events import Listener, NotSent
from anabranch.core.places import ChannelParts, Judged, Place, Written, place_of_output, places_of_source
from anabranch.core.plan import ChannelPlan
from anabranch.engine.catalyst import is_source, source_options
from anabranch.engine.catalyst_columns import input_name
from anabranch.engine.catalyst_nodes import analyzed, nodes
from anabranch.engine.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.core.declarations import Action, Dataset
    from anabranch.core.graph import Graph


def channel_parts(
    plans: Iterable[ChannelPlan],
    frames: Mapping[str, DataFrame],
    graph: Graph,
    storage: Storage,
    root: str,
    listener: Listener,
) -> tuple[ChannelParts, ...]:
    """The parts of each channel of the project at `root`. It takes a look into Spark; a run does not fail of that."""
    found = []
    for plan in plans:
        try:
            found.append(_parts(plan, frames, graph, storage, root))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not end a run
            why = f"what {plan.channel.name} reads and writes is not known: {type(error).__name__}: {error}"
            listener(NotSent("watchers", why))
            found.append(ChannelParts(plan.channel.name))
    return tuple(found)


def _parts(
    plan: ChannelPlan, frames: Mapping[str, DataFrame], graph: Graph, storage: Storage, root: str
) -> ChannelParts:
    own = {d.name for d in plan.channel.datasets}
    inside = [name for step in plan.flows for name in _tables(graph, graph.inputs(step.flow)) if name not in own]
    named: dict[str, tuple[Place, ...]] = {name: (_place(graph.datasets[name], storage),) for name in inside}
    for step in plan.flows:
        if step.flow.name in frames:
            named |= _sources(frames[step.flow.name], root)
    return ChannelParts(
        plan.channel.name,
        tuple(dict.fromkeys(place for places in named.values() for place in places)),
        tuple(Written(d.name, d.format, _place(d, storage)) for d in plan.outputs),
        tuple(Judged(d.name, name, str(action)) for d in plan.channel.datasets for name, action in _rules(d)),
        named,
    )


def _rules(dataset: Dataset) -> list[tuple[str, Action]]:
    said = [(rule.name, rule.action) for rule in dataset.expectations]
    return [*said, *((rule.name, rule.action) for rule in dataset.unique)]


def _tables(graph: Graph, names: Iterable[str]) -> Iterator[str]:
    """The tables behind the names: views are looked through."""
    for name in names:
        if graph.datasets[name].is_output:
            yield name
        else:
            yield from _tables(graph, (n for flow in graph.feeding(name) for n in graph.inputs(flow)))


def _sources(frame: DataFrame, root: str) -> dict[str, tuple[Place, ...]]:
    found = [node for node in nodes(analyzed(frame)) if is_source(node)]
    return {input_name(node, root): places_of_source(*source_options(node)) for node in found}


def _place(dataset: Dataset, storage: Storage) -> Place:
    return place_of_output(
        dataset.name, dataset.format, storage.absolute(storage.location(dataset)), dict(dataset.options)
    )
