"""Changes by key as rows to stage: the columns of the table, and what orders and deletes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

from anabranch.core.changes import DELETES, END_AT, SEQUENCE, START_AT, TRUNCATES, Changes, Expression, Merge
from anabranch.core.declarations import Flow
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.core.plan import ChannelPlan

#: Columns of a staged change that its table does not have.
_ADDED = (SEQUENCE, DELETES, TRUNCATES)


def change_rows(frame: DataFrame, flow: Flow) -> DataFrame:
    """The rows of a flow's source as changes of its target."""
    changes = flow.changes
    assert changes is not None, "a flow that changes rows"
    try:
        keys = names_in(frame, changes.keys)
        wanted = frame.columns if changes.columns is None else names_in(frame, changes.columns)
        left_out = names_in(frame, changes.except_columns)
        rows = list(dict.fromkeys([*keys, *(c for c in wanted if c not in left_out)]))
        if changes.columns is None:
            rows = [c for c in frame.columns if c in rows]  # in the order of the source
        added = [_column(changes.sequence_by).alias(SEQUENCE), _flag(changes.deletes).alias(DELETES)]
        if changes.truncates is not None:
            added.append(_flag(changes.truncates).alias(TRUNCATES))
        return frame.select(*(F.col(f"`{c}`") for c in rows), *added)
    except AnalysisException as error:
        raise ProjectError(
            "CHANGES_INVALID",
            f'the changes of flow "{flow.name}" cannot be computed: {str(error).strip().splitlines()[0]}',
            where=flow.where,
            hint="keys, sequence_by, deletes and the lists of columns are about the columns of the source",
        ) from error


def merges(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> dict[str, Merge]:
    """How the changes of each table are applied."""
    found: dict[str, tuple[Flow, Merge]] = {}
    for step in plan.flows:
        if step.flow.changes is None or step.flow.name not in frames:
            continue
        merge = _merge(step.flow.changes, frames[step.flow.name])
        first, before = found.setdefault(step.flow.target, (step.flow, merge))
        if before != merge:
            raise ProjectError(
                "CHANGES_DIFFER",
                f'flows "{first.name}" and "{step.flow.name}" change "{step.flow.target}" in different ways',
                where=step.flow.where,
                hint="keys, type of history and tracked columns belong to the table: say the same in both",
            )
    return {target: merge for target, (_, merge) in found.items()}


def _merge(changes: Changes, frame: DataFrame) -> Merge:
    columns = [c for c in frame.columns if c not in _ADDED]
    keys = names_in(frame, changes.keys)
    values = [c for c in columns if c not in keys]
    tracked = values if changes.track_history is None else [_name(c) for c in changes.track_history]
    tracked = [c for c in tracked if c not in [_name(e) for e in changes.track_history_except]]
    kept: list[str] = []
    if changes.ignore_null_updates:
        kept = values if changes.ignore_null_columns is None else [_name(c) for c in changes.ignore_null_columns]
        kept = [c for c in kept if c not in [_name(e) for e in changes.ignore_null_except]]
    history = changes.keeps_history
    return Merge(tuple(keys), history, tuple(tracked) if history else (), tuple(kept))


def table_columns(columns: Mapping[str, Any], merge: Merge) -> dict[str, Any]:
    """The columns of the table itself, given those of its staged changes with their types."""
    own = {name: kind for name, kind in columns.items() if name not in _ADDED}
    if merge.history:
        own |= dict.fromkeys((START_AT, END_AT), columns[SEQUENCE])
    return own


def _column(expression: Expression) -> Column:
    return expression if isinstance(expression, Column) else F.expr(expression)


def _flag(condition: Expression) -> Column:
    return F.lit(False) if condition is None else F.coalesce(_column(condition).cast("boolean"), F.lit(False))


def names_in(frame: DataFrame, columns: Iterable[Expression]) -> list[str]:
    """The columns as the frame spells them; one that it does not have raises."""
    by_lower = {c.lower(): c for c in frame.columns}
    return [by_lower.get(name.lower(), name) for c in columns if (name := _checked(frame, c))]


def _checked(frame: DataFrame, column: Expression) -> str:
    name = _name(column)
    frame.select(F.col(f"`{name}`"))
    return name


def _name(column: Expression) -> str:
    """The name of a column that was given as a text or as a Column."""
    return column.strip("`") if isinstance(column, str) else column._jc.toString().strip("`")  # noqa: SLF001
