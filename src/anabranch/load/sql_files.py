"""Declare what a SQL file says; every faulty statement is reported and the others are taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.declarations import Expectation
from anabranch.core.where import Where
from anabranch.errors import ProjectError
from anabranch.load.change_flows import declare_changes
from anabranch.load.declare import Arguments, declare_dataset, declare_flow, without_live
from anabranch.load.registry import Registry
from anabranch.load.sql_names import sql_names
from anabranch.load.sql_statements import ChangeFlow, Created, Query, Setting, Used, parse
from anabranch.load.sql_words import SqlFault, statements_of, without_live_names, words_of


def declare_sql(text: str, file: str, registry: Registry) -> None:
    """Declare the statements of `text`, which is that of `file`, in their order."""
    settings: dict[str, str] = {}
    try:
        statements = list(statements_of(words_of(text)))
    except SqlFault as fault:
        _report(fault, text, file, registry)
        return
    for words in statements:
        try:
            statement = parse(text, words)
        except SqlFault as fault:
            _report(fault, text, file, registry)
            continue
        if isinstance(statement, Setting):
            settings[statement.key] = statement.value
        else:
            _declare(statement, text, file, registry, dict(settings))


def place(text: str, at: int, file: str) -> Where:
    """The line and column of a character.

    >>> str(place("ab" + chr(10) + "cd", 4, "x.sql"))
    'x.sql:2:2'
    """
    return Where(file, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))


def _report(fault: SqlFault, text: str, file: str, registry: Registry) -> None:
    registry.report(ProjectError(fault.code, fault.message, where=place(text, fault.at, file), hint=fault.hint))


def _declare(
    statement: Created | Query | ChangeFlow | Used, text: str, file: str, registry: Registry, settings: dict[str, str]
) -> None:
    where = place(text, statement.at, file)
    if isinstance(statement, Created):
        taken = Arguments(f"CREATE {statement.kind.upper()}", where, registry)
        if _declare_dataset(statement, text, file, taken) and statement.fed_by is not None:
            _declare(statement.fed_by, text, file, registry, settings)
    elif isinstance(statement, Query):
        _declare_query(statement, Arguments("CREATE FLOW" if statement.name else "AS", where, registry), settings)
    elif isinstance(statement, ChangeFlow):
        taken = Arguments("AUTO CDC", where, registry)
        said = {"keys": None, **statement.said}
        declare_changes(
            taken,
            target=without_live(statement.target),
            snapshot=False,
            name=statement.name,
            comment=statement.comment,
            spark_conf=settings,
            **said,
        )
    else:
        hint = "leave it out: names mean the datasets of the pipeline, other tables are named with their database"
        text_of = f"ignored: {statement.text}"
        registry.warn(ProjectError("SETTING_IGNORED", text_of, where=where, hint=hint))


def _declare_dataset(created: Created, text: str, file: str, taken: Arguments) -> bool:
    declared = declare_dataset(taken, created.kind, created.name, taken.where, ignored=created.ignored, **created.said)
    if declared and created.rules:
        rules = [Expectation(r.name, r.condition, r.action, place(text, r.at, file)) for r in created.rules]
        taken.registry.add_rules(declared, list(rules))
    return declared is not None


def _declare_query(query: Query, taken: Arguments, settings: dict[str, str]) -> None:
    text = without_live_names(query.text)
    found = sql_names(text)
    target = without_live(query.target)
    declare_flow(
        taken,
        target if query.name is None else query.name,
        target,
        _runs(text),
        settings,
        comment=query.comment,
        once=query.once,
        inputs=found.names,
        where=taken.where,
    )


def _runs(text: str) -> Callable[[], Any]:
    def query() -> Any:
        from pyspark.sql import SparkSession

        return SparkSession.active().sql(text)

    return query
