"""The values an expression of a user's function can have, found without running it.

Variables of the file, closures, default arguments and parameters of followed calls are real objects; from there a small
part of Python is computed: text, f-strings, lookups, loops over literal collections. A variable may have several
possible values (a loop, both sides of a condition). `None` stands for "not known", HOLE for an unknown piece of a text.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any

from anabranch.load.operations import (
    MOST_VALUES,
    applied,
    each,
    is_text,
    items,
    materialised,
    member,
    plain,
    simple,
    union,
)
from anabranch.load.scopes import Binding, LocalFunction, Scope, Values, one_turn, variables_of
from anabranch.load.source import FunctionNode, function_node, plain_function, signature_defaults
from anabranch.load.sql_names import HOLE

_DEEPEST = 8  # calls followed into each other
_FUNCTIONS: tuple[Any, ...] = (str, int, sorted, list, tuple, set, range, enumerate, zip, reversed, dict, len, repr)
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: bool(a == b),
    ast.NotEq: lambda a, b: bool(a != b),
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_METHODS: dict[type, list[str]] = {
    str: [
        *("lower", "upper", "title", "capitalize", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix"),
        *("replace", "format", "join", "split"),
    ],
    dict: ["items", "keys", "values", "get", "copy"],
    list: ["copy"],
}


def look_up(name: str, scope: Scope) -> Values:
    """What a name can stand for."""
    if name in scope.bindings:
        assigned = _local(name, scope)
        return union([assigned, scope.given[name]]) if name in scope.given else assigned
    if name in scope.given:
        return scope.given[name]
    if scope.outer is not None:
        return look_up(name, scope.outer)
    if name in scope.variables:
        return (scope.variables[name],)
    return (getattr(builtins, name),) if hasattr(builtins, name) else None


def _local(name: str, scope: Scope) -> Values:
    if name in scope.resolving:
        return None
    scope.resolving.add(name)
    try:
        return union([_bound_value(binding, scope) for binding in scope.bindings[name]])
    finally:
        scope.resolving.discard(name)


def evaluate(node: ast.expr, scope: Scope) -> Values:
    """The possible values of an expression."""
    if node not in scope.computed:
        compute = _COMPUTE.get(type(node))
        values = compute(node, scope) if compute else None
        scope.computed[node] = values if values is None or len(values) <= MOST_VALUES else None
    return scope.computed[node]


def callees(node: ast.expr, scope: Scope) -> list[tuple[FunctionType | LocalFunction, Any]]:
    """The Python functions that an expression can stand for, each with what it is bound to, if anything."""
    found: list[tuple[FunctionType | LocalFunction, Any]] = []
    for value in evaluate(node, scope) or ():
        if isinstance(value, LocalFunction):
            found.append((value, None))
        elif function := plain_function(value):
            found.append((function, value.__self__ if isinstance(value, MethodType) else None))
    return found


def scope_of_call(
    callee: FunctionType | LocalFunction, bound: Any, call: ast.Call | None, scope: Scope | None
) -> Scope | None:
    """The scope of a function's body with its parameters as `call` gives them; without a call they are not known."""
    depth = scope.depth + 1 if scope else 0
    node = callee.node if isinstance(callee, LocalFunction) else function_node(callee.__code__)
    if node is None or depth > _DEEPEST:
        return None
    given = _parameters(callee, node)
    names = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
    if bound is not None and names:
        given[names.pop(0)] = (bound,)
    if call is not None and scope is not None:
        for name, argument in zip(names, call.args, strict=False):
            if isinstance(argument, ast.Starred):
                break
            given[name] = evaluate(argument, scope)
        given |= {word.arg: evaluate(word.value, scope) for word in call.keywords if word.arg in given}
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    if isinstance(callee, LocalFunction):
        return Scope(node, given, callee.scope, depth).bind(body)
    return Scope(node, given, None, depth, variables_of(callee)).bind(body)


def turns(target: ast.expr, collection: ast.expr, body: list[ast.stmt], scope: Scope) -> list[Scope] | None:
    """The turns of a loop over a known collection, each with the loop's variables as they are then."""
    lists = applied(items, [evaluate(collection, scope)])
    if lists is None or len(lists) != 1 or len(lists[0]) > MOST_VALUES:
        return None
    return [one_turn(body, _unpacked(target, item), scope) for item in lists[0]]


