"""Find out, from the analysed plan of a flow, what each of its columns is computed from.

The plan is walked from the datasets and sources it reads upwards; those are where the walk ends, so that every step of
a pipeline knows its own inputs (`core.column_lineage.through` puts steps together). A node that is not known counts as
one that cannot be looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from anabranch.core.column_lineage import ColumnOrigins, DatasetColumns, How, Influence, RowOrigins, together
from anabranch.engine.catalyst import Catalyst
from anabranch.engine.catalyst_columns import (
    Patterns,
    foreign_calls,
    input_name,
    made_by,
    refers,
    subqueries,
    view_name,
    window_functions,
)
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, identity, items, kind, queries_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Nodes that give their columns on as they are, and take no row for what is in it.
_TRANSPARENT = frozenset(
    """
    CollectMetrics DomainJoin EventTimeWatermark GlobalLimit LocalLimit Offset RebalancePartitions Repartition
    RepartitionByExpression ResolvedHint ReturnAnswer Sample SubqueryAlias Tail UpdateEventTimeWatermarkColumn View
    """.split()  # noqa: SIM905  a list of a word per line is no easier to read
)

#: Nodes that call code of somebody else for many rows.
_OPAQUE = {
    "ArrowEvalPython": "a Python function",
    "FlatMapCoGroupsInArrow": "a Python function (applyInArrow)",
    "FlatMapCoGroupsInPandas": "a Python function (applyInPandas)",
    "FlatMapGroupsInArrow": "a Python function (applyInArrow)",
    "FlatMapGroupsInPandas": "a Python function (applyInPandas)",
    "FlatMapGroupsInPandasWithState": "a Python function (applyInPandasWithState)",
    "MapInArrow": "a Python function (mapInArrow)",
    "MapInPandas": "a Python function (mapInPandas)",
    "PythonMapInArrow": "a Python function (mapInArrow)",
    "ScriptTransformation": "a script",
    "TransformWithStateInPandas": "a Python function (transformWithState)",
    "TransformWithStateInPySpark": "a Python function (transformWithState)",
}


@dataclass(frozen=True)
class _Rows:
    """What a node gives: the origins of attributes by their identities, and those of its rows."""

    columns: Mapping[int, ColumnOrigins]
    rows: RowOrigins

    def of(self, numbers: Iterable[int], how: How) -> ColumnOrigins:
        # An attribute of another query around this one is not known here; its node adds it.
        return together(self.columns[n].used(how) for n in sorted(numbers) if n in self.columns)

    def chosen_by(self, found: ColumnOrigins, how: How) -> _Rows:
        return replace(self, rows=self.rows | found.chooses(how))


class ColumnWalk:
    """Walks the plans of flows. `datasets` are those of the pipeline by the views they stand in plans as."""

    def __init__(self, catalyst: Catalyst, patterns: Patterns, datasets: Mapping[str, str], root: str = "") -> None:
        self._catalyst, self._patterns = catalyst, patterns
        self._datasets = {view.lower(): name for view, name in datasets.items()}
        self._root = root
        self._steps: Mapping[str, Callable[[Node], _Rows]] = {
            "Project": self._project,
            "Filter": self._filter,
            "Join": self._join,
            "AsOfJoin": self._join,
            "Aggregate": self._aggregate,
            "Window": self._window,
            "Generate": self._generate,
            "Union": self._union,
            "Expand": self._expand,
            "Deduplicate": self._deduplicate,
            "DeduplicateWithinWatermark": self._deduplicate,
            "Distinct": self._distinct,
            "Except": self._distinct,
            "Intersect": self._distinct,
            "Sort": self._sort,
        }

    def columns(self, name: str, frame: DataFrame) -> DatasetColumns:
        """The columns of a frame, which feeds the dataset `name`."""
        plan = self._catalyst.inlined(analyzed(frame))
        found = self._walk(plan)
        output = [identity(a) for a in items(plan.output())]
        columns = dict(zip(frame.columns, (found.columns[n] for n in output), strict=True))
        return DatasetColumns(name, columns, found.rows)

    def _walk(self, node: Node) -> _Rows:
        name = kind(node)
        if (view := view_name(node)) and view.lower() in self._datasets:
            return self._input(node, self._datasets[view.lower()])
        if not children_of(node):
            return self._input(node, input_name(node, self._root))
        if name in _TRANSPARENT:
            return self._walk(children_of(node)[0])
        step = self._steps.get(name)
        return step(node) if step else self._opaque(node)

    def _input(self, node: Node, name: str) -> _Rows:
        columns = {
            identity(a): ColumnOrigins(frozenset({Influence(name, a.name(), How.IDENTITY)}))
            for a in items(node.output())
        }
        return _Rows(columns, RowOrigins(reads=frozenset({name})))

    def _project(self, node: Node) -> _Rows:
        below = self._below(node)
        new = items(node.projectList().diff(node.child().output()))  # most only pass what is below
        return self._with_aliases(below, new)

    def _with_aliases(self, below: _Rows, expressions: Iterable[Node]) -> _Rows:
        columns, rows = dict(below.columns), below.rows
        for one in expressions:
            if kind(one) == "AttributeReference":
                continue
            value, more = self._value(below, children_of(one)[0] if kind(one) == "Alias" else one)
            columns[identity(one)], rows = value, rows | more
        return _Rows(columns, rows)

    def _value(self, below: _Rows, expression: Node, how: How = How.TRANSFORMED) -> tuple[ColumnOrigins, RowOrigins]:
        """The origins of what an expression gives; and of the rows of the queries in it."""
        if kind(expression) == "AttributeReference":
            return below.of([identity(expression)], How.IDENTITY), RowOrigins()
        if kind(expression) == "Literal":
            return ColumnOrigins(), RowOrigins()
        rows, parts = RowOrigins(), []
        named, chosen, makers = refers(expression), ColumnOrigins(), [expression]
        if self._patterns.has_window(expression):
            makers, windows = window_functions(expression)
            over = set[int]().union(*(refers(w) for w in windows))
            own = set[int]().union(*(refers(f) for f in makers))
            chosen, named, how = below.of(over, How.TRANSFORMED), (named - over) | own, How.AGGREGATED
        if self._patterns.aggregates(expression):
            how = How.AGGREGATED
        for query in subqueries(expression) if self._patterns.has_subquery(expression) else ():
            inner = self._walk(self._catalyst.inlined(query))
            parts += [inner.columns[identity(a)].used(how) for a in items(query.output())]
            rows |= inner.rows
        reasons = frozenset(f"calls {call}" for call in foreign_calls(expression))
        value = together([below.of(named, How.UNKNOWN if reasons else how), *parts])
        indirect = chosen.chooses(How.WINDOW)
        known = value.direct or reasons or value.unknown
        made = frozenset[str]() if known else frozenset(name for maker in makers for name in made_by(maker))
        return (
            replace(
                value,
                indirect=value.indirect | indirect.indirect,
                unknown=value.unknown | reasons | indirect.unknown,
                made=value.made | made,
            ),
            rows,
        )

    def _choosing(self, below: _Rows, expressions: Iterable[Node], how: How) -> _Rows:
        """The rows below, as far as expressions choose them."""
        for one in expressions:
            value, rows = self._value(below, one)
            below = replace(below, rows=below.rows | rows).chosen_by(value, how)
        return below

    def _filter(self, node: Node) -> _Rows:
        return self._choosing(self._below(node), [node.condition()], How.FILTER)

    def _join(self, node: Node) -> _Rows:
        return self._choosing(self._below(node), items(node.expressions()), How.JOIN)

    def _aggregate(self, node: Node) -> _Rows:
        below = self._below(node)
        grouped = self._choosing(below, items(node.groupingExpressions()), How.GROUP)
        return self._with_aliases(grouped, items(node.aggregateExpressions()))

    def _window(self, node: Node) -> _Rows:
        return self._with_aliases(self._below(node), items(node.windowExpressions()))

    def _generate(self, node: Node) -> _Rows:
        below = self._below(node)
        value, rows = self._value(below, node.generator())
        added = {identity(a): value for a in items(node.generatorOutput())}
        return _Rows({**below.columns, **added}, below.rows | rows).chosen_by(value, How.EXPLODE)

    def _union(self, node: Node) -> _Rows:
        children = [(child, self._walk(child)) for child in children_of(node)]
        output = [identity(a) for a in items(node.output())]
        given = [[found.columns[identity(a)] for a in items(child.output())] for child, found in children]
        columns = {number: together(each) for number, *each in zip(output, *given, strict=True)}
        rows = RowOrigins()
        for _, found in children:
            rows |= found.rows
        return _Rows(columns, rows)

    def _expand(self, node: Node) -> _Rows:
        """Rows several times over, each time with other values in some columns: cubes, rollups, unpivoted columns."""
        below, rows = self._below(node), RowOrigins()
        given: list[list[ColumnOrigins]] = []
        for projection in items(node.projections()):
            found = [self._value(below, one) for one in items(projection)]
            given.append([value for value, _ in found])
            for _, more in found:
                rows |= more
        output = [identity(a) for a in items(node.output())]
        columns = {number: together(each) for number, *each in zip(output, *given, strict=True)}
        return _Rows({**below.columns, **columns}, below.rows | rows)

    def _deduplicate(self, node: Node) -> _Rows:
        return self._choosing(self._below(node), items(node.keys()), How.GROUP)

    def _distinct(self, node: Node) -> _Rows:
        """Which rows there are depends on every column, of each side where there are two."""
        below = self._below(node)
        for child in children_of(node):
            below = self._choosing(below, items(child.output()), How.GROUP)
        if kind(node) == "Intersect":  # its columns are new ones, which stand for those of its first side
            first = [identity(a) for a in items(children_of(node)[0].output())]
            named = {identity(a): below.columns[n] for a, n in zip(items(node.output()), first, strict=True)}
            return replace(below, columns={**below.columns, **named})
        return below

    def _sort(self, node: Node) -> _Rows:
        return self._choosing(self._below(node), items(node.order()), How.SORT)

    def _opaque(self, node: Node) -> _Rows:
        """Every column that comes out may come from every one that goes in."""
        below, name = self._below(node), kind(node)
        reason = frozenset({f"calls {_OPAQUE[name]}" if name in _OPAQUE else f"goes through {name}"})
        for query in queries_in(node):
            inner = self._walk(query)
            below = _Rows({**below.columns, **inner.columns}, below.rows | inner.rows)
        read = [*children_of(node), *queries_in(node)]
        every = together(below.columns[identity(a)].used(How.UNKNOWN) for c in read for a in items(c.output()))
        every = replace(every, unknown=every.unknown | reason)
        passed = {identity(a) for c in children_of(node) for a in items(c.output())}
        columns = {n: below.columns[n] if n in passed else every for n in (identity(a) for a in items(node.output()))}
        return _Rows({**below.columns, **columns}, below.rows | RowOrigins(unknown=reason))

    def _below(self, node: Node) -> _Rows:
        columns: dict[int, ColumnOrigins] = {}
        rows = RowOrigins()
        for child in children_of(node):
            found = self._walk(child)
            columns |= found.columns
            rows |= found.rows
        return _Rows(columns, rows)
