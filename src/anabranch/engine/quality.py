"""Expectations as columns of the one pass: a rule costs a boolean, and no second look at the rows."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from anabranch.core.changes import DELETES, TRUNCATES
from anabranch.core.declarations import Action, Dataset, Expectation
from anabranch.core.origin import BEFORE_CAST
from anabranch.core.quality import with_action
from anabranch.engine.source_files_letters import DEAD_LETTER
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Names that no column of a user has.
_RULE = "__anabranch_rule_"
_PAYLOAD = "__anabranch_payload"

#: Values as they were before `cast`, in the rules that come with it.
_BEFORE_CAST = re.compile(rf"`({BEFORE_CAST}[^`]+)`")


@dataclass(frozen=True, slots=True)
class Rule:
    """An expectation in the wide frame: `column` is true for a row that keeps it."""

    column: str
    name: str
    action: Action


def judged(frame: DataFrame, dataset: Dataset) -> DataFrame:
    """The frame with a column for each rule of a dataset, and the row as JSON where it must be shown or kept."""
    rules = dataset.expectations
    columns = {f"{_RULE}{i}": _holds(frame, dataset, rule) for i, rule in enumerate(rules)}
    if telling := [i for i, rule in enumerate(rules) if rule.action in (Action.QUARANTINE, Action.FAIL)]:
        broken = ~_all(columns[f"{_RULE}{i}"] for i in telling)
        row = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
        columns[_PAYLOAD] = F.when(broken, row)
    return frame.select("*", *(column.alias(name) for name, column in columns.items()))


def kept(frame: DataFrame, dataset: Dataset) -> DataFrame:
    """The rows that readers of a dataset see."""
    rules = with_action(dataset.expectations, Action.DROP, Action.QUARANTINE)
    if not rules:
        return frame
    return frame.where(_all(_holds(frame, dataset, rule) for rule in rules)).drop(*spent(dataset))


def spent(dataset: Dataset) -> tuple[str, ...]:
    """Columns that no reader of a dataset sees: they were for a rule, which leaves nothing in them."""
    rules = with_action(dataset.expectations, Action.DROP, Action.QUARANTINE)
    letters = (DEAD_LETTER,) if any(DEAD_LETTER in rule.condition for rule in rules) else ()
    return (*letters, *(name for rule in rules for name in _BEFORE_CAST.findall(rule.condition)))


def rules_of(dataset: Dataset, columns: dict[str, str]) -> tuple[Rule, ...]:
    """The rules of a dataset, given what the columns that `judged` added are called in the wide frame."""
    return tuple(Rule(columns[f"{_RULE}{i}"], rule.name, rule.action) for i, rule in enumerate(dataset.expectations))


def payload_in(columns: dict[str, str]) -> str | None:
    """The column with the row as JSON, if there is one."""
    return columns.get(_PAYLOAD)


def is_added(column: str) -> bool:
    """Whether `judged` added this column."""
    return column.startswith(_RULE) or column == _PAYLOAD


def _holds(frame: DataFrame, dataset: Dataset, rule: Expectation) -> Column:
    try:
        condition = F.expr(rule.condition)
        found = frame.select(condition).schema.fields[0].dataType.simpleString()
    except AnalysisException as error:
        raise _invalid(dataset, rule, f"cannot be computed: {str(error).strip().splitlines()[0]}") from error
    if found != "boolean":
        raise _invalid(dataset, rule, f"is of type {found}, not boolean")
    # A change that deletes or empties writes no row to judge; its other columns are often null.
    writes_none = [F.col(name) for name in (DELETES, TRUNCATES) if name in frame.columns]
    return functools.reduce(operator.or_, writes_none, F.coalesce(condition, F.lit(False)))


def _invalid(dataset: Dataset, rule: Expectation, why: str) -> ProjectError:
    return ProjectError(
        "EXPECTATION_INVALID",
        f'the expectation "{rule.name}" of "{dataset.name}" {why}',
        where=rule.where,
        hint="write a condition in SQL over the columns of the dataset, as after WHERE",
    )


def _all(conditions: Iterable[Column]) -> Column:
    together = F.lit(True)
    for condition in conditions:
        together = together & condition
    return together
