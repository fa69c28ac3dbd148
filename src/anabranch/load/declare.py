"""Check what a declaration says and hand it to the registry; both `pipelines` modules end here."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.core.changes import Changes
from anabranch.core.declarations import Dataset, Flow, Kind
from anabranch.core.where import Where
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.registry import Registry
from anabranch.load.schemas import as_ddl
from anabranch.load.source import definition_of
from anabranch.load.standin import NeedsSpark, StandIn

_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")
_QUOTED = re.compile(r"`([\w-]+)`")
_NEEDED_OPTIONS = {
    **dict.fromkeys(("delta", "parquet", "json", "csv", "orc", "text", "avro"), '{"path": "..."}'),
    "kafka": '{"kafka.bootstrap.servers": "...", "topic": "..."}',
}


@dataclass(slots=True)
class Arguments:
    """The arguments of one call in a user's file: each is checked as it is taken, every fault is reported."""

    call: str  # as the user knows it, such as "dp.table"
    where: Where
    registry: Registry
    faults: int = field(default=0)

    def fault(self, code: str, message: str, hint: str) -> None:
        self.faults += 1
        self.registry.report(ProjectError(code, f"{self.call}: {message}", where=self.where, hint=hint))

    def unknown(self, given: Iterable[str], known: Iterable[str]) -> None:
        """Report every argument that does not exist."""
        known = list(known)
        for name in given:
            hint = did_you_mean(name, known) or f"known arguments: {', '.join(known)}"
            self.fault("PROJECT_UNKNOWN_ARGUMENT", f'unknown argument "{name}"', hint)

    def name(self, value: Any, argument: str = "name") -> str | None:
        """A name of one or more parts; it becomes a folder, so nothing else is allowed in it."""
        if value is None:
            self.fault("PROJECT_MISSING_ARGUMENT", f"{argument} is missing", f'write {argument}="..."')
        elif not isinstance(value, str):
            self.wrong_type(argument, "text", value, f'write {argument}="..."')
        elif not _NAME.fullmatch(name := _QUOTED.sub(r"\1", without_live(value))):
            hint = "use letters, digits, _ and -, with dots between catalog, database and table"
            self.fault("PROJECT_BAD_NAME", f'"{value}" is not a name for a dataset or flow', hint)
        else:
            return name
        return None

    def text(self, argument: str, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        self.wrong_type(argument, "text", value, f'write {argument}="..."')
        return None

    def flag(self, argument: str, value: Any) -> bool:
        if value is not None and not isinstance(value, bool):
            self.wrong_type(argument, "True or False", value, f"write {argument}=True")
        return value is True

    def names(self, argument: str, value: Any) -> tuple[str, ...]:
        if value is None:
            return ()
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.wrong_type(argument, "a list of column names", value, f'write {argument}=["..."]')
        return ()

    def observed(self, value: Any) -> tuple[str, ...] | None:
        """The columns to profile: () for all, None for none."""
        return (
            () if value is True else None if value is None or value is False else self.names("observe", value) or None
        )

    def mapping(self, argument: str, value: Any) -> dict[str, str]:
        """Text to text; numbers and truth values are taken as they would be typed in a Spark setting."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.wrong_type(argument, "a dict of text to text", value, f'write {argument}={{"...": "..."}}')
            return {}
        for key, item in value.items():
            if not isinstance(key, str) or not isinstance(item, str | int | float):
                self.wrong_type(f"{argument}[{key!r}]", "text", item, "write it as text")
                return {}
        return {key: str(item).lower() if isinstance(item, bool) else str(item) for key, item in value.items()}

    def schema(self, value: Any) -> str | None:
        try:
            return as_ddl(value)
        except TypeError:
            self.wrong_type("schema", "DDL text or a StructType", value, 'write schema="id BIGINT, name STRING"')
            return None

    def query(self, function: Any) -> bool:
        """Whether `function` can be called as a flow is: with nothing."""
        if not callable(function) or inspect.isclass(function):
            self.wrong_type(
                "the decorated object", "a function", function, "decorate a function that returns a DataFrame"
            )
            return False
        needed = [name for name, parameter in _parameters(function).items() if _is_needed(parameter)]
        if needed:
            hint = "give it a default value, or make the function inside another one that takes it"
            self.fault("PROJECT_BAD_ARGUMENT", f"the function needs an argument, {', '.join(needed)}", hint)
        return not needed

    def wrong_type(self, argument: str, expected: str, value: Any, hint: str) -> None:
        """Report a value of the wrong type; one that only Spark can compute may be right."""
        if any(isinstance(item, StandIn) for item in (value if isinstance(value, list | tuple) else [value])):
            raise NeedsSpark(f"{argument} is computed by Spark")
        self.fault("PROJECT_BAD_ARGUMENT", f"{argument} must be {expected}, not {type(value).__name__}", hint)


def declare_dataset(
    taken: Arguments,
    kind: Kind,
    name: Any,
    where: Where,
    *,
    comment: Any = None,
    schema: Any = None,
    partition_cols: Any = None,
    cluster_by: Any = None,
    format: Any = None,  # noqa: A002 the name users know it by
    options: Any = None,
    table_properties: Any = None,
    path: Any = None,
    observe: Any = None,
    handler: Callable[..., Any] | None = None,
    ignored: tuple[str, ...] = (),
) -> str | None:
    """Add a dataset and return its name; one with a usable name is added even if something else is wrong with it."""
    checked_name = taken.name(name)
    place = taken.text("path", path)
    settings = taken.mapping("options", options) | ({"path": place} if place else {})
    checked_format = taken.text("format", format)
    dataset = Dataset(
        name=checked_name or "",
        kind=kind,
        where=where,
        comment=taken.text("comment", comment),
        schema=taken.schema(schema),
        partition_by=taken.names("partition_cols", partition_cols),
        cluster_by=taken.names("cluster_by", cluster_by),
        format=checked_format or "delta",
        options=settings,
        properties=taken.mapping("table_properties", table_properties),
        observe=taken.observed(observe),
        handler=handler,
        ignored=ignored,
    )
    if kind is Kind.SINK and not options and checked_format in _NEEDED_OPTIONS:
        hint = f"write options={_NEEDED_OPTIONS[checked_format]}"
        taken.fault("PROJECT_MISSING_ARGUMENT", f'a sink of format "{dataset.format}" needs options', hint)
    if checked_name:
        taken.registry.add_dataset(dataset)
    return checked_name


def declare_flow(
    taken: Arguments,
    name: Any,
    target: Any,
    query: Callable[..., Any],
    spark_conf: Any,
    *,
    comment: Any = None,
    once: Any = False,
    mode: Literal["append", "update"] = "append",
    changes: Changes | None = None,
    inputs: tuple[str, ...] | None = None,
    where: Where | None = None,
    ignored: tuple[str, ...] = (),
) -> str | None:
    """Add a flow and return the target it feeds; `inputs` if they need not be looked for in the query's code."""
    checked_target = taken.name(target, "target")
    checked_name = checked_target if name is target else taken.name(name)
    flow = Flow(
        name=checked_name or "",
        target=checked_target or "",
        query=query,
        where=where or definition_of(query) or taken.where,
        inputs=inputs or (),
        settings=taken.mapping("spark_conf", spark_conf),
        comment=taken.text("comment", comment),
        mode=mode,
        once=taken.flag("once", once),
        changes=changes,
        ignored=ignored,
    )
    if not checked_name or not checked_target:
        return None
    taken.registry.add_flow(flow, inputs_said=inputs is not None)
    return checked_target


def without_live(name: str) -> str:
    """A name without the schema `LIVE`, which older pipelines of Databricks put before their own datasets.

    >>> without_live("LIVE.orders"), without_live("live.orders"), without_live("lively.orders")
    ('orders', 'orders', 'lively.orders')
    """
    return re.sub(r"^`?live`?\.", "", name, flags=re.IGNORECASE)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # some callables written in C do not say
        return {}


def _is_needed(parameter: inspect.Parameter) -> bool:
    open_ended = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not open_ended
