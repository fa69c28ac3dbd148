"""What is behind the decorators of `anabranch.pipelines`: they declare at once, or return what will."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from anabranch.core.declarations import Kind
from anabranch.load.declare import Arguments, declare_dataset, declare_flow
from anabranch.load.registry import active_registry
from anabranch.load.source import calling_place, definition_of

Query = TypeVar("Query", bound=Callable[..., Any])

VIEW_ARGUMENTS = ("name", "comment", "spark_conf")
STORED_ARGUMENTS = (
    "comment",
    "table_properties",
    "partition_cols",
    "cluster_by",
    "schema",
    "format",
    "path",
    "observe",
)
TABLE_ARGUMENTS = ("name", "spark_conf", *STORED_ARGUMENTS)
#: Arguments of Databricks that say something about its catalogue or its planner, with why they have no effect here.
ELSEWHERE = {
    "private": "tables are folders, not entries of a catalogue",
    "temporary": "tables are folders, not entries of a catalogue",
    "row_filter": "who may read which row is for the system that serves the table",
    "cluster_by_auto": "tables are not clustered",
    "refresh_policy": "how a view is computed is decided by its plan",
}


def taken_arguments(
    call: str, arguments: Mapping[str, Any], known: tuple[str, ...], elsewhere: Mapping[str, str] | None = None
) -> Arguments:
    """The arguments of the call that the user's file makes now; unknown ones are reported."""
    where = calling_place()
    taken = Arguments(call, where, active_registry(call, where))
    taken.unknown((name for name in arguments if name not in known and name not in (elsewhere or {})), known)
    return taken


def ignored_of(arguments: Mapping[str, Any], elsewhere: Mapping[str, str] = ELSEWHERE) -> tuple[str, ...]:
    """The arguments that were given and have no effect, each with why."""
    given = (name for name in elsewhere if arguments.get(name) not in (None, False))
    return tuple(f"{name} ({elsewhere[name]})" for name in given)


def dataset_decorator(call: str, kind: Kind, query: Any, arguments: dict[str, Any], known: tuple[str, ...]) -> Any:
    """A dataset and the flow that feeds it; the bare form declares at once, the called form returns what will."""
    query = arguments.pop("query_function", query)
    elsewhere = ELSEWHERE if known is TABLE_ARGUMENTS else {}
    taken = taken_arguments(call, arguments, known, elsewhere)

    def declare(query: Query) -> Query:
        if not taken.query(query):
            return query
        name = arguments.get("name") or _name_of(query)
        said = {key: arguments[key] for key in STORED_ARGUMENTS if key in arguments and key in known}
        where = definition_of(query) or taken.where
        declared = declare_dataset(taken, kind, name, where, ignored=ignored_of(arguments, elsewhere), **said)
        if declared:
            declare_flow(taken, declared, declared, query, arguments.get("spark_conf"))
        taken.registry.feeds(query, declared)
        return query

    if isinstance(query, str):
        hint = f'write @{call}(name="{query}")'
        taken.fault("PROJECT_BAD_ARGUMENT", "the arguments are given by name only", hint)
        arguments.setdefault("name", query)
        return declare
    return declare if query is None else declare(query)


def flow_decorator(
    call: str, mode: Literal["append", "update"], misplaced: Any, arguments: dict[str, Any], known: tuple[str, ...]
) -> Any:
    """A flow into a dataset that is declared elsewhere."""
    taken = taken_arguments(call, arguments, known)

    def declare(query: Query) -> Query:
        if taken.query(query):
            name = arguments.get("name") or _name_of(query)
            said = {key: arguments[key] for key in ("comment", "once") if key in arguments and key in known}
            target = arguments.get("target")
            settings = arguments.get("spark_conf")
            taken.registry.feeds(query, declare_flow(taken, name, target, query, settings, mode=mode, **said))
        return query

    if misplaced is None:
        return declare
    if not callable(misplaced):
        hint = f'write @{call}(target="{misplaced}")'
        taken.fault("PROJECT_BAD_ARGUMENT", "the arguments are given by name only", hint)
        return declare
    return declare(misplaced)


def batch_sink_decorator(call: str, name: Any, arguments: dict[str, Any]) -> Any:
    """A sink that is a function of the user: it gets each batch of rows."""
    taken = taken_arguments(call, arguments, ("name",))

    def declare(handler: Query) -> Query:
        if _takes_a_batch(taken, handler):
            named = name if isinstance(name, str) else _name_of(handler)
            where = definition_of(handler) or taken.where
            declare_dataset(taken, Kind.SINK, named, where, format="foreach_batch", handler=handler)
        return handler

    if name is not None and not isinstance(name, str) and callable(name):
        return declare(name)
    if name is not None and not isinstance(name, str):
        taken.wrong_type("name", "text", name, 'write name="..."')
    return declare


def _takes_a_batch(taken: Arguments, handler: Any) -> bool:
    if not callable(handler) or inspect.isclass(handler):
        taken.wrong_type("the decorated object", "a function", handler, "decorate a function of (df, batch_id)")
        return False
    try:
        inspect.signature(handler).bind(None, 0)
    except TypeError:
        hint = "write def NAME(df, batch_id):"
        taken.fault("PROJECT_BAD_ARGUMENT", "the function must take a DataFrame and a number", hint)
        return False
    except ValueError:  # some callables written in C do not say
        return True
    return True


def _name_of(query: Any) -> str | None:
    """A function's own name; a lambda or a partial function has none to give."""
    name = getattr(query, "__name__", None)
    return None if name == "<lambda>" else name
