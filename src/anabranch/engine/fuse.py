"""Fuse flows: those that work row by row over the same base become one wide plan, computed in one pass.

Of the chains of a group (see `chains`) one plan is made whose columns are the distinct expressions of all its flows,
each computed once, and a boolean mask for each way rows are chosen:

- An expression is known by its meaning: two flows that compute the same thing, under whatever name, share it. One that
  is not deterministic is shared only if it is the very same one, through a view.
- What may raise (under ANSI rules `1/0`, a bad cast) is computed only for rows for which a flow alone computes it.
  Spark moves filters down before it computes columns, so that is: for the rows that some flow keeps in the end, unless
  the flow needs the value to choose its rows; then for those that the filters before have left.
- `explode` is done once for all flows, by position, as many rows as the longest array has; each flow takes the
  positions that are its own. A flow that explodes again does so in the next round.
- Expressions are put into as few projections as their dependencies allow: one for each level.

A Python function is called by Spark for every row of the plan, so only a flow that calls it for every row can be fused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from anabranch.engine.catalyst import Catalyst, Node, identity, items, kind
from anabranch.engine.chains import Chain, Expression
from anabranch.engine.paths import Path

#: To be set on the session in which a wide plan runs. Otherwise Spark computes what `b != 0 AND a / b > 1` and
#: `b != 0 AND a / b > 2`, of two flows, have in common before either tests `b`.
SETTINGS = {"spark.sql.subexpressionElimination.skipForShortcutExpr": "true"}


@dataclass(frozen=True)
class Wide:
    """One group's frame: for each flow its mask and its columns, by their names in the frame.

    `alone` says of the flows that are not in it, why they must be run by themselves.
    """

    frame: DataFrame | None
    masks: Mapping[str, str | None]
    columns: Mapping[str, tuple[str, ...]]
    alone: Mapping[str, str]


def fuse(catalyst: Catalyst, chains: Sequence[Chain]) -> Wide:
    """The wide frame of a group: chains over the same base."""
    return _Group(catalyst, chains[0].base).fuse([Path(c) for c in chains])


def unfused(catalyst: Catalyst, chain: Chain) -> Wide:
    """A flow as it is."""
    group = _Group(catalyst, chain.plan)
    return group.wide([Path(Chain(chain.flow, chain.plan, chain.plan, (), chain.output, None))], {})


class _Attribute:
    """A column of the wide plan; its node is made when it is asked for."""

    def __init__(self, number: int, node: Node = None, alias: Node = None) -> None:
        self.number = number
        self._node, self._alias = node, alias

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self._alias.toAttribute()
        return self._node


@dataclass
class _Definition:
    """A column to be added: what it is, and the masks under which it may be computed (None: always)."""

    attribute: _Attribute
    expression: Node
    alias: Node
    refers: frozenset[int]
    wanted: dict[int, _Attribute | None] | None = None


class _Refused(Exception):  # noqa: N818  never leaves this module
    """A flow that cannot be fused, and why."""


class _Group:
    """The definitions of a wide plan while it is being made."""

    def __init__(self, catalyst: Catalyst, base: Node) -> None:
        self.catalyst = catalyst
        self.e = catalyst.e
        self.plan = base
        self.zero, self.one = catalyst.integer(0), catalyst.integer(1)
        self.defined: list[_Definition] = []  # since the last projection was made
        self.level: dict[int, int] = {}  # of what has been defined since: the projection that adds it
        self.taken: set[int] = set()  # identities that have been given to a column
        self.known: dict[int, list[_Definition]] = {}  # by semantic hash
        self.unions: dict[frozenset[int], _Attribute] = {}

    # What follows is in running order.

    def fuse(self, paths: Sequence[Path]) -> Wide:
        alone: dict[str, str] = {}
        for number in range(1 + max(len(p.generations) for p in paths)):
            paths = self._round(paths, number, alone)
            self._settle()
            if any(number < len(p.generations) for p in paths):
                self._generate(paths, number)
        return self.wide(paths, alone)

    def _round(self, paths: Sequence[Path], number: int, alone: dict[str, str]) -> list[Path]:
        """Add what the flows compute between two generators; the flows that went through."""
        # First the flows that want everything for every row: what they compute needs no guard in others.
        free = [p for p in paths if p.mask is None and not p.conditions_in(number)]
        for work, some in (
            (self._compute, free),
            (self._select, [p for p in paths if p not in free]),
            (self._compute, [p for p in paths if p not in free]),
        ):
            for path in some:
                if path.flow not in alone:
                    try:
                        work(path, number)
                    except _Refused as refused:
                        alone[path.flow] = str(refused)
        return [p for p in paths if p.flow not in alone]

    def _select(self, path: Path, number: int) -> None:
        """Narrow a flow's mask by its conditions, after computing what these need."""
        for place, selection in enumerate(path.conditions_in(number)):
            condition = selection.condition
            self._define_all(path, path.volatile(number, place) | path.below(condition.refers, number), early=True)
            if condition.python and (path.mask is not None or not path.python_sees_all):
                raise _Refused("calls a Python function for chosen rows only")
            refers, replaced = self._replaced(path, condition.refers)
            node = self.catalyst.rewrite(selection.node, replaced).condition() if replaced else condition.node
            self._narrow(path, node, refers, condition)
        self._define_all(path, path.volatile(number), early=True)

    def _narrow(self, path: Path, node: Node, refers: frozenset[int], condition: Expression | None = None) -> None:
        """A condition that is null lets no row through."""
        if node.nullable():
            node = self.e.Coalesce(self.catalyst.seq([node, self.catalyst.false]))
        if path.mask is not None:
            refers |= {path.mask.number}
            if condition is None or (condition.deterministic and not condition.may_raise):
                node = self.e.And(path.mask.node, node)
            else:
                node = self.e.If(path.mask.node, node, self.catalyst.false)
        path.mask = self._define(node, refers, "mask")

    def _compute(self, path: Path, number: int) -> None:
        """Add what a flow needs later: the array that it explodes next, then the rest."""
        path.wanted = path.mask
        self._define_all(path, path.volatile(number), early=True)
        if number < len(path.generations):
            generation = path.generations[number]
            self._define_all(path, path.below(generation.array.refers, number))
            path.array = self._array(path, number)
            if not generation.outer:
                path.nonempty = lambda: self._nonempty(path)
        self._define_all(path, path.needed_in(number))
        path.nonempty = None

    def _nonempty(self, path: Path) -> _Attribute:
        """The mask of the rows that an inner generator keeps."""
        array = path.array
        node = self.e.GreaterThan(self.e.Size(array.node, False), self.zero)
        refers = frozenset({array.number})
        if path.mask is not None:
            node, refers = self.e.And(path.mask.node, node), refers | {path.mask.number}
        return self._define(node, refers, "nonempty")

    def _array(self, path: Path, number: int) -> _Attribute:
        """The array of a generator."""
        generation = path.generations[number]
        array = generation.array
        refers, replaced = self._replaced(path, array.refers)
        node = array.node
        if replaced:
            node = self.catalyst.rewrite(generation.node, replaced).generator().child()
        if generation.of_map:
            node = self.e.MapEntries(node)
        elif kind(node) == "AttributeReference":
            return path.at.get(path.root(next(iter(array.refers)))) or _Attribute(identity(node), node)
        return self._place(path, array, node, refers, None, "array")

    def _define_all(self, path: Path, numbers: Iterable[int], *, early: bool = False) -> None:
        """Add columns of a flow, in the order of its steps; `early` ones are needed to choose its rows."""
        waiting: dict[int, frozenset[int]] = {}
        for number in path.in_order(numbers):
            if any(path.root(r) in waiting for r in path.columns[number].expression.refers):
                self._define_some(path, list(waiting), early)
                waiting = {}
            waiting[number] = frozenset()
        self._define_some(path, list(waiting), early)

    def _define_some(self, path: Path, numbers: Sequence[int], early: bool) -> None:
        """Add columns that do not refer to each other."""
        found = {n: self._replaced(path, path.columns[n].expression.refers) for n in numbers}
        changed = [n for n in numbers if found[n][1]]
        aliases = {n: path.columns[n].alias for n in numbers}
        if changed:
            every = {old: pair for n in changed for old, pair in found[n][1].items()}
            projection = self.catalyst.project([aliases[n] for n in changed], self.plan)
            aliases |= zip(changed, items(self.catalyst.rewrite(projection, every).projectList()), strict=True)
        for n in numbers:
            expression = path.columns[n].expression
            node = aliases[n].child() if n in changed else expression.node
            path.at[n] = self._place(path, expression, node, found[n][0], aliases[n], "column", early=early)

    def _replaced(self, path: Path, refers: Iterable[int]) -> tuple[frozenset[int], dict[int, tuple[Node, Node]]]:
        """What attributes of a flow are in the wide plan, and which of them must be replaced."""
        now: set[int] = set()
        replaced: dict[int, tuple[Node, Node]] = {}
        for number in refers:
            root = path.root(number)
            attribute = path.at.get(root)
            now.add(attribute.number if attribute else root)
            if root != number or (attribute and attribute.number != number):
                new = attribute.node if attribute else path.attribute(root)
                replaced[number] = (path.attribute(number), new)
        return frozenset(now), replaced

    def _place(
        self,
        path: Path,
        expression: Expression,
        node: Node,
        refers: frozenset[int],
        alias: Node,
        name: str,
        *,
        early: bool = False,
    ) -> _Attribute:
        """Add an expression of a flow, computed no more often than the flow alone computes it."""
        mask = path.mask
        if not early and expression.deterministic and path.nonempty and (expression.may_raise or expression.python):
            mask = path.nonempty()
        if expression.python:
            found = self._find(node)
            if found is None and (mask is not None or (early and not path.python_sees_all)):
                raise _Refused("calls a Python function for chosen rows only")
            return found.attribute if found else self._define(node, refers, name, alias)
        if mask is None or (expression.deterministic and not expression.may_raise):
            return self._define(node, refers, name, alias)
        if early or not expression.deterministic:
            guarded = self.e.If(mask.node, node, self.catalyst.null(node.dataType()))
            return self._define(guarded, refers | {mask.number}, name)
        found = self._find(node) or self._add(node, refers, name, alias, wanted={})
        if found.wanted is not None:
            found.wanted[mask.number] = mask
        return found.attribute

    def _find(self, node: Node) -> _Definition | None:
        """A definition that means the same. What is not deterministic means the same as itself only."""
        for other in self.known.get(node.semanticHash(), ()):
            if node.semanticEquals(other.expression) or node.equals(other.expression):
                return other
        return None

    def _define(self, node: Node, refers: frozenset[int], name: str, alias: Node = None) -> _Attribute:
        """The column that holds an expression for every row: one that means the same, or a new one."""
        found = self._find(node)
        if found is None:
            return self._add(node, refers, name, alias).attribute
        found.wanted = None
        return found.attribute

    def _add(
        self,
        node: Node,
        refers: frozenset[int],
        name: str,
        alias: Node,
        wanted: dict[int, _Attribute | None] | None = None,
    ) -> _Definition:
        # The alias of the flow itself will do, unless its identity has been given to the same thing under another mask.
        if alias is None or identity(alias) in self.taken:
            alias = self.catalyst.alias(node, name)
        number = identity(alias)
        self.taken.add(number)
        definition = _Definition(_Attribute(number, alias=alias), node, alias, refers, wanted)
        self.defined.append(definition)
        self.known.setdefault(node.semanticHash(), []).append(definition)
        return definition

    def _settle(self) -> None:
        """Put the definitions so far into projections; what comes after stands on them."""
        levels: list[list[Node]] = []
        for definition in self.defined:
            refers, alias = definition.refers, definition.alias
            if definition.wanted:
                mask = self._any([m for m in definition.wanted.values() if m])
                refers |= {mask.number}
                node = definition.expression
                guarded = self.e.If(mask.node, node, self.catalyst.null(node.dataType()))
                alias = self.catalyst.alias(guarded, "column", like=alias)
