"""Fuse flows: those that work row by row over the same base become one wide plan, computed in one pass.

A flow's plan is walked from its top down to its base, the first node that is not row-wise: a source, or an
aggregation, a join, a deduplication. Flows over the same base make a group. Of a group's projections, filters and
generators one plan is made whose columns are the distinct expressions of all its flows, each computed once, and a
boolean mask for each way rows are chosen:

- An expression is known by its meaning: two flows that compute the same thing, under whatever name, share it.
- An expression above a filter is computed only where the filter lets the row through, as in the flow alone: under ANSI
  rules `1/0` or a bad cast raises. Expressions that cannot raise are not guarded, so that they can be shared.
- `explode` is done once for all flows, by position, as many rows as the longest array has; each flow takes the
  positions that are its own. The generator is the outer one: of an inner one Spark infers a filter that computes the
  array, and so parses its JSON, a second time.
- Expressions are put into as few projections as their dependencies allow: one for each level.

What cannot be done in this way starts a base of its own, with the reason kept for `plan`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.engine.catalyst import Catalyst, Node, analyzed, identity, is_source, items, kind, same_source

_SEQUENCE = "__anabranch_sequence"
_POSITION = "__anabranch_position"

#: Nodes that only give names.
_NAMING = ("SubqueryAlias", "View")

#: Generators whose rows can be told by a position.
_GENERATORS = ("Explode", "PosExplode", "Inline")

#: Expressions that never raise, whatever their arguments hold.
_NEVER_RAISE = frozenset(
    """
    Alias And AttributeReference CaseWhen Coalesce Concat Contains CreateNamedStruct EndsWith EqualNullSafe EqualTo
    GetStructField GreaterThan GreaterThanOrEqual If In IsNotNull IsNull Length LessThan LessThanOrEqual Literal Lower
    Not Or Size StartsWith StringTrim Upper
    """.split()  # noqa: SIM905  a list of a word per line is no easier to read
)

#: Why a node is the base of a branch of its own.
_REASONS = {
    "Aggregate": "aggregates",
    "Deduplicate": "drops duplicates",
    "DeduplicateWithinWatermark": "drops duplicates",
    "Distinct": "drops duplicates",
    "EventTimeWatermark": "has a watermark",
    "Join": "joins",
    "Union": "unites flows",
    "Window": "uses a window",
}


@dataclass(frozen=True)
class Chain:
    """A flow as the row-wise steps over its base, in running order; `reason` says why its base is not a source."""

    flow: str
    base: Node
    steps: tuple[Node, ...]
    output: tuple[Node, ...]
    reason: str | None


@dataclass(frozen=True)
class Wide:
    """One group's frame: for each flow its mask and its columns, by their names in the frame."""

    frame: DataFrame
    masks: Mapping[str, str | None]
    columns: Mapping[str, tuple[str, ...]]


def share_sources(catalyst: Catalyst, frames: Mapping[str, DataFrame]) -> dict[str, Node]:
    """The plans of the flows, in which a source that several flows name each for itself is one and the same."""
    first: dict[object, Node] = {}
    plans: dict[str, Node] = {}
    for name, frame in frames.items():
        plan = analyzed(frame)
        found = _sources(plan)
        keys = [same_source(relation) for relation in found]
        replaced: dict[int, tuple[Node, Node]] = {}
        if len(set(keys)) == len(keys):  # a self-join needs its two readings apart
            for key, relation in zip(keys, found, strict=True):
                shared = first.setdefault(key, relation)
                for old, new in zip(items(relation.output()), items(shared.output()), strict=True):
                    if identity(old) != identity(new):
                        replaced[identity(old)] = (old, new)
        plans[name] = _rewritten(catalyst, plan, replaced) if replaced else plan
    return plans


def _sources(plan: Node) -> list[Node]:
    own = [plan] if is_source(plan) else []
    return own + [relation for child in items(plan.children()) for relation in _sources(child)]


def _rewritten(catalyst: Catalyst, plan: Node, replaced: Mapping[int, tuple[Node, Node]]) -> Node:
    children = items(plan.children())
    if children:
        plan = catalyst.with_children(plan, [_rewritten(catalyst, child, replaced) for child in children])
    return catalyst.rewrite(plan, replaced)


