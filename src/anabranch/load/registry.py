"""Where declarations go while a project's files are run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MethodType
from typing import Any

from anabranch.core.declarations import Dataset, Expectation, Flow, Unique
from anabranch.core.detectors import Detector
from anabranch.core.names import HOME, resolve
from anabranch.core.origin import EPOCH, with_origin_columns
from anabranch.core.where import Where
from anabranch.errors import ProjectError
from anabranch.load.durations import parse_duration
from anabranch.load.late_binding import Seen, as_seen, seen_by
from anabranch.load.zones_transformers import Registered

Rule = Expectation | Unique
_MOST_LAYERS = 50

#: Properties by which a table says how often its channel looks for new rows (as on Databricks), and that it has a
#: channel of its own.
TRIGGER, DETACHED = "pipelines.trigger.interval", "anabranch.detached"
OBSERVE = "anabranch.observe"
#: Who answers for a table, what else is to be known of it (`anabranch.tags.NAME`), and that its rows say where they
#: came from; of a Kafka sink that is an option, which becomes headers.
OWNER, TAGS, ORIGIN, ORIGIN_HEADERS = "anabranch.owner", "anabranch.tags.", "anabranch.origin", "origin.headers"


@dataclass(frozen=True, slots=True)
class DeclaredFlow:
    """A flow as declared, with what its function saw at that moment.

    The inputs of one made from a statement are known; those of a function are looked for in its code.
    """

    flow: Flow
    seen: Seen
    inputs_said: bool = False


@dataclass(slots=True)
class _OfFunction:
    """The rules on a function, and the dataset it feeds; the function is kept, so that its id stays its own."""

    function: Any
    rules: list[Rule] = field(default_factory=list)
    feeds: str | None = None
    declared: bool = False


@dataclass(slots=True)
class Registry:
    """What has been declared so far, and what was wrong with it.

    A faulty declaration is reported and the file goes on: one run finds the faults of all of them.
    """

    home: tuple[str, str] = HOME  # the catalogue and the database that names leave out
    datasets: list[Dataset] = field(default_factory=list)
    flows: list[DeclaredFlow] = field(default_factory=list)
    problems: list[ProjectError] = field(default_factory=list)
    warnings: list[ProjectError] = field(default_factory=list)
    detectors: list[Detector] = field(default_factory=list)
    transformers: dict[str, Registered] = field(default_factory=dict)  # of zones, by name
    _functions: dict[Any, _OfFunction] = field(default_factory=dict)
    _rules: list[tuple[str, list[Rule]]] = field(default_factory=list)
    _handlers: dict[str, Seen] = field(default_factory=dict)

    def add_dataset(self, dataset: Dataset) -> None:
        self.datasets.append(dataset)
        if dataset.handler is not None:
            self._handlers[dataset.name] = seen_by(dataset.handler)

    def add_flow(self, flow: Flow, *, inputs_said: bool = False) -> None:
        self.flows.append(DeclaredFlow(flow, seen_by(flow.query), inputs_said))

    def report(self, problem: ProjectError) -> None:
        self.problems.append(problem)

    def warn(self, warning: ProjectError) -> None:
        self.warnings.append(warning)

    def add_rules(self, dataset: str, rules: list[Rule]) -> None:
        """Rules for a dataset that may be declared later, above those it has."""
        self._rules.insert(0, (dataset, rules))

    def rules_on(self, function: Any, rules: list[Rule]) -> None:
        """Rules written over a function: for the dataset it feeds, or will feed once the decorator above is reached."""
        known = self._of(function)
        if not known.declared:
            known.rules[:0] = rules
        elif known.feeds:
            self.add_rules(known.feeds, rules)

    def feeds(self, function: Any, dataset: str | None) -> None:
        """The function has been declared; with no dataset if the declaration was faulty."""
        own, *wrapped = self._layers(function)
        own.declared, own.feeds = True, dataset
        # Rules below a decorator of the user's are those of what it wraps.
        below = [known for known in wrapped if known.rules and not known.declared]
        rules = [*own.rules, *(rule for known in below for rule in known.rules)]
        for known in below:
            known.declared, known.feeds = True, dataset
        if dataset and rules:
            self.add_rules(dataset, rules)

    def target(self, name: str) -> str:
        """The dataset that a flow or a rule means; a name that nothing has stays as it is."""
        return resolve(name, [d.name for d in self.datasets], self.home) or name

    def finished_datasets(self) -> tuple[Dataset, ...]:
        """Every dataset with its rules; rules on functions that no decorator declared are reported."""
        for known in [each for each in self._functions.values() if each.rules and not each.declared]:
            # Rules above a decorator of the user's, which is above the one that declared.
            declared = next((each for each in self._layers(known.function) if each.declared), None)
            if declared is None:
                hint = "put @dp.table, @dp.temporary_view or another decorator that declares a dataset above it"
                text = "an expectation on a function that declares no dataset"
                self.report(ProjectError("EXPECTATION_ALONE", text, where=known.rules[0].where, hint=hint))
            elif declared.feeds:
                self.add_rules(declared.feeds, known.rules)
        return tuple(self._finished(dataset) for dataset in self.datasets)

    def _finished(self, dataset: Dataset) -> Dataset:
        rules: list[Rule] = [*dataset.expectations, *dataset.unique]
        for name, more in ((self.target(name), more) for name, more in self._rules):
            # The same rule over two flows into one table is one rule of the table.
            rules += [rule for rule in more if name == dataset.name and not any(_same(rule, old) for old in rules)]
        handler = dataset.handler and as_seen(dataset.handler, self._handlers[dataset.name])
        origin = _says_true(dataset.properties, ORIGIN) or _says_true(dataset.options, ORIGIN_HEADERS)
        in_column = origin and dataset.is_output and dataset.format != "kafka"
        said = dataset.properties
        return dataclasses.replace(
            dataset,
            owner=dataset.owner or said.get(OWNER),
            tags={**dataset.tags, **{k.removeprefix(TAGS): v for k, v in said.items() if k.startswith(TAGS)}},
            origin=dataset.origin or (origin and dataset.is_output),
            schema=with_origin_columns(dataset.schema, epoch=in_column)
            if origin and dataset.is_output and dataset.schema
            else dataset.schema,
            epoch_column=dataset.epoch_column or (EPOCH if in_column else None),
            expectations=tuple(rule for rule in rules if isinstance(rule, Expectation)),
            unique=tuple(rule for rule in rules if isinstance(rule, Unique)),
            handler=handler,
            trigger=dataset.trigger if dataset.trigger is not None else self._trigger(dataset),
            detached=dataset.detached or dataset.properties.get(DETACHED, "").lower() == "true",
            observe=dataset.observe if dataset.observe is not None else _observed(dataset.properties.get(OBSERVE, "")),
        )

    def _trigger(self, dataset: Dataset) -> float | None:
        said = dataset.properties.get(TRIGGER)
        try:
            return None if said is None else parse_duration(said)
        except ValueError as error:
            hint = 'a number with its unit, such as "10 minutes"'
            text = f'"{dataset.name}": {TRIGGER}: {error}'
            self.report(ProjectError("PROJECT_BAD_ARGUMENT", text, where=dataset.where, hint=hint))
            return None

    def _layers(self, function: Any) -> list[_OfFunction]:
        """What is known of a function and of those it wraps, outermost first."""
        found = [self._of(function)]
        while (function := getattr(function, "__wrapped__", None)) is not None and len(found) < _MOST_LAYERS:
            found.append(self._of(function))
        return found

    def _of(self, function: Any) -> _OfFunction:
        # `obj.method` is another object each time it is written.
        bound = isinstance(function, MethodType)
        key = (id(function.__self__), function.__func__) if bound else id(function)
        return self._functions.setdefault(key, _OfFunction(function))


def _observed(said: str) -> tuple[str, ...] | None:
    """The columns that a property names: `true` is all of them.

    >>> _observed("true"), _observed("id, amount"), _observed("false")
    ((), ('id', 'amount'), None)
    """
    if said.strip().lower() in ("", "true", "false"):
        return () if said.strip().lower() == "true" else None
    return tuple(name.strip() for name in said.split(",") if name.strip())


def _says_true(said: Mapping[str, str], key: str) -> bool:
    return said.get(key, "").strip().lower() == "true"


def _same(one: Rule, other: Rule) -> bool:
    return dataclasses.replace(one, where=other.where) == other


_active: ContextVar[Registry | None] = ContextVar("anabranch_registry", default=None)


@contextmanager
def registering(registry: Registry) -> Iterator[Registry]:
    """Declarations made inside go to `registry`."""
    token = _active.set(registry)
    try:
        yield registry
    finally:
        _active.reset(token)


def current_registry() -> Registry | None:
    """The registry that declarations go to now; none outside of loading."""
    return _active.get()


def active_registry(name: str, where: Where) -> Registry:
    """The registry that `name`, used at `where`, declares to."""
    registry = _active.get()
    if registry is None:
        text = f"{name} was called outside a pipeline: running the file with Python declares nothing"
        hint = "put the file in a project and use `anabranch run`; `anabranch init` makes a project"
        raise ProjectError("NOT_LOADING", text, where=where, hint=hint)
    return registry
