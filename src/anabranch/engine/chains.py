"""Walk a flow's plan from its top down to its base: the first node that is not row-wise.

A base is a source, or an aggregation, a join, a deduplication. What stands above it is kept as steps that say, of every
expression, what must be known before it can be moved: what it refers to, whether it is deterministic, whether it may
raise. Each call into the JVM costs, so a node that several flows share is looked at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from anabranch.engine.catalyst import Catalyst, Replaced, is_source, same_source
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, identity, items, kind

#: Nodes that change no row: they give names, or say how late rows may be, which only matters to what keeps state.
_TRANSPARENT = ("SubqueryAlias", "View", "EventTimeWatermark")

_ROW_WISE = (*_TRANSPARENT, "Project", "Filter", "Generate")

#: Generators whose rows can be told by a position.
_GENERATORS = ("Explode", "PosExplode", "Inline")

#: Expressions that never raise, whatever their arguments hold.
_NEVER_RAISE = frozenset(
    """
    Alias And ArrayContains AttributeReference CaseWhen Coalesce Concat Contains CreateArray CreateNamedStruct EndsWith
    EqualNullSafe EqualTo GetArrayStructFields GetJsonObject GetMapValue GetStructField GreaterThan GreaterThanOrEqual
    If In InSet IsNaN IsNotNull IsNull Length LessThan LessThanOrEqual Literal Lower MapEntries MapKeys MapValues
    Not Or Size StartsWith StringTrim Substring Upper
    """.split()  # noqa: SIM905  a list of a word per line is no easier to read
)

#: Why a node is the base of a branch of its own.
_REASONS = {
    "Aggregate": "aggregates",
    "Deduplicate": "drops duplicates",
    "DeduplicateWithinWatermark": "drops duplicates",
    "Distinct": "drops duplicates",
    "GlobalLimit": "limits rows",
    "Join": "joins",
    "MapInArrow": "calls a Python function for many rows at a time",
    "MapInPandas": "calls a Python function for many rows at a time",
    "Repartition": "moves rows between tasks",
    "RepartitionByExpression": "moves rows between tasks",
    "Sort": "sorts",
    "Union": "unites flows",
    "Window": "uses a window",
}


@dataclass(frozen=True)
class Expression:
    """An expression and the attributes it refers to, by their identities."""

    node: Node
    refers: frozenset[int]
    deterministic: bool
    python: bool  # calls a Python function

    @cached_property
    def may_raise(self) -> bool:
        """Whether some row could make it fail. What is constant fails when it is planned, for a flow alone too."""
        return _may_raise(self.node) and not self.node.foldable()


@dataclass(frozen=True)
class Defined:
    """A column that a projection adds."""

    number: int
    alias: Node
    expression: Expression


@dataclass(frozen=True)
class Renamed:
    """A column that is another one under a new name."""

    number: int
    alias: Node
    of: int
    attribute: Node


@dataclass(frozen=True)
class Projection:
    """Columns added to those below."""

    defined: tuple[Defined, ...]
    renamed: tuple[Renamed, ...]


@dataclass(frozen=True)
class Selection:
    """A filter."""

    node: Node
    condition: Expression


@dataclass(frozen=True)
class Generation:
    """A row for each element of an array or map; `added` are the columns of the element."""

    node: Node
    array: Expression
    how: str  # Explode, PosExplode or Inline
    of_map: bool
    outer: bool
    added: tuple[tuple[int, Node], ...]


Step = Projection | Selection | Generation

#: A flow, and the number of the plan among those whose rows together are the flow's.
Part = tuple[str, int]


@dataclass(frozen=True)
class Chain:
    """A part of a flow as row-wise steps over its base, in running order; `reason` says why that is not a source."""

    part: Part
    plan: Node
    base: Node
    steps: tuple[Step, ...]
    output: tuple[tuple[int, Node], ...]
    reason: str | None

    @property
    def flow(self) -> str:
        """The flow that it is a part of."""
        return self.part[0]


@dataclass(frozen=True)
class _Below:
    """What stands below a node: a base and the steps over it."""

    base: Node
    steps: tuple[Step, ...]
    reason: str | None


class Walk:
    """Walks the plans of many flows, each shared node once."""

    def __init__(self, catalyst: Catalyst) -> None:
        self._catalyst = catalyst
        self._seen: dict[int, list[tuple[Node, _Below]]] = {}

    def chain(self, part: Part, plan: Node) -> Chain:
        """A plan as steps over its base."""
        above: list[tuple[int, Node]] = []
        node, mark = plan, plan.hashCode()
        while (below := self._known(mark, node)) is None:
            if kind(node) not in _ROW_WISE:
                below = _Below(node, (), _reason(node))
            elif why := _refused(node):
                below = _Below(node, (), why)
            else:
                above.append((mark, node))
                node = children_of(node)[0]
                mark = node.hashCode()
                continue
            self._seen.setdefault(mark, []).append((node, below))
        for mark, node in reversed(above):
            if kind(node) not in _TRANSPARENT:
                below = _Below(below.base, (*below.steps, self._step(node)), below.reason)
            self._seen.setdefault(mark, []).append((node, below))
        output = tuple((identity(a), a) for a in items(plan.output()))
        return Chain(part, plan, below.base, below.steps, output, below.reason)

    def _known(self, mark: int, node: Node) -> _Below | None:
        return next((below for other, below in self._seen.get(mark, ()) if node.fastEquals(other)), None)

    def _step(self, node: Node) -> Step:
        # What holds for a whole plan need not be asked of each expression.
        sure, python = node.deterministic(), self._catalyst.calls_python(node)

        def look(expression: Node) -> Expression:
            refers = frozenset(identity(a) for a in items(expression.references().toSeq()))
            calls = python and self._catalyst.calls_python(expression)
            return Expression(expression, refers, sure or expression.deterministic(), calls)

        if kind(node) == "Filter":
            return Selection(node, look(node.condition()))
        if kind(node) == "Generate":
            generator = node.generator()
            of_map = generator.child().dataType().typeName() == "map"
            added = tuple((identity(a), a) for a in items(node.generatorOutput()))
            return Generation(node, look(generator.child()), kind(generator), of_map, node.outer(), added)
        defined, renamed = [], []
        new = items(node.projectList().diff(node.child().output()))  # most only pass what is below
        for alias in [e for e in new if kind(e) == "Alias"]:
            child = alias.child()
            if kind(child) == "AttributeReference":
                renamed.append(Renamed(identity(alias), alias, identity(child), child))
            else:
                defined.append(Defined(identity(alias), alias, look(child)))
        return Projection(tuple(defined), tuple(renamed))


def _reason(base: Node) -> str | None:
    """Why rows cannot be followed below a base; None if there is nothing below."""
    return _REASONS.get(kind(base), f"uses {kind(base)}") if children_of(base) else None


def _refused(node: Node) -> str | None:
    """Why a node that is row-wise by its kind cannot be a step."""
    if node.subqueries().size():
        return "has a subquery"
    if kind(node) == "Generate" and kind(node.generator()) not in _GENERATORS:
        return f"generates rows with {node.generator().prettyName()}"
    return None


def _may_raise(expression: Node) -> bool:
    name = kind(expression)
    if name == "JsonToStructs":
        safe = "failfast" not in expression.options().toString().lower()
    elif name == "Cast":
        safe = expression.dataType().typeName() == "string" and expression.child().dataType().typeName() != "variant"
    else:
        safe = name in _NEVER_RAISE
    return not safe or any(_may_raise(child) for child in children_of(expression))


def parts(catalyst: Catalyst, flow: str, frame: DataFrame) -> dict[Part, Node]:
    """The plans whose rows together are a flow's: steps over a union are steps over each of what it unites."""
    plan = catalyst.inlined(analyzed(frame))
    # What is not deterministic would be drawn once for a row that is in two of them.
    plans = [one for one, _ in _split(catalyst, plan)] if catalyst.unites(plan) and plan.deterministic() else [plan]
    return {(flow, number): one for number, one in enumerate(plans)}