def _unpacked(target: ast.expr, item: Any) -> dict[str, Values]:
    if isinstance(target, ast.Name):
        return {target.id: (item,)}
    if not isinstance(target, ast.Tuple | ast.List):
        return {}
    parts = applied(items, [(item,)])
    if parts is None or len(parts[0]) != len(target.elts):
        return {node.id: None for node in ast.walk(target) if isinstance(node, ast.Name)}
    return {k: v for part, at in zip(target.elts, parts[0], strict=True) for k, v in _unpacked(part, at).items()}


def comprehension_turns(generators: list[ast.comprehension], scope: Scope) -> list[Scope] | None:
    """The turns of a comprehension; those that its conditions are known to leave out are left out."""
    scopes = [scope]
    for generator in generators:
        inner: list[Scope] = []
        for outer in scopes:
            found = turns(generator.target, generator.iter, [], outer)
            if found is None:
                return None
            inner += [turn for turn in found if all(truth(test, turn) is not False for test in generator.ifs)]
        scopes = inner
    return scopes if len(scopes) <= MOST_VALUES else None


def truth(test: ast.expr, scope: Scope) -> bool | None:
    """Whether a condition holds, None if that is not known."""
    values = applied(lambda value: bool(simple(value)), [evaluate(test, scope)])
    return values[0] if values and len(set(values)) == 1 else None


def _parameters(callee: FunctionType | LocalFunction, node: FunctionNode) -> dict[str, Values]:
    """Every parameter with its default value, not known if it has none."""
    arguments = node.args
    ordered = [*arguments.posonlyargs, *arguments.args]
    every = [*ordered, *arguments.kwonlyargs, *(item for item in (arguments.vararg, arguments.kwarg) if item)]
    given: dict[str, Values] = {item.arg: None for item in every}
    if isinstance(callee, FunctionType):
        return given | {name: (value,) for name, value in signature_defaults(callee).items()}
    defaults: Iterable[tuple[ast.arg, ast.expr | None]] = [
        *zip(reversed(ordered), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=False),
    ]
    return given | {item.arg: evaluate(default, callee.scope) for item, default in defaults if default is not None}


def _bound_value(binding: Binding, scope: Scope) -> Values:
    if isinstance(binding.value, LocalFunction):
        return (binding.value,)
    values = evaluate(binding.value, scope) if binding.value is not None else None
    for step in binding.steps:
        values = each(values) if step is None else applied(lambda value, at=step: items(value)[at], [values])
    return values


# Expressions


def _joined(node: ast.JoinedStr, scope: Scope) -> Values:
    return applied(lambda *parts: "".join(parts), [_text_part(part, scope) for part in node.values])


def _text_part(part: ast.expr, scope: Scope) -> Values:
    if not isinstance(part, ast.FormattedValue):
        return evaluate(part, scope)
    convert = {ord("r"): repr, ord("a"): ascii}.get(part.conversion, lambda value: value)
    spec = evaluate(part.format_spec, scope) if part.format_spec else ("",)
    return applied(lambda value, how: format(plain(convert(value)), how), [evaluate(part.value, scope), spec]) or (
        HOLE,
    )


def _operation(node: ast.BinOp, scope: Scope) -> Values:
    left, right = evaluate(node.left, scope), evaluate(node.right, scope)
    if isinstance(node.op, ast.Add):
        if is_text(left) != is_text(right) and None in (left, right):
            left, right = left or (HOLE,), right or (HOLE,)
        return applied(lambda a, b: simple(a) + simple(b), [left, right])
    if isinstance(node.op, ast.Mod) and is_text(left):
        return applied(lambda text, values: text % simple(values), [left, right or (HOLE,)])
    return None


def _attribute(node: ast.Attribute, scope: Scope) -> Values:
    return applied(lambda owner: member(owner, node.attr), [evaluate(node.value, scope)])


def _subscript(node: ast.Subscript, scope: Scope) -> Values:
    values = [evaluate(node.value, scope), evaluate(node.slice, scope)]
    return applied(lambda owner, key: simple(owner)[key], values)


def _collection(make: Callable[[Iterable[Any]], Any]) -> Callable[[Any, Scope], Values]:
    def compute(node: ast.List | ast.Tuple | ast.Set, scope: Scope) -> Values:
        return applied(lambda *items: make(items), [evaluate(item, scope) for item in node.elts])

    return compute