def chain(flow: str, plan: Node) -> Chain:
    """Walk a flow down to its base."""
    output = tuple(items(plan.output()))
    steps: list[Node] = []
    while kind(plan) in (*_NAMING, "Project", "Filter", "Generate"):
        if kind(plan) not in _NAMING:
            steps.append(plan)
        plan = plan.children().apply(0)
    reason = None if is_source(plan) else _REASONS.get(kind(plan), f"uses {kind(plan)}")
    steps.reverse()
    base, kept = plan, steps
    selects = False  # whether rows have been chosen or multiplied below the step in hand
    for position, step in enumerate(steps):
        why = _refused(step, selects)
        if why:
            base, kept, reason, selects = step, steps[position + 1 :], why, False
        selects = selects or kind(step) in ("Filter", "Generate")
    generators = [i for i, step in enumerate(kept) if kind(step) == "Generate"]
    if len(generators) > 1:
        last = generators[-2]
        base, kept, reason = kept[last], kept[last + 1 :], "explodes twice"
    return Chain(flow, base, tuple(kept), output, reason)


def _refused(step: Node, selects: bool) -> str | None:
    """Why a step cannot be fused, given whether rows were chosen below it."""
    if step.subqueries().size():
        return "has a subquery"
    if kind(step) == "Generate" and kind(step.generator()) not in _GENERATORS:
        return f"generates rows with {step.generator().prettyName()}"
    inside = {name for expression in items(step.expressions()) for name in _kinds(expression)}
    if selects and any("PythonUDF" in name or "PythonUDAF" in name for name in inside):
        # Spark computes them for all rows first, so those that the filter removed would reach the function.
        return "calls a Python function after choosing rows"
    if "WindowExpression" in inside:
        return "uses a window"
    return None


def _kinds(expression: Node) -> set[str]:
    return {kind(expression)}.union(*(_kinds(child) for child in items(expression.children())))


def fuse(catalyst: Catalyst, chains: Sequence[Chain]) -> Wide:
    """The wide frame of a group: chains over the same base."""
    return _Group(catalyst, chains[0].base).fuse(chains)


@dataclass
class _Path:
    """How far one flow has been taken: its mask so far, and the attributes that stand for others."""

    chain: Chain
    mask: Node | None = None
    replaced: dict[int, tuple[Node, Node]] = field(default_factory=dict)

    def now(self, attribute: Node) -> Node:
        """What stands for an attribute."""
        return self.replaced.get(identity(attribute), (None, attribute))[1]