def _split(catalyst: Catalyst, plan: Node) -> list[tuple[Node, Replaced]]:
    """The plans, and which attributes of each are to be replaced in what stands above."""
    if kind(plan) in _ROW_WISE and not _refused(plan):
        below = _split(catalyst, children_of(plan)[0])
        return [(catalyst.rewrite(catalyst.with_children(plan, [one]), now), now) for one, now in below]
    if kind(plan) != "Union":
        return [(plan, {})]
    output = [(identity(a), a) for a in items(plan.output())]
    found: list[tuple[Node, Replaced]] = []
    for child in children_of(plan):
        columns = [(identity(a), a) for a in items(child.output())]
        for one, replaced in _split(catalyst, child):
            given = [replaced[number][1] if number in replaced else a for number, a in columns]
            pairs = zip(output, given, strict=True)
            found.append((one, {number: (old, new) for (number, old), new in pairs if identity(new) != number}))
    return found


def above_shared_rows(chains: Sequence[Chain]) -> list[Chain]:
    """The chains of a group, over the rows of the last outer generator that all of them have in common.

    Such a generator needs no positions: left to Spark, it does not carry its array along with every element. An inner
    one is not left to Spark, which would compute the array twice to find out whether it is empty.
    """
    common = 0
    for steps in zip(*(c.steps for c in chains), strict=False):
        if any(step is not steps[0] for step in steps):
            break
        common += 1
    shared = [i for i, s in enumerate(chains[0].steps[:common]) if isinstance(s, Generation)]
    if not shared or not all(getattr(chains[0].steps[i], "outer", False) for i in shared):
        return list(chains)
    last = chains[0].steps[shared[-1]]
    assert isinstance(last, Generation)
    return [replace(c, base=last.node, steps=c.steps[shared[-1] + 1 :]) for c in chains]


