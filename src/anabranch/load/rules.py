"""Expectations as they are written in Python: decorators above or below the one that declares, or arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from anabranch.core.declarations import Action, Expectation, Unique
from anabranch.errors import did_you_mean
from anabranch.load.declare import Arguments
from anabranch.load.registry import Rule, active_registry
from anabranch.load.source import calling_place

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

#: The arguments of `create_streaming_table` and `create_sink` that hold expectations.
RULE_ARGUMENTS = {
    "expect_all": Action.WARN,
    "expect_all_or_drop": Action.DROP,
    "expect_all_or_fail": Action.FAIL,
    "expect_all_or_quarantine": Action.QUARANTINE,
}


def expecting(call: str, name: Any, condition: Any, action: Action) -> Callable[[Decorated], Decorated]:
    """The decorator of one rule."""
    taken = _taken(call)
    return _over(taken, _rules(taken, [(name, condition)], action))


def expecting_all(call: str, expectations: Any, action: Action) -> Callable[[Decorated], Decorated]:
    """The decorator of the rules of a dict."""
    taken = _taken(call)
    if expectations is None:
        hint = f'write @{call}({{"has_id": "id IS NOT NULL"}})'
        taken.fault("PROJECT_MISSING_ARGUMENT", "expectations is missing", hint)
    return _over(taken, rules_of(taken, "expectations", expectations, action))


def expecting_unique(call: str, name: Any, columns: Any, action: Any) -> Callable[[Decorated], Decorated]:
    """The decorator of a rule on all rows together."""
    taken = _taken(call)
    checked = _rule_name(taken, name)
    keys = taken.names("columns", [columns] if isinstance(columns, str) else columns)
    if not keys and not taken.faults:
        taken.fault("PROJECT_MISSING_ARGUMENT", "columns is missing", 'write columns=["id"]')
    known = [each.value for each in Action]
    if action not in known:
        hint = did_you_mean(str(action), known) or f"actions: {', '.join(known)}"
        taken.fault("PROJECT_BAD_ARGUMENT", f"there is no action {action!r}", hint)
    rules: list[Rule] = []
    if checked and not taken.faults:
        rules.append(Unique(checked, keys, Action(action), taken.where))
    return _over(taken, rules)


def rules_of(taken: Arguments, argument: str, value: Any, action: Action) -> list[Rule]:
    """The rules of a dict of names to conditions."""
    if value is None:
        return []
    if not isinstance(value, dict):
        hint = f'write {argument}={{"name of the rule": "SQL that is true for a good row"}}'
        taken.wrong_type(argument, "a dict of names to conditions", value, hint)
        return []
    return _rules(taken, value.items(), action)


def _rules(taken: Arguments, pairs: Iterable[tuple[Any, Any]], action: Action) -> list[Rule]:
    checked = [(_rule_name(taken, name), _condition(taken, condition)) for name, condition in pairs]
    return [Expectation(name, text, action, taken.where) for name, text in checked if name and text]


def _rule_name(taken: Arguments, value: Any) -> str | None:
    """A rule may have any text for its name: it is a key of counts, and Lakeflow shows it as a description."""
    if not isinstance(value, str):
        taken.wrong_type("the name of the rule", "text", value, f'write {taken.call}("has_id", "id IS NOT NULL")')
    elif not value.strip():
        taken.fault("PROJECT_BAD_ARGUMENT", "the name of the rule is empty", "rows are counted by it: give it one")
    else:
        return value
    return None


def _condition(taken: Arguments, value: Any) -> str | None:
    if not isinstance(value, str):
        hint = 'write it as SQL, such as "id IS NOT NULL"; a Column or a function cannot be used'
        taken.wrong_type("the condition", "SQL text", value, hint)
    elif not value.strip():
        taken.fault("PROJECT_BAD_ARGUMENT", "the condition is empty", 'write SQL, such as "id IS NOT NULL"')
    else:
        return value
    return None


def _taken(call: str) -> Arguments:
    where = calling_place()
    return Arguments(call, where, active_registry(call, where))


def _over(taken: Arguments, rules: list[Rule]) -> Callable[[Decorated], Decorated]:
    def decorate(function: Decorated) -> Decorated:
        if not callable(function) or isinstance(function, type):
            text = f"decorates {type(function).__name__}, which is no dataset"
            hint = (
                "put it directly over or under @dp.table, @dp.materialized_view, @dp.temporary_view or @dp.append_flow"
            )
            taken.fault("EXPECTATION_ALONE", text, hint)
        elif rules:
            taken.registry.rules_on(function, rules)
        return function

    return decorate