def _dict(node: ast.Dict, scope: Scope) -> Values:
    if any(key is None for key in node.keys):
        return None
    keys = [evaluate(key, scope) for key in node.keys if key is not None]
    values = [evaluate(value, scope) for value in node.values]
    count = len(keys)
    return applied(lambda *items: dict(zip(items[:count], items[count:], strict=True)), [*keys, *values])


def _sides(node: ast.IfExp, scope: Scope) -> list[ast.expr]:
    holds = truth(node.test, scope)
    return [node.body, node.orelse] if holds is None else [node.body if holds else node.orelse]


def _comparison(node: ast.Compare, scope: Scope) -> Values:
    compare = _COMPARE.get(type(node.ops[0])) if len(node.ops) == 1 else None
    sides = [evaluate(node.left, scope), evaluate(node.comparators[0], scope)]
    return applied(lambda a, b: compare(simple(a), simple(b)), sides) if compare else None


def _negation(node: ast.UnaryOp, scope: Scope) -> Values:
    if isinstance(node.op, ast.Not):
        return applied(lambda value: not simple(value), [evaluate(node.operand, scope)])
    if isinstance(node.op, ast.USub):
        return applied(lambda value: -simple(value), [evaluate(node.operand, scope)])
    return None


def _comprehended(node: ast.ListComp | ast.SetComp | ast.GeneratorExp, scope: Scope) -> Values:
    """The list that a comprehension gives, if it is known for every turn whether it is in."""
    found = comprehension_turns(node.generators, scope)
    tests = [test for generator in node.generators for test in generator.ifs]
    if found is None or any(truth(test, turn) is None for test in tests for turn in found):
        return None
    return applied(lambda *values: list(values), [evaluate(node.elt, turn) for turn in found])


def _call(node: ast.Call, scope: Scope) -> Values:
    if any(isinstance(item, ast.Starred) for item in node.args) or any(word.arg is None for word in node.keywords):
        return None
    words = [word.arg for word in node.keywords if word.arg]
    arguments = [evaluate(item, scope) for item in (*node.args, *(word.value for word in node.keywords))]

    def run(function: Callable[..., Any], *given: Any) -> Any:
        plain = len(given) - len(words)
        return materialised(function(*given[:plain], **dict(zip(words, given[plain:], strict=True))))

    if isinstance(node.func, ast.Attribute):
        owners = evaluate(node.func.value, scope)
        method = node.func.attr
        if owners and all(method in _METHODS.get(type(owner), ()) for owner in owners):
            if method == "format":
                arguments = [values or (HOLE,) for values in arguments]
            return applied(lambda owner, *given: run(getattr(owner, method), *given), [owners, *arguments])
    function = evaluate(node.func, scope)
    if function and len(function) == 1 and any(function[0] is known for known in _FUNCTIONS):
        return applied(lambda *given: run(function[0], *(simple(item) for item in given)), arguments)
    return _returned(node, scope)


def _returned(node: ast.Call, scope: Scope) -> Values:
    """What a function gives that only returns an expression."""
    found = callees(node.func, scope)
    results: list[Values] = []
    for callee, bound in found:
        inside = scope_of_call(callee, bound, node, scope)
        result = _only_result(inside.node) if inside else None
        results.append(evaluate(result, inside) if inside and result else None)
    return union(results) if results else None


def _only_result(node: FunctionNode) -> ast.expr | None:
    if isinstance(node, ast.Lambda):
        return node.body
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None


_COMPUTE: dict[type[ast.AST], Callable[[Any, Scope], Values]] = {
    ast.Constant: lambda node, _: (node.value,),
    ast.Name: lambda node, scope: look_up(node.id, scope),
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.JoinedStr: _joined,
    ast.BinOp: _operation,
    ast.IfExp: lambda node, scope: union([evaluate(side, scope) for side in _sides(node, scope)]),
    ast.Compare: _comparison,
    ast.UnaryOp: _negation,
    ast.ListComp: _comprehended,
    ast.SetComp: _comprehended,
    ast.GeneratorExp: _comprehended,
    ast.List: _collection(list),
    ast.Tuple: _collection(tuple),
    ast.Set: _collection(set),
    ast.Dict: _dict,
    ast.Call: _call,
    ast.NamedExpr: lambda node, scope: evaluate(node.value, scope),
}