def share_sources(catalyst: Catalyst, plans: Mapping[Part, Node]) -> dict[Part, Node]:
    """The plans, in which a source that several name each for itself is one and the same.

    Spark adds `_metadata` to a source where a flow asks for it; then all read it with that column, and those that did
    not ask drop it.
    """
    plans = dict(plans)
    found = {name: [leaf for leaf in items(plan.collectLeaves()) if is_source(leaf)] for name, plan in plans.items()}
    shared: dict[object, _Shared] = {}
    readings: list[_Reading] = []
    for name, relations in found.items():
        own = [_reading(relation, readings) for relation in relations]
        if len({reading.source for reading in own}) == len(own):  # a self-join needs its two readings apart
            for reading in own:
                shared.setdefault(reading.source, _Shared()).see(reading)
        else:
            found[name] = []
    for name, relations in found.items():
        for reading in [_reading(relation, readings) for relation in relations]:
            plans[name] = shared[reading.source].put(catalyst, plans[name], reading)
    return plans


@dataclass(frozen=True)
class _Reading:
    """A source as a flow reads it; its columns by name and, as names may be doubled, how often the name came before."""

    relation: Node
    source: tuple[Any, ...]
    columns: Mapping[tuple[str, int], Node]


def _reading(relation: Node, known: list[_Reading]) -> _Reading:
    found = next((one for one in known if relation.fastEquals(one.relation)), None)
    if found is None:
        columns: dict[tuple[str, int], Node] = {}
        for attribute in items(relation.output()):
            name = attribute.name()
            columns[name, sum(other == name for other, _ in columns)] = attribute
        found = _Reading(relation, same_source(relation), columns)
        known.append(found)
    return found


class _Shared:
    """One source, as the flows read it: its widest reading, and the attributes that stand for those of the others."""

    def __init__(self) -> None:
        self._widest: _Reading | None = None
        self._attributes: dict[tuple[str, int], Node] = {}
        self._put: dict[int, tuple[list[Node] | None, dict[int, tuple[Node, Node]]]] = {}

    def see(self, reading: _Reading) -> None:
        """Take one more reading into account."""
        self._attributes = {**reading.columns, **self._attributes}
        if self._widest is None or len(reading.columns) > len(self._widest.columns):
            self._widest = reading

    def put(self, catalyst: Catalyst, plan: Node, reading: _Reading) -> Node:
        """The plan, reading this instead of its own relation."""
        assert self._widest is not None, "a reading is seen before it is replaced"
        if id(reading) not in self._put:
            replaced = {
                identity(old): (old, self._attributes[place])
                for place, old in [*reading.columns.items(), *self._widest.columns.items()]
                if identity(old) != identity(self._attributes[place])
            }
            narrower = len(reading.columns) < len(self._widest.columns)
            narrow = [self._attributes[place] for place in reading.columns] if narrower else None
            self._put[id(reading)] = narrow, replaced
        narrow, replaced = self._put[id(reading)]
        if not replaced and narrow is None:
            return plan
        return rereading(catalyst, plan, reading.relation, self._widest.relation, narrow, replaced)


def rereading(
    catalyst: Catalyst,
    plan: Node,
    old: Node,
    new: Node,
    narrow: list[Node] | None,
    replaced: Replaced,
) -> Node:
    """The plan over another leaf, of which `narrow` are the columns that are seen."""
    children = children_of(plan)
    if not children and plan.fastEquals(old):
        relation = catalyst.rewrite(new, replaced)
        return relation if narrow is None else catalyst.project(narrow, relation)
    if children:
        inner = [rereading(catalyst, child, old, new, narrow, replaced) for child in children]
        plan = catalyst.with_children(plan, inner)
    return catalyst.rewrite(plan, replaced)


def over(catalyst: Catalyst, plan: Node, old: Node, new: Node) -> tuple[Node, int]:
    """The plan with another node wherever one stands that gives the same columns; and in how many places that was."""
    if plan.fastEquals(old):
        return new, 1
    below = [over(catalyst, child, old, new) for child in children_of(plan)]
    count = sum(found for _, found in below)
    return catalyst.with_children(plan, [child for child, _ in below]) if count else plan, count
