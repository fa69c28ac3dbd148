"""Flow functions see their variables as they were when they were declared.

Spark calls a flow's function the moment it is declared; here it is called later, when the pipeline starts. A function
made in a loop would then find the loop's last value:

    for region in ["eu", "us"]:
        @dp.table(name=f"orders_{region}")
        def orders():
            return spark.readStream.table("orders").where(f"region = '{region}'")

So what the function could see is noted at its declaration, and where a variable has moved on by the end of loading, the
function is given the value it had. Names that were not there yet, such as a function defined further down, stay as they
are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """The values of the variables that a function's code names."""

    variables: dict[str, Any]
    cells: dict[str, Any]


def seen_by(query: Callable[..., Any]) -> Seen:
    """What `query` would see if it were called now."""
    function = _function(query)
    if function is None:
        return Seen({}, {})
    names = set(_names(function.__code__))
    variables = {name: function.__globals__[name] for name in names if name in function.__globals__}
    return Seen(variables, dict(_filled_cells(function)))


def as_seen(query: Callable[..., Any], seen: Seen) -> Callable[..., Any]:
    """`query`, or a copy of it in which the variables that have changed since are as `seen`."""
    function = _function(query)
    if function is None:
        return query
    now = seen_by(function)
    moved = {name: value for name, value in seen.variables.items() if now.variables.get(name) is not value}
    moved_cells = {name: value for name, value in seen.cells.items() if now.cells.get(name) is not value}
    if not moved and not moved_cells:
        return query
    cells = [
        CellType(moved_cells[name]) if name in moved_cells else cell
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    ]
    there = {**function.__globals__, **moved} if moved else function.__globals__
    copy = FunctionType(function.__code__, there, function.__name__, function.__defaults__, tuple(cells) or None)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    vars(copy).update(vars(function))
    return copy


def _function(query: Callable[..., Any]) -> FunctionType | None:
    """The plain function that `query` is; wrapped and partial ones are left as they are."""
    return query if isinstance(query, FunctionType) else None


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _filled_cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable is assigned further down
            continue
