"""Looks inside Spark's plans for the origins of columns, through py4j: what expressions refer to, and what is opaque.

Beside `catalyst`, which makes plans as well. Each function here has a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

from anabranch.engine.catalyst import describe, is_source
from anabranch.engine.catalyst_nodes import Node, children_of, identity, items, kind

_SUBQUERIES = ("ScalarSubquery", "Exists", "ListQuery", "LateralSubquery")

#: Expressions that call code of somebody else, with how they are told.
_FOREIGN = {
    "PythonUDF": "the Python function",
    "PythonUDAF": "the Python function",
    "PythonUDTF": "the Python function",
    "ScalaUDF": "the function",
    "ScalaAggregator": "the function",
    "ScalaUDAF": "the function",
    "CallMethodViaReflection": "the Java method",
    "HiveGenericUDF": "the function",
    "HiveSimpleUDF": "the function",
}

#: Relations that stand for rows nobody reads from anywhere.
_FROM_NOWHERE = {
    "LocalRelation": "rows in the code",
    "LogicalRDD": "rows of the program",
    "ExternalRDD": "rows of the program",
    "Range": "a range of numbers",
    "OneRowRelation": "one row",
}


class Patterns:
    """What a tree may contain; asked before it is walked, which takes a call for each node."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001
        patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
        self._aggregate = patterns.AGGREGATE_EXPRESSION()
        self._window = patterns.WINDOW_EXPRESSION()
        self._subquery = patterns.PLAN_EXPRESSION()

    def aggregates(self, expression: Node) -> bool:
        """Whether an expression puts the values of several rows together."""
        found: bool = expression.containsPattern(self._aggregate)
        return found

    def has_window(self, expression: Node) -> bool:
        """Whether an expression looks at a window."""
        found: bool = expression.containsPattern(self._window)
        return found

    def has_subquery(self, expression: Node) -> bool:
        """Whether there is a query in an expression."""
        found: bool = expression.containsPattern(self._subquery)
        return found


def refers(expression: Node) -> set[int]:
    """The attributes that an expression refers to, by their identities."""
    return {identity(a) for a in items(expression.references().toSeq())}


def tree(expression: Node) -> Iterator[Node]:
    """An expression and everything in it."""
    yield expression
    for child in children_of(expression):
        yield from tree(child)


def foreign_calls(expression: Node) -> set[str]:
    """What an expression calls that cannot be looked into, in words: `the Python function "price"`."""
    found = set()
    for node in tree(expression):
        if kind(node) in _FOREIGN:
            found.add(f'{_FOREIGN[kind(node)]} "{_name(node)}"')
    return found


def _name(call: Node) -> str:
    if kind(call) == "ScalaUDF":
        named = call.udfName()
        return str(named.get()) if named.isDefined() else "UDF"
    return str(call.name()) if kind(call).startswith("Python") else str(call.prettyName())


def made_by(expression: Node) -> set[str]:
    """The functions that make the values of an expression which refers to no column; none if it is constant."""
    found = set()
    for node in tree(expression):
        if kind(node) in ("Literal", "Alias", "Cast", "AggregateExpression"):
            continue
        clock = kind(node).startswith("Current") or kind(node) == "Now"
        if clock or not node.deterministic() or not node.foldable():
            found.add(str(node.prettyName()))
    return found


def subqueries(expression: Node) -> list[Node]:
    """The plans of the queries in an expression, but for those in such plans themselves."""
    return [node.plan() for node in tree(expression) if kind(node) in _SUBQUERIES]


def window_functions(expression: Node) -> tuple[list[Node], list[Node]]:
    """The functions over windows in an expression, and the specifications of their windows."""
    found = [node for node in tree(expression) if kind(node) == "WindowExpression"]
    return [node.windowFunction() for node in found], [node.windowSpec() for node in found]


def view_name(node: Node) -> str | None:
    """The temporary view that a node stands for, if it does."""
    if kind(node) != "View" or not node.isTempView():
        return None
    name: str = node.desc().identifier().table()
    return name


def input_name(relation: Node, root: str = "") -> str:
    """What a relation reads, in one line that may be stored and shown; paths below `root` are shown from there."""
    found = _input_name(relation)
    return found.replace(f"{root}/", "") if root else found


def _input_name(relation: Node) -> str:
    if is_source(relation):
        return describe(relation)
    name = kind(relation)
    if name in _FROM_NOWHERE:
        return _FROM_NOWHERE[name]
    if name == "LogicalRelation":
        table = relation.catalogTable()
        if table.isDefined():
            return str(table.get().identifier().unquotedString())
        return _place(relation) or "a relation"
    if name in ("DataSourceV2Relation", "StreamingDataSourceV2Relation"):
        return str(relation.name())
    return name


def _place(relation: Node) -> str | None:
    inner = relation.relation()
    if inner.getClass().getSimpleName() != "HadoopFsRelation":
        return str(inner.getClass().getSimpleName())
    return ", ".join(str(path) for path in items(inner.location().rootPaths())) or None
