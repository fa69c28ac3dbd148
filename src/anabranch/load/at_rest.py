"""Whether the code of a flow reads tables as they are, and no stream."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from types import FunctionType
from typing import Any

from anabranch.load.source import function_node, plain_function
from anabranch.load.standin import StandIn

_STREAMING = {"readStream", "read_stream"}
_AT_REST = {"read", "table", "sql"}


def reads_at_rest(query: Callable[..., Any]) -> bool:
    """Whether a function is plain to read tables at rest only; one that calls others of the project is not plain."""
    function = plain_function(query)
    node = function_node(function.__code__) if function else None
    if function is None or node is None:
        return False
    body = node.body if isinstance(node.body, list) else [node.body]
    parts = [each for statement in body for each in ast.walk(statement)]
    names = {each.attr for each in parts if isinstance(each, ast.Attribute)}
    called = {each.func.id for each in parts if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    texts = [each.value for each in parts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if (names | called) & _STREAMING or any("stream" in text.lower() for text in texts):
        return False
    return bool((names | called) & _AT_REST) and all(_reads_nothing(function, name) for name in called - _AT_REST)


def _reads_nothing(function: FunctionType, name: str) -> bool:
    """Whether a name stands for a function of Spark or of Python itself."""
    found = function.__globals__.get(name, getattr(builtins, name, None))
    module = str(getattr(found, "__module__", ""))
    return isinstance(found, StandIn) or module.startswith("pyspark.") or module == "builtins"
