"""Flows that change rows by key: `create_auto_cdc_flow` and `create_auto_cdc_from_snapshot_flow`, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.changes import Changes, Expression
from anabranch.core.where import Where
from anabranch.load.declare import Arguments, declare_flow, without_live
from anabranch.load.standin import NeedsSpark, StandIn

#: Arguments of Databricks that change which rows the target has, with the way out.
NO_EFFECT_WOULD_BE_WRONG = {
    "where": "filter in a temporary view, and name that as the source",
    "system_sequence_by": "use sequence_by alone",
    "columns_to_update": "use column_list, or ignore_null_updates for changes that have some of the columns",
}

_SCD_TYPES = {1: 1, 2: 2, "1": 1, "2": 2, "SCD_TYPE_1": 1, "SCD_TYPE_2": 2}


def declare_changes(
    taken: Arguments,
    *,
    target: Any,
    source: Any,
    keys: Any,
    snapshot: bool,
    stored_as_scd_type: Any = 1,
    sequence_by: Any = None,
    ignore_null_updates: Any = False,
    apply_as_deletes: Any = None,
    apply_as_truncates: Any = None,
    column_list: Any = None,
    except_column_list: Any = None,
    track_history_column_list: Any = None,
    track_history_except_column_list: Any = None,
    ignore_null_updates_column_list: Any = None,
    ignore_null_updates_except_column_list: Any = None,
    name: Any = None,
    once: Any = False,
    spark_conf: Any = None,
    comment: Any = None,
    where: Where | None = None,
) -> None:
    """Add a flow that applies changes; a faulty one is reported and left out."""
    checked_source = _source(taken, source, snapshot)
    if not snapshot and sequence_by is None:
        hint = 'write sequence_by="at", the column that says which change is newer'
        taken.fault("PROJECT_MISSING_ARGUMENT", "sequence_by is missing", hint)
    changes = Changes(
        source=checked_source,
        keys=_keys(taken, keys),
        sequence_by=_expression(taken, "sequence_by", sequence_by),
        deletes=_expression(taken, "apply_as_deletes", apply_as_deletes),
        truncates=_expression(taken, "apply_as_truncates", apply_as_truncates),
        columns=_columns(taken, "column_list", column_list),
        except_columns=_columns(taken, "except_column_list", except_column_list) or (),
        scd_type=_scd_type(taken, stored_as_scd_type),
        track_history=_columns(taken, "track_history_column_list", track_history_column_list),
        track_history_except=_columns(taken, "track_history_except_column_list", track_history_except_column_list)
        or (),
        ignore_null_updates=taken.flag("ignore_null_updates", ignore_null_updates)
        or ignore_null_updates_column_list is not None
        or ignore_null_updates_except_column_list is not None,
        ignore_null_columns=_columns(taken, "ignore_null_updates_column_list", ignore_null_updates_column_list),
        ignore_null_except=_columns(
            taken, "ignore_null_updates_except_column_list", ignore_null_updates_except_column_list
        )
        or (),
        snapshot=snapshot,
    )
    _one_of(taken, "column_list", column_list, "except_column_list", except_column_list)
    history = (track_history_column_list, track_history_except_column_list)
    _one_of(taken, "track_history_column_list", history[0], "track_history_except_column_list", history[1])
    if changes.scd_type == 1 and any(item is not None for item in history):
        hint = "write stored_as_scd_type=2, or leave the track_history arguments out"
        taken.fault("PROJECT_BAD_ARGUMENT", "only a table of SCD type 2 has a history to track", hint)
    if changes.scd_type == 2 and apply_as_truncates is not None:
        hint = "write stored_as_scd_type=1, or leave apply_as_truncates out"
        taken.fault("PROJECT_BAD_ARGUMENT", "a table of SCD type 2 cannot be truncated: it keeps what was", hint)
    if taken.faults:
        return
    declare_flow(
        taken,
        target if name is None else name,
        target,
        _query(changes, once=once is True),
        spark_conf,
        comment=comment,
        once=once,
        changes=changes,
        inputs=(checked_source,) if isinstance(checked_source, str) else None,
        where=where or taken.where,
    )


def _query(changes: Changes, *, once: bool) -> Callable[[], Any]:
    """What reads the source: its new rows, or all of it for a snapshot and for a flow that runs once."""
    source = changes.source
    if callable(source):

        def first_snapshot() -> Any:
            found = source(None)
            return found[0] if isinstance(found, tuple) else found

        # Its inputs are those of the user's function, which is found through this.
        first_snapshot.__wrapped__ = source  # type: ignore[attr-defined]
        return first_snapshot

    def read_changes() -> Any:
        from pyspark.sql import SparkSession

        session = SparkSession.active()
        return session.read.table(source) if changes.snapshot or once else session.readStream.table(source)

    return read_changes


def _source(taken: Arguments, value: Any, snapshot: bool) -> Any:
    if snapshot and callable(value) and not isinstance(value, StandIn | type):
        return value
    if isinstance(value, str) and value.strip():
        return without_live(value)
    if value is None or isinstance(value, str):
        taken.fault("PROJECT_MISSING_ARGUMENT", "source is missing", 'write source="name of a dataset"')
        return ""
    hint = "name the dataset that has the changes; a DataFrame is made into one with @dp.temporary_view"
    expected = "the name of a dataset, or a function that gives snapshots" if snapshot else "the name of a dataset"
    taken.wrong_type("source", expected, value, hint)
    return ""


def _keys(taken: Arguments, value: Any) -> tuple[Expression, ...]:
    found = _columns(taken, "keys", [value] if isinstance(value, str) else value)
    if found is None or (not found and not taken.faults):
        taken.fault("PROJECT_MISSING_ARGUMENT", "keys is missing", 'write keys=["id"], the columns that identify a row')
    return found or ()


def _columns(taken: Arguments, argument: str, value: Any) -> tuple[Expression, ...] | None:
    """Names of columns or Columns; None stays None, which means something else than no columns."""
    if value is None:
        return None
    if isinstance(value, StandIn):
        raise NeedsSpark(f"{argument} is computed by Spark")
    if isinstance(value, list | tuple) and all(_is_expression(item) for item in value):
        return tuple(value)
    taken.wrong_type(argument, "a list of column names", value, f'write {argument}=["..."]')
    return ()


def _expression(taken: Arguments, argument: str, value: Any) -> Expression:
    if value is None or _is_expression(value):
        return value
    hint = f'write {argument}="..." in SQL, or {argument}=expr("...")'
    taken.wrong_type(argument, "SQL text or a Column", value, hint)
    return None


def _is_expression(value: Any) -> bool:
    """Text, or a Column of either kind of session; recognised by what it can do, since pyspark may not be there."""
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, StandIn) or (hasattr(value, "alias") and hasattr(value, "isNull"))


def _scd_type(taken: Arguments, value: Any) -> int:
    if not isinstance(value, StandIn) and isinstance(value, int | str) and value in _SCD_TYPES:
        return _SCD_TYPES[value]
    taken.fault("PROJECT_BAD_ARGUMENT", f"stored_as_scd_type is 1 or 2, not {value!r}", "write stored_as_scd_type=1")
    return 1


def _one_of(taken: Arguments, one: str, value: Any, other: str, other_value: Any) -> None:
    if value is not None and other_value is not None:
        taken.fault("PROJECT_BAD_ARGUMENT", f"{one} and {other} cannot both be given", "keep one of them")
