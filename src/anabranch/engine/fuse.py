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
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame

from anabranch.engine.catalyst import Catalyst
from anabranch.engine.catalyst_nodes import Node, identity, items, kind
from anabranch.engine.chains import Chain, Defined, Expression, Generation, Part
from anabranch.engine.paths import Attribute, Path

#: To be set on the session in which a wide plan runs. Otherwise Spark computes what `b != 0 AND a / b > 1` and
#: `b != 0 AND a / b > 2`, of two flows, have in common before either tests `b`.
SETTINGS = {"spark.sql.subexpressionElimination.skipForShortcutExpr": "true"}

#: Whether Spark follows what is known of a column through all its other names. Many flows give it so many that the
#: driver runs out of memory. Outer joins of streams must have it: without it Spark 4.1 leaves rows out.
FOLLOWS_NAMES = "spark.sql.constraintPropagation.enabled"


@dataclass(frozen=True)
class Wide:
    """One group's frame: for each part of a flow its mask and its columns, by their names in the frame.

    `alone` says of those that are not in it, why they must be run by themselves.
    """

    frame: DataFrame
    masks: Mapping[Part, str | None]
    columns: Mapping[Part, tuple[str, ...]]
    alone: Mapping[Part, str]


def fuse(catalyst: Catalyst, chains: Sequence[Chain]) -> Wide:
    """The wide frame of a group: chains over the same base."""
    return _Group(catalyst, chains[0].base).fuse([Path(c) for c in chains])


def unfused(catalyst: Catalyst, chain: Chain) -> Wide:
    """A flow as it is."""
    return _Group(catalyst, chain.plan).wide([Path(replace(chain, base=chain.plan, steps=()))], {})


@dataclass(eq=False)
class _Definition:
    """A column to be added; where `masks` are given, it is computed only for the rows of one of them."""

    attribute: Attribute
    expression: Node
    alias: Node
    refers: frozenset[int]
    masks: dict[int, Attribute] | None = None


class _Refused(Exception):
    """A flow that cannot be fused, and why."""


_PYTHON = "calls a Python function for chosen rows only"


