"""The nodes of Spark's plans and expressions, and what they say of themselves, through py4j.

They never change, so each is asked a question once: every answer is a message to the JVM and back, and the plan of a
project with few flows is asked thousands of questions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType, _parse_datatype_json_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A node of a plan, an expression or an attribute: an object of the JVM.
Node = Any


def said(node: Any, what: str, ask: Callable[[Any], Any]) -> Any:
    """What an object that never changes says of itself, asked once."""
    known: dict[str, Any] = node.__dict__.setdefault("_said_to_anabranch", {})
    if what not in known:
        known[what] = ask(node)
    return known[what]


def kind(node: Node) -> str:
    """The class of a node of a plan or of an expression, without its package."""
    name: str = said(node, "kind", lambda n: n.productPrefix())
    return name


def items(seq: Any) -> list[Any]:
    """A Scala sequence as a list."""
    return [seq.apply(i) for i in range(seq.size())]


def children_of(node: Node) -> list[Node]:
    """The nodes right below a node."""
    found: list[Node] = said(node, "children", lambda n: items(n.children()))
    return found


def queries_in(plan: Node) -> list[Node]:
    """The queries inside the expressions of a node."""
    found: list[Node] = said(plan, "subqueries", lambda n: items(n.subqueries()))
    return found


def identity(attribute: Node) -> int:
    """The number by which plans know an attribute or an alias, whatever it is called."""
    number: int = said(attribute, "identity", lambda a: a.exprId().id())
    return number


def type_of(attribute: Node) -> DataType:
    """The type of an attribute or expression, as Python has it."""
    return _parse_datatype_json_string(attribute.dataType().json())


def analyzed(frame: DataFrame) -> Node:
    """The plan of a frame with every name resolved."""
    return said(frame, "analyzed", lambda f: f._jdf.queryExecution().analyzed())  # noqa: SLF001


def nodes(plan: Node) -> Iterator[Node]:
    """Every node of a plan and of the queries inside its expressions, top down and left to right."""
    yield plan
    for node in (*children_of(plan), *queries_in(plan)):
        yield from nodes(node)
