"""The datasets a flow's function reads, found from its code without running it.

`spark.table`, `spark.read.table`, `spark.readStream.table`, `spark.sql` and `dp.read` / `dlt.read_stream` are looked
for in the function and in the project's functions that it calls.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

from anabranch.load.scopes import LocalFunction, Scope, Values
from anabranch.load.source import plain_function
from anabranch.load.sql_names import HOLE, sql_names
from anabranch.load.standin import StandIn
from anabranch.load.values import callees, comprehension_turns, evaluate, scope_of_call, turns

_READERS = ("read", "readStream", "read_stream")
_MOST_FUNCTIONS = 300  # followed from one flow; beyond it the inputs count as not known


@dataclass(frozen=True, slots=True)
class Inputs:
    """Names as written, in the order met; `known` is False when some are computed."""

    names: tuple[str, ...]
    known: bool


def find_inputs(query: Callable[..., Any], is_ours: Callable[[str], bool]) -> Inputs:
    """The datasets that `query` reads; calls are followed into files that `is_ours`."""
    finder = _Finder(is_ours)
    function = plain_function(query)
    scope = (
        scope_of_call(function, query.__self__ if isinstance(query, MethodType) else None, None, None)
        if function
        else None
    )
    if scope is None:
        return Inputs((), False)
    if isinstance(query, functools.partial):
        names = [item.arg for item in (*scope.node.args.posonlyargs, *scope.node.args.args)]
        scope.given |= {name: (value,) for name, value in zip(names, query.args, strict=False)}
        scope.given |= {name: (value,) for name, value in query.keywords.items()}
    try:
        finder.function(scope)
    except RecursionError:
        finder.known = False
    return Inputs(tuple(finder.names), finder.known)


class _Finder:
    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self.is_ours = is_ours
        self.names: dict[str, None] = {}
        self.known = True
        self.visited: set[tuple[Any, ...]] = set()

    def function(self, scope: Scope) -> None:
        body: Iterable[ast.AST] = [scope.node.body] if isinstance(scope.node, ast.Lambda) else scope.node.body
        for statement in body:
            self._look(statement, scope)

    def _look(self, node: ast.AST, scope: Scope) -> None:
        """Look at an expression or statement and all below it."""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._look_at_local_function(node, scope)
            return
        if isinstance(node, ast.Lambda):
            inside = scope_of_call(LocalFunction(node, scope), None, None, scope)
            if inside is not None:
                self.function(inside)
            return
        if isinstance(node, ast.Call):
            self._look_at_call(node, scope)
            return
        if isinstance(node, ast.For | ast.AsyncFor):
            self._look_at_turns(node.body, turns(node.target, node.iter, node.body, scope), scope)
            for part in (node.iter, *node.orelse):
                self._look(part, scope)
            return
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            self._look_at_turns(parts, comprehension_turns(node.generators, scope), scope)
            for generator in node.generators:
                self._look(generator.iter, scope)
            return
        if isinstance(node, ast.Assign) and _is_alias(node):
            return
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            self._look_at_mention(node, scope)
        for child in ast.iter_child_nodes(node):
            self._look(child, scope)

    def _look_at_turns(self, parts: Iterable[ast.AST], found: list[Scope] | None, scope: Scope) -> None:
        """The body of a loop, for each of its turns; at once if these are not known."""
        for turn in [scope] if found is None else found:
            for part in parts:
                self._look(part, turn)

    def _look_at_local_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        """A function defined here is looked at where it is called or mentioned: its arguments are known there."""
        for part in (*node.decorator_list, *node.args.defaults, *(item for item in node.args.kw_defaults if item)):
            self._look(part, scope)

    def _look_at_mention(self, node: ast.Name | ast.Attribute, scope: Scope) -> None:
        """A function handed to something else, as in `df.transform(clean)` or `map(spark.table, names)`."""
        reader = _unaliased(node, scope)
        if isinstance(reader, ast.Attribute) and reader.attr in ("table", "sql") and self._is_reading(reader, scope):
            self.known = self.known and evaluate(reader, scope) is not None
            return
        self._follow(node, None, scope)

    def _look_at_call(self, call: ast.Call, scope: Scope) -> None:
        callee = _unaliased(call.func, scope)
        mapped = _mapped(call, scope)
        if isinstance(callee, ast.Attribute) and callee.attr == "table" and self._is_reading(callee, scope):
            self._take_names(_argument(call, "tableName"), scope)
        elif isinstance(callee, ast.Attribute) and callee.attr == "sql" and self._is_reading(callee, scope):
            self._take_query(_argument(call, "sqlQuery"), scope)
        elif isinstance(callee, ast.Attribute) and callee.attr in _READERS and _is_pipelines(callee.value, scope):
            self._take_names(_argument(call, "name"), scope)
        elif mapped is not None and self._is_reading(mapped, scope):
            self._take_names(call.args[1], scope, each=True)
            return
        else:
            self._follow(call.func, call, scope)
        if isinstance(call.func, ast.Attribute):
            self._look(call.func.value, scope)
        elif not isinstance(call.func, ast.Name):
            self._look(call.func, scope)
        for part in (*call.args, *(word.value for word in call.keywords)):
            self._look(part, scope)

    def _is_reading(self, node: ast.Attribute, scope: Scope) -> bool:
        """Whether the owner of `.table` or `.sql` can be Spark: it is, or it is not known what it is."""
        owner: ast.AST = node.value
        while isinstance(owner, ast.expr):
            values = evaluate(owner, scope)
            if values is not None:
                return any(_is_spark(value) for value in values)
            if isinstance(owner, ast.Attribute | ast.Subscript):
                owner = owner.value
            elif isinstance(owner, ast.Call):
                owner = owner.func
            else:
                break
        return True

    def _take_names(self, node: ast.expr | None, scope: Scope, each: bool = False) -> None:
        if node is None:
            return
        values = evaluate(node, scope)
        if each and values is not None:
            values = tuple(item for value in values if isinstance(value, list | tuple | set) for item in value)
        for value in values or ():
            if isinstance(value, str) and value and HOLE not in value:
                self.names[value] = None
            else:
                self.known = False
        self.known = self.known and values is not None

    def _take_query(self, node: ast.expr | None, scope: Scope) -> None:
        values = evaluate(node, scope) if node is not None else ()
        self.known = self.known and values is not None and all(isinstance(value, str) for value in values)
        for value in values or ():
            if isinstance(value, str):
                found = sql_names(value)
                self.names.update((name, None) for name in found.names)
                self.known = self.known and found.known

    def _follow(self, node: ast.expr, call: ast.Call | None, scope: Scope) -> None:
        for callee, bound in callees(node, scope):
            if isinstance(callee, FunctionType) and not self.is_ours(callee.__code__.co_filename):
                continue
            inside = scope_of_call(callee, bound, call, scope)
            if inside is None or len(self.visited) >= _MOST_FUNCTIONS:
                self.known = False
                continue
            visit = (inside.node, *((name, _identity(values)) for name, values in inside.given.items()))
            if visit not in self.visited:
                self.visited.add(visit)
                self.function(inside)


def _identity(values: Values) -> Any:
    """The same for the same text or number, else only for the same object; comparing could run the user's code."""
    return None if values is None else tuple(v if type(v) in (str, int) else id(v) for v in values)


