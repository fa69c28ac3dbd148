"""One flow on its way into a wide plan: its columns and conditions, sorted into the rounds in which they are computed.

A round ends where the flow explodes an array. A column or condition that does not depend on the elements belongs to the
round before, as Spark moves a filter below a generator; but a column that may raise, or that is not deterministic,
stays where the flow has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from anabranch.engine.catalyst import Catalyst
from anabranch.engine.catalyst_nodes import Node, identity, items, kind
from anabranch.engine.chains import Chain, Defined, Expression, Generation, Projection, Renamed, Selection


class Attribute:
    """A column of the wide plan; its node is made when it is asked for."""

    def __init__(self, number: int, make: Callable[[], Node]) -> None:
        self.number = number
        self._make = make

    @cached_property
    def node(self) -> Node:
        """The attribute by which plans refer to it."""
        return self._make()


class Path:
    """A flow, and how far it has been taken: its mask so far, and what its columns are in the wide plan."""

    def __init__(self, chain: Chain) -> None:
        self.part = chain.part
        self.output = chain.output
        self.mask: Attribute | None = None
        self.array: Attribute | None = None  # of the generator that comes next
        self.inner = False  # whether that generator drops rows
        self.kept: Attribute | None = None  # the mask of the rows that it keeps, once this was asked for
        self.at: dict[int, Attribute] = {}
        self.columns: dict[int, Defined] = {}
        self.generations: list[Generation] = []
        self.conditions: list[list[Selection]] = [[]]
        self._renamed: dict[int, Renamed] = {}
        self._nodes: dict[int, Node] = dict(chain.output)
        self._round: dict[int, int] = {}
        self._place: dict[int, int] = {}  # how many conditions of its round stand before a column
        for step in chain.steps:
            self._take(step)
        roots = [number for number, _ in chain.output]
        roots += [n for some in self.conditions for s in some for n in s.condition.refers]
        roots += [n for g in self.generations for n in g.array.refers]
        self.needed = self._closure(roots)

    def _take(self, step: Projection | Selection | Generation) -> None:
        now = len(self.generations)
        if isinstance(step, Generation):
            self.generations.append(step)
            if kind(step.array.node) == "AttributeReference":
                (number,) = step.array.refers
                self._nodes.setdefault(number, step.array.node)
            self.conditions.append([])
            for number, node in step.added:
                self._round[number] = now + 1
                self._nodes[number] = node
        elif isinstance(step, Selection):
            condition = step.condition
            stays = not condition.deterministic or condition.python
            self.conditions[now if stays else self._earliest(condition)].append(step)
        else:
            for renamed in step.renamed:
                self._renamed[renamed.number] = renamed
                self._nodes.setdefault(renamed.of, renamed.attribute)
            for column in step.defined:
                expression = column.expression
                stays = not expression.deterministic or expression.python or (now > 0 and expression.may_raise)
                self.columns[column.number] = column
                self._round[column.number] = now if stays else self._earliest(expression)
                self._place[column.number] = len(self.conditions[now])

    def _earliest(self, expression: Expression) -> int:
        return max((self._round.get(self.root(n), 0) for n in expression.refers), default=0)

    @property
    def chooses(self) -> bool:
        """Whether the flow leaves rows out."""
        return any(self.conditions)

    def conditions_in(self, now: int) -> list[Selection]:
        """The conditions of a round."""
        return self.conditions[now] if now < len(self.conditions) else []

    def generation_after(self, now: int) -> Generation | None:
        """The generator that ends a round."""
        return self.generations[now] if now < len(self.generations) else None

    def root(self, number: int) -> int:
        """The column that a name stands for."""
        while number in self._renamed:
            number = self._renamed[number].of
        return number

    def attribute(self, number: int) -> Node:
        """The attribute by which the flow's own plan refers to a column."""
        if number not in self._nodes:
            made = self.columns.get(number) or self._renamed[number]
            self._nodes[number] = made.alias.toAttribute()
        return self._nodes[number]

    def now(self, number: int) -> Attribute:
        """What a column of the flow is in the wide plan."""
        root = self.root(number)
        return self.at.get(root) or Attribute(root, lambda: self.attribute(root))

    def _closure(self, numbers: Iterable[int]) -> set[int]:
        """The columns that the flow defines among some, and those they stand on."""
        found: set[int] = set()
        waiting = list(numbers)
        while waiting:
            number = self.root(waiting.pop())
            if number in self.columns and number not in found:
                found.add(number)
                waiting += self.columns[number].expression.refers
        return found

    def below(self, numbers: Iterable[int], now: int) -> set[int]:
        """What must be computed in a round for some columns."""
        return {n for n in self._closure(numbers) if self._round[n] == now}

    def needed_in(self, now: int) -> set[int]:
        """All that the flow ever needs of a round."""
        return {n for n in self.needed if self._round[n] == now}

    def volatile(self, now: int, place: int | None = None) -> set[int]:
        """What is not deterministic before a condition of a round (None: in all of it), and what that needs."""
        found = {
            n
            for n in self.needed_in(now)
            if not self.columns[n].expression.deterministic and (place is None or self._place[n] <= place)
        }
        return self.below(found, now)

    def in_order(self, numbers: Iterable[int]) -> list[Defined]:
        """Columns that have not been taken into the wide plan, each after what it stands on."""
        wanted = {n for n in numbers if n not in self.at}
        return [column for n, column in self.columns.items() if n in wanted] if wanted else []

    def python_sees_all(self, catalyst: Catalyst) -> bool:
        """Whether Spark, running the flow alone, calls its Python functions for every row.

        It first applies whatever part of the flow's conditions needs no Python function.
        """
        if self.generations and not self.generations[0].outer:
            array = self.generations[0].array
            if not (array.python or self._calls_python(array.refers)):
                return False
        parts = [part for s in self.conditions[0] for part in _conjuncts(s.condition.node)]
        return all(
            catalyst.calls_python(part) or self._calls_python(identity(a) for a in items(part.references().toSeq()))
            for part in parts
        )

    def _calls_python(self, numbers: Iterable[int]) -> bool:
        return any(self.columns[n].expression.python for n in self._closure(numbers))


def _conjuncts(condition: Node) -> list[Node]:
    if kind(condition) == "And":
        return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]
    return [condition]