class _Group:
    """The definitions of a wide plan while it is being made."""

    def __init__(self, catalyst: Catalyst, base: Node) -> None:
        self.catalyst = catalyst
        self.e = catalyst.e
        self.plan = base
        self.defined: dict[int, _Definition] = {}  # since the last projection was made
        self.taken: set[int] = set()  # identities that have been given to a column
        self.known: dict[int, list[_Definition]] = {}  # by semantic hash

    def fuse(self, paths: Sequence[Path]) -> Wide:
        alone: dict[Part, str] = {}
        rounds = 1 + max(len(p.generations) for p in paths)
        for now in range(rounds):
            paths = self._round(paths, now, alone)
            self._settle()
            if any(now < len(p.generations) for p in paths):
                self._generate(paths, now)
        if paths and all(path.chooses for path in paths):
            # Handing over a row costs more than testing whether anybody wants it.
            masks = [path.mask.node for path in paths if path.mask]
            self.plan = self.catalyst.filtered(reduce(self.e.Or, masks), self.plan)
        return self.wide(paths, alone)

    def _round(self, paths: Sequence[Path], now: int, alone: dict[Part, str]) -> list[Path]:
        """Add what the flows compute between two generators; the flows that went through."""
        # First the flows that want every row: what they compute needs no guard in others.
        free = [p for p in paths if p.mask is None and not p.conditions_in(now)]
        chosen = [p for p in paths if p not in free]
        for work, some in ((self._compute, free), (self._select, chosen), (self._compute, chosen)):
            for path in some:
                if path.part not in alone:
                    try:
                        work(path, now)
                    except _Refused as refused:
                        alone[path.part] = str(refused)
        return [p for p in paths if p.part not in alone]

    def _select(self, path: Path, now: int) -> None:
        """Narrow a flow's mask by its conditions, after computing what these need."""
        for place, selection in enumerate(path.conditions_in(now)):
            condition = selection.condition
            self._define_all(path, path.volatile(now, place) | path.below(condition.refers, now), early=True)
            if condition.python and (path.mask is not None or not path.python_sees_all(self.catalyst)):
                raise _Refused(_PYTHON)
            refers, replaced = self._replaced(path, condition.refers)
            node = self.catalyst.rewrite(selection.node, replaced).condition() if replaced else condition.node
            self._narrow(path, node, refers, condition)

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

    def _compute(self, path: Path, now: int) -> None:
        """Add all that a flow needs later: the array that it explodes next, then the rest."""
        generation = path.generation_after(now)
        early = path.volatile(now) | (path.below(generation.array.refers, now) if generation else set())
        self._define_all(path, early, early=True)
        if generation:
            path.array = self._array(path, generation)
        path.inner, path.kept = generation is not None and not generation.outer, None
        self._define_all(path, path.needed_in(now))

    def _array(self, path: Path, generation: Generation) -> Attribute:
        """The array of a generator."""
        array = generation.array
        refers, replaced = self._replaced(path, array.refers)
        if kind(array.node) == "AttributeReference" and not generation.of_map:
            (number,) = array.refers
            return path.now(number)
        node = self.catalyst.rewrite(generation.node, replaced).generator().child() if replaced else array.node
        node = self.e.MapEntries(node) if generation.of_map else node
        return self._place(path, array, node, refers, "array", early=True)

    def _define_all(self, path: Path, numbers: Iterable[int], *, early: bool = False) -> None:
        """Add columns of a flow; `early` ones cannot wait until its rows are chosen."""
        together: dict[int, Defined] = {}
        for column in path.in_order(numbers):
            if any(path.root(n) in together for n in column.expression.refers):
                self._define_some(path, together.values(), early)
                together = {}
            together[column.number] = column
        self._define_some(path, together.values(), early)

    def _define_some(self, path: Path, columns: Iterable[Defined], early: bool) -> None:
        """Add columns that do not refer to each other."""
        found = [(column, *self._replaced(path, column.expression.refers)) for column in columns]
        changed = [column for column, _, replaced in found if replaced]
        aliases: dict[int, Node] = {}
        if changed:
            projection = self.catalyst.project([column.alias for column in changed], self.plan)
            every = {old: pair for _, _, replaced in found for old, pair in replaced.items()}
            rewritten = items(self.catalyst.rewrite(projection, every).projectList())
            aliases = {column.number: alias for column, alias in zip(changed, rewritten, strict=True)}
        for column, refers, _ in found:
            alias = aliases.get(column.number)
            node = alias.child() if alias else column.expression.node
            path.at[column.number] = self._place(
                path, column.expression, node, refers, "column", alias or column.alias, early=early
            )

    def _replaced(self, path: Path, refers: Iterable[int]) -> tuple[frozenset[int], dict[int, tuple[Node, Node]]]:
        """What columns of a flow are in the wide plan, and how those that are others there are to be replaced."""
        now: set[int] = set()
        replaced: dict[int, tuple[Node, Node]] = {}
        for number in refers:
            attribute = path.now(number)
            now.add(attribute.number)
            if attribute.number != number:
                replaced[number] = (path.attribute(number), attribute.node)
        return frozenset(now), replaced

    def _place(
        self,
        path: Path,
        expression: Expression,
        node: Node,
        refers: frozenset[int],
        name: str,
        alias: Node = None,
        *,
        early: bool,
    ) -> Attribute:
        """Add an expression of a flow, computed for no row for which the flow alone does not compute it."""
        everywhere = path.mask is None and (early or not path.inner)
        if expression.python:
            same = self._find(node)
            if same is None and not (everywhere and path.python_sees_all(self.catalyst)):
                raise _Refused(_PYTHON)
            return self._define(node, refers, name, alias)
        if everywhere or (expression.deterministic and not expression.may_raise):
            return self._define(node, refers, name, alias)
        mask = path.mask if early and path.mask else self._kept(path)
        if early:
            guarded = self.e.If(mask.node, node, self.catalyst.null(node.dataType()))
            return self._define(guarded, refers | {mask.number}, name)
        definition = self._find(node) or self._add(node, refers, name, alias, masks={})
        if definition.masks is not None:
            definition.masks[mask.number] = mask
        return definition.attribute

    def _kept(self, path: Path) -> Attribute:
        """The mask of the rows that a flow keeps; an inner generator keeps those with elements."""
        if path.mask is not None and not path.inner:
            return path.mask
        if path.kept is None:
            assert path.array is not None, "a flow without a mask has no generator either"
            node = self.e.GreaterThan(self.e.Size(path.array.node, False), self.catalyst.integer(0))
            refers = frozenset({path.array.number})
            if path.mask is not None:
                node, refers = self.e.And(path.mask.node, node), refers | {path.mask.number}
            path.kept = self._define(node, refers, "kept")
        return path.kept

    def _find(self, node: Node) -> _Definition | None:
        """A definition that means the same. What is not deterministic means the same as itself only."""
        for other in self.known.get(node.semanticHash(), ()):
            if node.semanticEquals(other.expression) or node.equals(other.expression):
                return other
        return None

    def _define(self, node: Node, refers: frozenset[int], name: str, alias: Node = None) -> Attribute:
        """The column that holds an expression for every row: one that means the same, or a new one."""
        definition = self._find(node) or self._add(node, refers, name, alias)
        definition.masks = None
        return definition.attribute

    def _add(
        self, node: Node, refers: frozenset[int], name: str, alias: Node, masks: dict[int, Attribute] | None = None
    ) -> _Definition:
        # The flow's own alias will do, unless its identity has been given to the same thing under another mask.
        if alias is None or identity(alias) in self.taken:
            alias = self.catalyst.alias(node, name)
        number = identity(alias)
        self.taken.add(number)
        definition = _Definition(Attribute(number, alias.toAttribute), node, alias, refers, masks)
        self.defined[number] = definition
        self.known.setdefault(node.semanticHash(), []).append(definition)
        return definition

    def _settle(self) -> None:
        """Put the definitions so far into projections; what comes after stands on them."""
        for definition in list(self.defined.values()):
            if definition.masks:
                self._guard(definition, definition.masks)
        levels: dict[int, int] = {}

        def level(number: int) -> int:
            if number not in self.defined:
                return 0
            if number not in levels:
                levels[number] = 1 + max((level(n) for n in self.defined[number].refers), default=0)
            return levels[number]

        added: dict[int, list[Node]] = {}
        for number, definition in self.defined.items():
            added.setdefault(level(number), []).append(definition.alias)
        for _, aliases in sorted(added.items()):
            self.plan = self.catalyst.adding(aliases, self.plan)
        self.defined = {}

    def _guard(self, definition: _Definition, masks: Mapping[int, Attribute]) -> None:
        """Compute a column only for the rows of some masks."""
        mask, *others = (masks[number] for number in sorted(masks))
        if others:
            node = reduce(self.e.Or, (other.node for other in others), mask.node)
            mask = self._define(node, frozenset(masks), "any")
        same = self.known[definition.expression.semanticHash()]
        same.remove(definition)  # elsewhere it may be wanted for other rows
        node = definition.expression
        guarded = self.e.If(mask.node, node, self.catalyst.null(node.dataType()))
        definition.alias = self.catalyst.alias(guarded, "column", like=definition.alias)
        definition.refers |= {mask.number}

    def _generate(self, paths: Sequence[Path], now: int) -> None:
        """One row for each position of the longest array; then each flow's own rows and elements by position."""
        zero, one = self.catalyst.integer(0), self.catalyst.integer(1)
        exploding = [p for p in paths if p.generation_after(now)]
        sizes = [one]
        for path in exploding:
            assert path.array is not None, "a flow that explodes has an array"
            size = self.e.Size(path.array.node, False)
            sizes.append(self.e.If(path.mask.node, size, self.catalyst.null(size.dataType())) if path.mask else size)
        last = self.e.Subtract(self.e.Greatest(self.catalyst.seq(sizes)), one)
        position = self.catalyst.alias(zero, "position").toAttribute()
        self.plan = self.catalyst.exploded(self.e.Sequence(zero, last), position, self.plan)
        first, refers = self.e.EqualTo(position, zero), frozenset({identity(position)})
        for path in paths:
            generation = path.generation_after(now)
            if generation is None:
                self._narrow(path, first, refers)
                continue
            assert path.array is not None, "a flow that explodes has an array"
            inside = self.e.LessThan(position, self.e.Size(path.array.node, False))
            self._elements(path, generation, position, inside)
            wanted = self.e.Or(inside, first) if generation.outer else inside
            self._narrow(path, wanted, refers | {path.array.number})

    def _elements(self, path: Path, generation: Generation, position: Node, inside: Node) -> None:
        """What a generator gives at a position."""
        array = path.array
        assert array is not None, "a flow that explodes has an array"
        refers = frozenset({identity(position), array.number})
        element = self._define(self.e.GetArrayItem(array.node, position, False), refers, "element")
        values = [(element.node, frozenset({element.number}))]
        if generation.of_map or generation.how == "Inline":
            count = len(generation.added) - (generation.how == "PosExplode")
            fields = [self.e.GetStructField(element.node, i, self.catalyst.nothing) for i in range(count)]
            values = [(node, frozenset({element.number})) for node in fields]
        if generation.how == "PosExplode":
            values.insert(0, (self.e.If(inside, position, self.catalyst.null(position.dataType())), refers))
        for (number, _), (node, reads) in zip(generation.added, values, strict=True):
            path.at[number] = element if node is element.node else self._define(node, reads, "element")

    def wide(self, paths: Sequence[Path], alone: Mapping[Part, str]) -> Wide:
        """The last projection: every column that some output needs, once, and every mask."""
        names: dict[int, str] = {}
        exported: list[Node] = []

        def export(number: int, node: Node, prefix: str) -> str:
            if number not in names:
                names[number] = f"{prefix}{len(names)}"
                exported.append(self.catalyst.alias(node, names[number]))
            return names[number]

        def column(path: Path, number: int) -> str:
            root = path.root(number)
            attribute = path.at.get(root)
            return export(
                attribute.number if attribute else root, attribute.node if attribute else path.attribute(root), "c"
            )

        columns = {p.part: tuple(column(p, number) for number, _ in p.output) for p in paths}
        masks = {p.part: export(p.mask.number, p.mask.node, "m") if p.mask else None for p in paths}
        frame = self.catalyst.frame(self.catalyst.project(exported, self.plan))
        return Wide(frame, masks, columns, alone)
