"""From a function or a frame back to the user's file."""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

from anabranch.core.where import Where

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_OURS = str(Path(__file__).parent.parent) + os.sep


def calling_place() -> Where:
    """Where the user's file called into this package."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return Where(frame.f_code.co_filename, frame.f_lineno) if frame else Where("")


def plain_function(query: Any) -> FunctionType | None:
    """The Python function inside a bound, partial or decorated one.

    >>> plain_function(functools.partial(calling_place)).__name__
    'calling_place'
    """
    for _ in range(50):
        if isinstance(query, functools.partial):
            query = query.func
        elif isinstance(query, MethodType):
            query = query.__func__
        elif hasattr(type(query), "__wrapped__") or "__wrapped__" in getattr(query, "__dict__", {}):
            query = query.__wrapped__
        else:
            break
    return query if isinstance(query, FunctionType) else None


def definition_of(query: Callable[..., Any]) -> Where | None:
    """The line of the `def` of a flow's function, None if it has none."""
    function = plain_function(query)
    if function is None:
        return None
    node = function_node(function.__code__)
    return Where(function.__code__.co_filename, node.lineno if node else function.__code__.co_firstlineno)


def function_node(code: CodeType) -> FunctionNode | None:
    """The syntax tree of the function that `code` was compiled from; None if its file is not there."""
    found = [node for node in _functions(code.co_filename, code.co_firstlineno) if _name(node) == code.co_name]
    if len(found) > 1:  # several lambdas on a line: the innermost one that all the code's positions fall in
        places = [(line, column) for line, _, column, end in code.co_positions() if line and column is not None and end]
        found = [node for node in found if all(_holds(node, place) for place in places)]
        found.sort(key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    return found[0] if found else None


def _functions(file: str, line: int) -> list[FunctionNode]:
    try:
        status = Path(file).stat()
    except OSError:
        return []
    return _functions_by_line(file, status.st_mtime_ns, status.st_size).get(line, [])


@functools.lru_cache(maxsize=256)
def _functions_by_line(file: str, _changed: int, _size: int) -> dict[int, list[FunctionNode]]:
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return {}
    by_line: dict[int, list[FunctionNode]] = {}
    for node in _walk_functions(tree):
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        by_line.setdefault(decorators[0].lineno if decorators else node.lineno, []).append(node)
    return by_line


def _walk_functions(tree: ast.AST) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(tree) if isinstance(node, FunctionNode))


def _name(node: FunctionNode) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def _holds(node: FunctionNode, place: tuple[int, int]) -> bool:
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return (node.lineno, node.col_offset) <= place <= end


def signature_defaults(function: FunctionType) -> dict[str, Any]:
    """The default values of a function's parameters by name."""
    parameters = inspect.signature(function, follow_wrapped=False).parameters
    return {n: p.default for n, p in parameters.items() if p.default is not inspect.Parameter.empty}
