"""The names a pipeline file declares with: `from anabranch import pipelines as dp`.

They are those of `pyspark.pipelines`, with the same arguments, and those that Databricks adds to them; none needs Spark
to be imported. The decorators return the function they decorate, so it can be called from another one and tested alone.

    from anabranch import pipelines as dp

    @dp.table
    @dp.expect_or_drop("has_id", "id IS NOT NULL")
    def errors():
        return spark.readStream.table("requests").where("status >= 500")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, overload

from anabranch.core.declarations import Action, Kind
from anabranch.load.change_flows import NO_EFFECT_WOULD_BE_WRONG, declare_changes
from anabranch.load.declare import Arguments, declare_dataset
from anabranch.load.decorators import (
    ELSEWHERE,
    STORED_ARGUMENTS,
    TABLE_ARGUMENTS,
    VIEW_ARGUMENTS,
    batch_sink_decorator,
    dataset_decorator,
    flow_decorator,
    ignored_of,
    taken_arguments,
)
from anabranch.load.detectors import declare_detector
from anabranch.load.rules import RULE_ARGUMENTS, expecting, expecting_all, expecting_unique, rules_of

__all__ = [
    "append_flow",
    "create_auto_cdc_flow",
    "create_auto_cdc_from_snapshot_flow",
    "create_sink",
    "create_streaming_table",
    "detect",
    "expect",
    "expect_all",
    "expect_all_or_drop",
    "expect_all_or_fail",
    "expect_all_or_quarantine",
    "expect_or_drop",
    "expect_or_fail",
    "expect_or_quarantine",
    "expect_unique",
    "foreach_batch_sink",
    "materialized_view",
    "table",
    "temporary_view",
    "update_flow",
]

Query = TypeVar("Query", bound=Callable[..., Any])
Decorator = Callable[[Query], Query]


class Schema(Protocol):
    """A `pyspark.sql.types.StructType`, named by what is used of it."""

    fields: Any


_MISSING: Any = None
_SPARK_CONF = "Spark settings belong to a flow"


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
    path: str | None = None,
    observe: bool | list[str] = False,
    **elsewhere: Any,
) -> Callable[[Query], Query]: ...
def table(query_function: Any = None, **arguments: Any) -> Any:
    """Declare a streaming table and the flow that feeds it; the decorated function returns a streaming DataFrame.

    Used bare (`@dp.table`) or with arguments. The table has the function's name unless `name` is given. `schema` is
    DDL text or a StructType, `format` is "delta" unless said otherwise, `spark_conf` holds settings for the flow,
    `path` says where the table is, `observe` of which columns each epoch is profiled: True for all, or their names.
    Arguments that only mean something on Databricks are taken and named in a warning.
    """
    return dataset_decorator("dp.table", Kind.STREAMING_TABLE, query_function, arguments, TABLE_ARGUMENTS)


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
    path: str | None = None,
    observe: bool | list[str] = False,
    **elsewhere: Any,
) -> Callable[[Query], Query]: ...
def materialized_view(query_function: Any = None, **arguments: Any) -> Any:
    """Declare a table that always holds the result of a query; the decorated function returns a batch DataFrame.

    Takes the same arguments as `table`.
    """
    return dataset_decorator("dp.materialized_view", Kind.MATERIALIZED_VIEW, query_function, arguments, TABLE_ARGUMENTS)


@overload
def temporary_view(query_function: Query, /) -> Query: ...
@overload
def temporary_view(
    *, name: str | None = None, comment: str | None = None, spark_conf: dict[str, str] | None = None
) -> Callable[[Query], Query]: ...
def temporary_view(query_function: Any = None, **arguments: Any) -> Any:
    """Declare a step that other flows read and that is not written anywhere."""
    return dataset_decorator("dp.temporary_view", Kind.TEMPORARY_VIEW, query_function, arguments, VIEW_ARGUMENTS)


@overload
def append_flow(
    *,
    target: str,
    name: str | None = None,
    spark_conf: dict[str, str] | None = None,
    once: bool = False,
    comment: str | None = None,
) -> Callable[[Query], Query]: ...
@overload
def append_flow(misplaced: Any, /) -> Any: ...
def append_flow(misplaced: Any = None, /, **arguments: Any) -> Any:
    """Declare a flow that appends to `target`, a streaming table or a sink; many flows may have the same target.

    With `once` it runs in the first epoch only, and may return a batch DataFrame.
    """
    known = ("target", "name", "spark_conf", "once", "comment")
    return flow_decorator("dp.append_flow", "append", misplaced, arguments, known)


def update_flow(misplaced: Any = None, /, **arguments: Any) -> Any:
    """Declare a flow whose rows replace older ones in `target`, a sink: an aggregation without a watermark."""
    known = ("target", "name", "spark_conf", "comment")
    return flow_decorator("dp.update_flow", "update", misplaced, arguments, known)


def create_streaming_table(
    name: str = _MISSING,
    *,
    comment: str | None = None,
    table_properties: dict[str, str] | None = None,
    partition_cols: list[str] | None = None,
    cluster_by: list[str] | None = None,
    schema: Schema | str | None = None,
    format: str | None = None,  # noqa: A002
    path: str | None = None,
    observe: bool | list[str] = False,
    expect_all: Mapping[str, str] | None = None,
    expect_all_or_drop: Mapping[str, str] | None = None,
    expect_all_or_fail: Mapping[str, str] | None = None,
    expect_all_or_quarantine: Mapping[str, str] | None = None,
    **others: Any,
) -> None:
    """Declare a streaming table without a flow; `append_flow` feeds it."""
    elsewhere = {**ELSEWHERE, "spark_conf": _SPARK_CONF}
    known = ("name", *STORED_ARGUMENTS, *RULE_ARGUMENTS)
    taken = taken_arguments("dp.create_streaming_table", others, known, elsewhere)
    declared = declare_dataset(
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
        path=path,
        observe=observe,
        ignored=ignored_of(others, elsewhere),
    )
    given = (expect_all, expect_all_or_drop, expect_all_or_fail, expect_all_or_quarantine)
    _add_rules(taken, declared, dict(zip(RULE_ARGUMENTS, given, strict=True)))


def create_sink(
    name: str = _MISSING,
    format: str = _MISSING,  # noqa: A002
    options: dict[str, str] | None = None,
    **others: Any,
) -> None:
    """Declare a place outside the pipeline that `append_flow` writes to; takes `expect_all` and the like as well."""
    taken = taken_arguments("dp.create_sink", others, ("name", "format", "options", *RULE_ARGUMENTS))
    if format is None:
        taken.fault("PROJECT_MISSING_ARGUMENT", "format is missing", 'write format="kafka", "delta", ...')
    declared = declare_dataset(taken, Kind.SINK, name, taken.where, format=format, options=options)
    _add_rules(taken, declared, {argument: others.get(argument) for argument in RULE_ARGUMENTS})


def foreach_batch_sink(name: Any = None, **arguments: Any) -> Any:
    """Declare a sink that is a function of `(df, batch_id)`; it is called with the rows of each epoch.

    It can be called twice with the same `batch_id`, after a crash: what it writes should not depend on that.
    """
    return batch_sink_decorator("dp.foreach_batch_sink", name, arguments)


def create_auto_cdc_flow(
    target: str = _MISSING,
    source: str = _MISSING,
    keys: list[Any] = _MISSING,
    sequence_by: Any = _MISSING,
    *,
    apply_as_deletes: Any = None,
    apply_as_truncates: Any = None,
    column_list: list[Any] | None = None,
    except_column_list: list[Any] | None = None,
    stored_as_scd_type: int | str = 1,
    track_history_column_list: list[Any] | None = None,
    track_history_except_column_list: list[Any] | None = None,
    ignore_null_updates: bool = False,
    ignore_null_updates_column_list: list[Any] | None = None,
    ignore_null_updates_except_column_list: list[Any] | None = None,
    name: str | None = None,
    once: bool = False,
    spark_conf: dict[str, str] | None = None,
    comment: str | None = None,
    **others: Any,
) -> None:
    """Declare a flow that applies the changes in `source` to the rows of `target`.

    Rows with the same `keys` are one row at different times, `sequence_by` says which is newer. Expressions are SQL
    text or Columns.
    """
    said = {key: value for key, value in locals().items() if key != "others"}
    taken = taken_arguments("dp.create_auto_cdc_flow", others, tuple(said), NO_EFFECT_WOULD_BE_WRONG)
    for argument in NO_EFFECT_WOULD_BE_WRONG.keys() & others.keys():
        if others[argument] is not None:
            taken.fault("PROJECT_BAD_ARGUMENT", f"{argument} is not supported", NO_EFFECT_WOULD_BE_WRONG[argument])
    declare_changes(taken, snapshot=False, **said)


def create_auto_cdc_from_snapshot_flow(
    target: str = _MISSING,
    source: Any = _MISSING,
    keys: list[Any] = _MISSING,
    stored_as_scd_type: int | str = 1,
    *,
    track_history_column_list: list[Any] | None = None,
    track_history_except_column_list: list[Any] | None = None,
    name: str | None = None,
    **others: Any,
) -> None:
    """Declare a flow that makes `target` equal to each snapshot of a table.

    `source` is the name of a dataset, or a function that is given the version of the last snapshot, None at first, and
    returns the next one as `(df, version)`, or None if there is none.
    """
    said = {key: value for key, value in locals().items() if key != "others"}
    taken = taken_arguments("dp.create_auto_cdc_from_snapshot_flow", others, tuple(said))
    declare_changes(taken, snapshot=True, **said)


def expect(name: str = _MISSING, condition: str = _MISSING) -> Decorator[Query]:
    """Count the rows for which the SQL `condition` is not true; they are written all the same.

    Over or under the decorator that declares the dataset; over an `append_flow` the rule is one of its target.
    """
    return expecting("dp.expect", name, condition, Action.WARN)


def expect_or_drop(name: str = _MISSING, condition: str = _MISSING) -> Decorator[Query]:
    """Leave out the rows for which `condition` is not true, and count them."""
    return expecting("dp.expect_or_drop", name, condition, Action.DROP)


def expect_or_fail(name: str = _MISSING, condition: str = _MISSING) -> Decorator[Query]:
    """Give the epoch up, before anything is visible, if `condition` is not true for some row."""
    return expecting("dp.expect_or_fail", name, condition, Action.FAIL)


def expect_or_quarantine(name: str = _MISSING, condition: str = _MISSING) -> Decorator[Query]:
    """Put the rows for which `condition` is not true into the quarantine table of the dataset."""
    return expecting("dp.expect_or_quarantine", name, condition, Action.QUARANTINE)


def expect_all(expectations: dict[str, str] = _MISSING) -> Decorator[Query]:
    """`expect` for every name and condition of a dict."""
    return expecting_all("dp.expect_all", expectations, Action.WARN)


def expect_all_or_drop(expectations: dict[str, str] = _MISSING) -> Decorator[Query]:
    """`expect_or_drop` for every name and condition of a dict."""
    return expecting_all("dp.expect_all_or_drop", expectations, Action.DROP)


def expect_all_or_fail(expectations: dict[str, str] = _MISSING) -> Decorator[Query]:
    """`expect_or_fail` for every name and condition of a dict."""
    return expecting_all("dp.expect_all_or_fail", expectations, Action.FAIL)


def expect_all_or_quarantine(expectations: dict[str, str] = _MISSING) -> Decorator[Query]:
    """`expect_or_quarantine` for every name and condition of a dict."""
    return expecting_all("dp.expect_all_or_quarantine", expectations, Action.QUARANTINE)


def expect_unique(name: str = _MISSING, columns: list[str] = _MISSING, action: str = "fail") -> Decorator[Query]:
    """Ask that no two rows of the dataset have the same values in `columns`; `action` as for the other rules."""
    return expecting_unique("dp.expect_unique", name, columns, action)


def detect(
    kind: str = _MISSING,
    on: str = _MISSING,
    *,
    name: str | None = None,
    severity: str | None = None,
    within: str | None = None,
    lulls: str | None = None,
    over: str | None = None,
    tolerance: float | str | None = None,
    ratio: float | None = None,
    at_least: int | None = None,
    since: str | None = None,
    periods: list[dict[str, Any]] | None = None,
    unit: str | None = None,
    most: float | str | None = None,
    percentile: float | None = None,
    ask: dict[str, str] | None = None,
    processing: str | None = None,
    event_time: str | None = None,
    per: str | None = None,
    rows: str | None = None,
    **others: Any,
) -> None:
    """Declare a detector on a dataset or a flow, which `anabranch watch` judges: the keys are those of `detectors:`.

    `kind` is `interruption`, `skew`, `lag` or `sla`.
    """
    said = {key: value for key, value in locals().items() if key != "others"}
    declare_detector(taken_arguments("dp.detect", others, tuple(said)), said)


def _add_rules(taken: Arguments, dataset: str | None, given: Mapping[str, Any]) -> None:
    for argument, value in reversed([*given.items()]):
        rules = rules_of(taken, argument, value, RULE_ARGUMENTS[argument])
        if dataset and rules:
            taken.registry.add_rules(dataset, rules)
