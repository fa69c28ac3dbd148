"""Transformers by their names: those that come with us with their arguments, and those of the project."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, RootModel, ValidationError
from pydantic.functional_validators import BeforeValidator

from anabranch.core.where import Where


@dataclass(frozen=True, slots=True)
class TransformerCall:
    """A transformer as a file names it, with its arguments.

    >>> str(TransformerCall("flatten", {"separator": "_"}))
    'flatten'
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Registered:
    """A function of the project; `takes` are the names of its parameters, None if it takes any."""

    name: str
    function: Callable[..., Any] = field(compare=False)
    where: Where
    takes: frozenset[str] | None = None
    needs: frozenset[str] = frozenset()


#: What a function of the project may ask for by having such a parameter.
GIVEN = ("entity", "zone")


def read_call(value: Any) -> TransformerCall:
    """What an item of `transformers` says; ValueError if it says something else.

    >>> read_call("audit"), read_call({"trim": {"columns": ["a"]}}).arguments
    (TransformerCall(name='audit', arguments={}), {'columns': ['a']})
    """
    if isinstance(value, str) and value.strip():
        return TransformerCall(value.strip())
    if isinstance(value, Mapping) and len(value) == 1:
        name, arguments = next(iter(value.items()))
        if isinstance(arguments, Mapping) or arguments is None:
            return TransformerCall(str(name), dict(arguments or {}))
        raise ValueError(f"the arguments of {name} must be a mapping of names to values")
    raise ValueError("a transformer must be a name, or one name with its arguments")


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Words = Annotated[list[str], BeforeValidator(_one_or_more)]


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _None(_Arguments):
    pass


class _Flatten(_Arguments):
    separator: str = "_"
    columns: _Words | None = None


class _Explode(_Arguments):
    column: str
    outer: bool = False
    prefix: str = ""


class _Trim(_Arguments):
    columns: _Words | None = None
    empty_to_null: bool = True


class _Standardise(_Arguments):
    upper: _Words = []
    lower: _Words = []
    collapse: _Words = []
    replace: dict[str, dict[str, str]] = {}


class _Dedupe(_Arguments):
    keys: _Words
    sequence_by: str | None = None
    within: str | None = None
    at: str | None = None


class _Named(RootModel[dict[str, str]]):
    pass


#: Name -> the function and what it takes. `validate` is rules for the rows that the zone ends with.
BUILT_IN: Mapping[str, tuple[str, type[BaseModel]]] = {
    "snake_case": ("anabranch.operators.snake_case:snake_case", _None),
    "audit": ("anabranch.operators.audit:audit", _None),
    "cast": ("anabranch.operators.cast:cast", _Named),
    "validate": ("", _Named),
    "flatten": ("anabranch.operators.flatten:flatten", _Flatten),
    "explode": ("anabranch.operators.explode:explode", _Explode),
    "dedupe": ("anabranch.operators.dedupe:dedupe", _Dedupe),
    "trim": ("anabranch.operators.trim:trim", _Trim),
    "standardise": ("anabranch.operators.standardise:standardise", _Standardise),
}


def argument_faults(call: TransformerCall, registered: Registered | None) -> list[tuple[tuple[str, ...], str]]:
    """What is wrong with the arguments of a call: the path of each, and why."""
    if call.name in BUILT_IN and registered is None:
        try:
            BUILT_IN[call.name][1].model_validate(dict(call.arguments))
        except ValidationError as error:
            return [
                (tuple(str(s) for s in fault["loc"]), _words(fault["type"], fault["msg"])) for fault in error.errors()
            ]
        return []
    if registered is None or registered.takes is None:
        return []
    unknown = [((name,), "unknown argument") for name in call.arguments if name not in registered.takes]
    missing = [((name,), "missing argument") for name in sorted(registered.needs - call.arguments.keys())]
    return [*unknown, *missing]


def plain_arguments(call: TransformerCall) -> Mapping[str, Any]:
    """The arguments of a transformer of ours as its function takes them: one word for a list is a list of it."""
    found: Mapping[str, Any] = (
        BUILT_IN[call.name][1].model_validate(dict(call.arguments)).model_dump(exclude_unset=True)
    )
    return {"types": found} if call.name == "cast" else found


def known_arguments(call: TransformerCall, registered: Registered | None) -> list[str]:
    """The names of the arguments that there are."""
    if registered is not None:
        return sorted((registered.takes or frozenset()) - {*GIVEN})
    model = BUILT_IN[call.name][1]
    return [] if issubclass(model, RootModel) else list(model.model_fields)


def _words(kind: str, message: str) -> str:
    return {"extra_forbidden": "unknown argument", "missing": "missing argument"}.get(kind, message)


def registered(name: str, function: Callable[..., Any], where: Where) -> Registered:
    """A function of the project with what it takes beside the rows."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters):
        takes = None
    else:
        takes = frozenset(p.name for p in parameters)
    needs = frozenset(
        p.name
        for p in parameters
        if p.default is inspect.Parameter.empty
        and p.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        and p.name not in GIVEN
    )
    return Registered(name, function, where, takes, needs)
