"""The names a pipeline file declares with: `from anabranch import pipelines as dp`.

They are those of `pyspark.pipelines`, with the same arguments, and need no Spark to be imported. The decorators return
the function they decorate, so it can be called from another one and tested alone.

    from anabranch import pipelines as dp

    @dp.table
    def errors():
        return spark.readStream.table("requests").where("status >= 500")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

from anabranch.core.declarations import Kind
from anabranch.load.declare import Arguments, declare_dataset, declare_flow
from anabranch.load.registry import active_registry
from anabranch.load.source import calling_place, definition_of

__all__ = [
    "append_flow",
    "create_sink",
    "create_streaming_table",
    "materialized_view",
    "table",
    "temporary_view",
]

Query = TypeVar("Query", bound=Callable[..., Any])


class Schema(Protocol):
    """A `pyspark.sql.types.StructType`, named by what is used of it."""

    fields: Any


_VIEW_ARGUMENTS = ("name", "comment", "spark_conf")
_STORED_ARGUMENTS = ("comment", "table_properties", "partition_cols", "cluster_by", "schema", "format")
_TABLE_ARGUMENTS = ("name", "spark_conf", *_STORED_ARGUMENTS)
_MISSING: Any = None


@overload
def table(query_function: Query, /) -> Query: ...
@overload
def table(
    *,
    name: str | None = None,
    comment: str | None = None,
    spark_conf: dict[str, str] | None = None,
    table_properties: dict[str, str] | None = None,
    partition_cols: list[str] | None = None,
    cluster_by: list[str] | None = None,
    schema: Schema | str | None = None,
    format: str | None = None,
) -> Callable[[Query], Query]: ...
def table(query_function: Any = None, **arguments: Any) -> Any:
    """Declare a streaming table and the flow that feeds it; the decorated function returns a streaming DataFrame.

    Used bare (`@dp.table`) or with arguments. The table has the function's name unless `name` is given. `schema` is
    DDL text or a StructType, `format` is "delta" unless said otherwise, `spark_conf` holds settings for the flow.
    """
    return _decorator("dp.table", Kind.STREAMING_TABLE, query_function, arguments, _TABLE_ARGUMENTS)


@overload
def materialized_view(query_function: Query, /) -> Query: ...
@overload
def materialized_view(
    *,
    name: str | None = None,
    comment: str | None = None,
    spark_conf: dict[str, str] | None = None,
    table_properties: dict[str, str] | None = None,
    partition_cols: list[str] | None = None,
    cluster_by: list[str] | None = None,
    schema: Schema | str | None = None,
    format: str | None = None,
) -> Callable[[Query], Query]: ...
def materialized_view(query_function: Any = None, **arguments: Any) -> Any:
    """Declare a table that always holds the result of a query; the decorated function returns a batch DataFrame.

    Takes the same arguments as `table`.
    """
    return _decorator("dp.materialized_view", Kind.MATERIALIZED_VIEW, query_function, arguments, _TABLE_ARGUMENTS)


@overload
def temporary_view(query_function: Query, /) -> Query: ...
@overload
def temporary_view(
    *, name: str | None = None, comment: str | None = None, spark_conf: dict[str, str] | None = None
) -> Callable[[Query], Query]: ...
def temporary_view(query_function: Any = None, **arguments: Any) -> Any:
    """Declare a step that other flows read and that is not written anywhere."""
    return _decorator("dp.temporary_view", Kind.TEMPORARY_VIEW, query_function, arguments, _VIEW_ARGUMENTS)


@overload
def append_flow(
    *, target: str, name: str | None = None, spark_conf: dict[str, str] | None = None
) -> Callable[[Query], Query]: ...
@overload
def append_flow(misplaced: Any, /) -> Any: ...
def append_flow(misplaced: Any = None, /, **arguments: Any) -> Any:
    """Declare a flow that appends to `target`, a streaming table or a sink; many flows may have the same target."""
    taken = _taken("dp.append_flow", arguments, ("target", "name", "spark_conf"))

    def declare(query: Query) -> Query:
        if taken.query(query):
            name = arguments.get("name") or _name_of(query)
            declare_flow(taken, name, arguments.get("target"), query, arguments.get("spark_conf"))
        return query

    if misplaced is None:
        return declare
    if not callable(misplaced):
        hint = f'write @dp.append_flow(target="{misplaced}")'
        taken.fault("PROJECT_BAD_ARGUMENT", "the arguments are given by name only", hint)
        return declare
    return declare(misplaced)


def create_streaming_table(
    name: str = _MISSING,
    *,
    comment: str | None = None,
    table_properties: dict[str, str] | None = None,
    partition_cols: list[str] | None = None,
    cluster_by: list[str] | None = None,
    schema: Schema | str | None = None,
    format: str | None = None,  # noqa: A002
    **unknown: Any,
) -> None:
    """Declare a streaming table without a flow; `append_flow` feeds it."""
    taken = _taken("dp.create_streaming_table", unknown, ("name", *_STORED_ARGUMENTS))
    declare_dataset(
        taken,
        Kind.STREAMING_TABLE,
        name,
        taken.where,
        comment=comment,
        table_properties=table_properties,
        partition_cols=partition_cols,
        cluster_by=cluster_by,
        schema=schema,
        format=format,
    )


def create_sink(
    name: str = _MISSING,
    format: str = _MISSING,  # noqa: A002
    options: dict[str, str] | None = None,
    **unknown: Any,
) -> None:
    """Declare a place outside the pipeline that `append_flow` writes to."""
    taken = _taken("dp.create_sink", unknown, ("name", "format", "options"))
    if format is None:
        taken.fault("PROJECT_MISSING_ARGUMENT", "format is missing", 'write format="kafka", "delta", ...')
    declare_dataset(taken, Kind.SINK, name, taken.where, format=format, options=options)


def _taken(call: str, arguments: dict[str, Any], known: tuple[str, ...]) -> Arguments:
    where = calling_place()
    taken = Arguments(call, where, active_registry(call, where))
    taken.unknown((name for name in arguments if name not in known), known)
    return taken


def _decorator(call: str, kind: Kind, query: Any, arguments: dict[str, Any], known: tuple[str, ...]) -> Any:
    """The bare form declares at once; the called form returns what will."""
    query = arguments.pop("query_function", query)
    taken = _taken(call, arguments, known)

    def declare(query: Query) -> Query:
        if not taken.query(query):
            return query
        name = arguments.get("name") or _name_of(query)
        said = {key: arguments[key] for key in _STORED_ARGUMENTS if key in arguments and key in known}
        declared = declare_dataset(taken, kind, name, definition_of(query) or taken.where, **said)
        if declared:
            declare_flow(taken, declared, declared, query, arguments.get("spark_conf"))
        return query

    if isinstance(query, str):
        hint = f'write @{call}(name="{query}")'
        taken.fault("PROJECT_BAD_ARGUMENT", "the arguments are given by name only", hint)
        arguments.setdefault("name", query)
        return declare
    return declare if query is None else declare(query)


def _name_of(query: Any) -> str | None:
    """A function's own name; a lambda or a partial function has none to give."""
    name = getattr(query, "__name__", None)
    return None if name == "<lambda>" else name
