"""The names that a function's body can see, before anything is computed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any

from anabranch.load.source import FunctionNode

Values = tuple[Any, ...] | None  # the values something can have; None stands for "not known"


@dataclass(frozen=True, slots=True)
class LocalFunction:
    """A function defined inside the one that is looked at."""

    node: FunctionNode
    scope: Scope


@dataclass(frozen=True, slots=True)
class Binding:
    """What a local name is bound to: an expression, its items (`steps` has None), or one item of those (an index)."""

    value: ast.expr | LocalFunction | None
    steps: tuple[int | None, ...] = ()


@dataclass(slots=True, eq=False)
class Scope:
    """The names that a function's body can see, or one turn of a loop in it."""

    node: FunctionNode
    given: dict[str, Values]  # parameters, or the variables of the loop
    outer: Scope | None = None
    depth: int = 0  # of calls followed
    variables: dict[str, Any] = field(default_factory=dict)  # those of the file, and of closures
    bindings: dict[str, list[Binding]] = field(default_factory=dict)  # names assigned inside
    resolving: set[str] = field(default_factory=set)
    computed: dict[ast.expr, Values] = field(default_factory=dict)

    def bind(self, body: Iterable[ast.AST]) -> Scope:
        """Note every name that is assigned in `body`."""
        for statement in body:
            for name, binding in _bindings(statement, self):
                self.bindings.setdefault(name, []).append(binding)
        return self


def one_turn(body: Iterable[ast.AST], given: dict[str, Values], outer: Scope) -> Scope:
    """One turn of a loop: names assigned only inside it have the value of this turn."""
    scope = Scope(outer.node, given, outer, outer.depth).bind(body)
    scope.bindings = {name: found for name, found in scope.bindings.items() if len(found) == _count(name, outer)}
    return scope


def _count(name: str, scope: Scope | None) -> int:
    while scope is not None and name not in scope.bindings:
        scope = scope.outer
    return len(scope.bindings[name]) if scope else 0


def variables_of(function: FunctionType) -> dict[str, Any]:
    """What a function sees outside itself: its file's variables, and its closure's in front of them."""
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    closed = {name: cell.cell_contents for name, cell in zip(names, cells, strict=True) if _is_filled(cell)}
    return {**function.__globals__, **closed}


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # assigned further down
        return False


def _bindings(node: ast.AST, scope: Scope) -> Iterator[tuple[str, Binding]]:
    """Every name bound in a statement or below it, but not inside functions defined there."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name, Binding(LocalFunction(node, scope))
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target, node.value, ())
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from _targets(node.target, node.value, ())
    elif isinstance(node, ast.AugAssign):
        yield from _targets(node.target, None, ())
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from _targets(node.target, node.iter, (None,))
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _targets(node.optional_vars, None, ())
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name.partition(".")[0], Binding(None)) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _bindings(child, scope)


def _targets(target: ast.expr, value: ast.expr | None, steps: tuple[int | None, ...]) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, ast.Name):
        yield target.id, Binding(value, steps)
    elif isinstance(target, ast.Tuple | ast.List):
        starred = any(isinstance(item, ast.Starred) for item in target.elts)
        for index, item in enumerate(target.elts):
            yield from _targets(item, None if starred else value, (*steps, index))
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value, None, ())