class _Group:
    """The definitions of a wide plan while it is being made."""

    def __init__(self, catalyst: Catalyst, base: Node) -> None:
        self.catalyst = catalyst
        self.e = catalyst.e
        self.plan = base
        self.level: dict[int, int] = {identity(a): 0 for a in items(base.output())}
        self.levels: list[list[Node]] = []  # what each projection adds
        self.known: dict[int, list[tuple[Node, Node]]] = {}  # semantic hash -> (expression, attribute)

    def fuse(self, chains: Sequence[Chain]) -> Wide:
        paths = [_Path(c) for c in chains]
        generators = {}
        for path in paths:
            for number, step in enumerate(path.chain.steps):
                if kind(step) == "Generate":
                    generators[path.chain.flow] = number
                    break
                self._take(path, step)
        if generators:
            self._generate(paths, generators)
        self._settle()
        return self._wide(paths)

    def _take(self, path: _Path, step: Node) -> None:
        """Add what one projection or filter of a flow computes."""
        step = self.catalyst.rewrite(step, path.replaced)
        if kind(step) == "Filter":
            self._choose(path, step.condition())
            return
        for expression in items(step.projectList()):
            if kind(expression) != "Alias" or identity(expression) in self.level:
                continue
            attribute = expression.toAttribute()
            if kind(expression.child()) == "AttributeReference":
                path.replaced[identity(attribute)] = (attribute, expression.child())
                continue
            found = self._define(self._guarded(expression.child(), path.mask), expression.name(), like=expression)
            if identity(found) != identity(attribute):
                path.replaced[identity(attribute)] = (attribute, found)

    def _choose(self, path: _Path, condition: Node) -> None:
        """Narrow a flow's mask; a condition that is null lets no row through."""
        if condition.nullable():
            condition = self.e.Coalesce(self.catalyst.seq([condition, self.catalyst.false]))
        narrowed = condition if path.mask is None else self.e.And(path.mask, condition)
        path.mask = self._define(narrowed, "mask")

    def _guarded(self, expression: Node, mask: Node | None) -> Node:
        if mask is None or _kinds(expression) <= _NEVER_RAISE:
            return expression
        return self.e.If(mask, expression, self.catalyst.null(expression.dataType()))

    def _define(self, expression: Node, name: str, like: Node | None = None) -> Node:
        """The attribute that holds an expression: one that means the same, or a new one."""
        if kind(expression) == "AttributeReference":
            return expression
        same = self.known.setdefault(expression.semanticHash(), [])
        for other, attribute in same:
            if expression.semanticEquals(other):
                return attribute
        alias = self.catalyst.alias(expression, name, like)
        level = 1 + max((self.level[identity(a)] for a in items(expression.references().toSeq())), default=0)
        while len(self.levels) < level:
            self.levels.append([])
        self.levels[level - 1].append(alias)
        attribute = alias.toAttribute()
        self.level[identity(attribute)] = level
        same.append((expression, attribute))
        return attribute

    def _settle(self) -> None:
        """Put the definitions so far into projections; what comes after stands on them."""
        for added in self.levels:
            self.plan = self.catalyst.project([*items(self.plan.output()), *added], self.plan)
        self.levels = []
        self.level = dict.fromkeys(self.level, 0)

    def _generate(self, paths: Sequence[_Path], generators: Mapping[str, int]) -> None:
        """One row for each position of the longest array; then each flow's own rows and elements by position."""
        arrays: dict[str, Node] = {}
        for path in paths:
            if path.chain.flow in generators:
                step = self.catalyst.rewrite(path.chain.steps[generators[path.chain.flow]], path.replaced)
                arrays[path.chain.flow] = self._array(path, step.generator().child())
        sizes = {identity(a): self.e.Size(a, False) for a in arrays.values()}
        one = self.catalyst.integer(1)
        longest = self.e.Greatest(self.catalyst.seq([one, *sizes.values()]))
        self._settle()
        positions = self.catalyst.alias(self.e.Sequence(one, longest), _SEQUENCE)
        self.plan = self.catalyst.project([*items(self.plan.output()), positions], self.plan)
        frame = self.catalyst.frame(self.plan).select("*", F.explode_outer(_SEQUENCE).alias(_POSITION))
        self.plan = analyzed(frame)
        position = items(self.plan.output())[-1]
        self.level = {identity(a): 0 for a in items(self.plan.output())}
        first = self.e.EqualTo(position, one)
        for path in paths:
            if path.chain.flow not in generators:
                self._choose(path, first)
                continue
            number = generators[path.chain.flow]
            self._elements(path, path.chain.steps[number], arrays[path.chain.flow], position)
            for step in path.chain.steps[number + 1 :]:
                self._take(path, step)

    def _array(self, path: _Path, child: Node) -> Node:
        """The array of a generator; null where the row is not for this flow."""
        if kind(child.dataType()) == "MapType":
            child = self.e.MapEntries(child)
        if path.mask is not None:
            child = self.e.If(path.mask, child, self.catalyst.null(child.dataType()))
        return self._define(child, "array")

    def _elements(self, path: _Path, step: Node, array: Node, position: Node) -> None:
        """What a generator gives at a position, and the mask of the rows that it gives."""
        generator, outer = step.generator(), step.outer()
        one = self.catalyst.integer(1)
        index = self.e.Subtract(position, one)
        inside = self.e.LessThanOrEqual(position, self.e.Size(array, False))
        element = self._define(self.e.GetArrayItem(array, index, False), "element")
        is_map = kind(generator.child().dataType()) == "MapType"
        values = self._fields(element) if is_map or kind(generator) == "Inline" else [element]
        if kind(generator) == "PosExplode":
            values = [self.e.If(inside, index, self.catalyst.null(index.dataType())), *values]
        for attribute, value in zip(items(step.generatorOutput()), values, strict=True):
            found = self._define(value, attribute.name(), like=attribute)
            if identity(found) != identity(attribute):
                path.replaced[identity(attribute)] = (attribute, found)
        self._choose(path, self.e.Or(inside, self.e.EqualTo(position, one)) if outer else inside)

    def _fields(self, struct: Node) -> list[Node]:
        count = struct.dataType().fields()
        return [self.e.GetStructField(struct, i, self.catalyst.nothing) for i in range(len(count))]

    def _wide(self, paths: Sequence[_Path]) -> Wide:
        """The last projection: every column that some output needs, once, and every mask."""
        names: dict[int, str] = {}
        exported: list[Node] = []

        def export(attribute: Node, prefix: str) -> str:
            if identity(attribute) not in names:
                names[identity(attribute)] = f"{prefix}{len(names)}"
                exported.append(self.catalyst.alias(attribute, names[identity(attribute)]))
            return names[identity(attribute)]

        columns = {p.chain.flow: tuple(export(p.now(a), "c") for a in p.chain.output) for p in paths}
        masks = {p.chain.flow: None if p.mask is None else export(p.mask, "m") for p in paths}
        return Wide(self.catalyst.frame(self.catalyst.project(exported, self.plan)), masks, columns)