def _is_spark(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return False
    owner = value if isinstance(value, type) else type(value)
    return owner is StandIn or owner.__module__.startswith("pyspark.")


def _unaliased(node: ast.expr, scope: Scope) -> ast.expr:
    """`read` stands for `spark.readStream.table` after `read = spark.readStream.table`."""
    if not isinstance(node, ast.Name):
        return node
    while node.id not in scope.bindings and scope.outer is not None:
        scope = scope.outer
    bindings = scope.bindings.get(node.id, [])
    only = bindings[0].value if len(bindings) == 1 and not bindings[0].steps else None
    return only if isinstance(only, ast.Attribute) else node


def _is_alias(node: ast.Assign) -> bool:
    return isinstance(node.value, ast.Attribute) and all(isinstance(target, ast.Name) for target in node.targets)


def _mapped(call: ast.Call, scope: Scope) -> ast.Attribute | None:
    """`spark.table` in `map(spark.table, names)`."""
    function = evaluate(call.func, scope) if len(call.args) == 2 else None
    if not function or function[0] is not map:
        return None
    reader = _unaliased(call.args[0], scope)
    return reader if isinstance(reader, ast.Attribute) and reader.attr == "table" else None


def _is_pipelines(node: ast.expr, scope: Scope) -> bool:
    values = evaluate(node, scope)
    if values is None:
        return isinstance(node, ast.Name) and node.id in ("dp", "dlt", "sdp")
    return any(isinstance(value, ModuleType) and value.__name__.endswith(("pipelines", "dlt")) for value in values)


def _argument(call: ast.Call, word: str) -> ast.expr | None:
    """The first argument, given by place or by name."""
    if call.args:
        return call.args[0]
    return next((item.value for item in call.keywords if item.arg == word), None)
