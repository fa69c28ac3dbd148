"""Entities on their way through zones: what the files say, with everything decided and every place known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.declarations import Expectation, Unique
from anabranch.core.where import Where


@dataclass(frozen=True, slots=True)
class Reading:
    """How an entity's records are read: files below `path`, or a topic.

    `letters` tells that records which cannot be read are put aside, `origin` that rows say where they come from.
    """

    format: str
    where: Where
    path: str | None = None
    topic: str | None = None
    bootstrap: str | None = None
    starting: str | None = None
    envelope: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    max_files: int | None = None
    max_per_trigger: int | None = None
    clean: str | None = None
    archive: str | None = None
    explode: str | None = None
    letters: bool = False
    origin: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """A transformer of a zone. `function` is the project's own, or is written as `module:function`.

    `given` are the parameters that it takes beside its arguments: the entity's name, the zone's name.
    """

    name: str
    function: Callable[..., Any] | str = field(compare=False)
    arguments: Mapping[str, Any]
    where: Where  # of the function, or in the file that names it
    given: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Zone:
    """One zone of one entity: a table, and how its rows come from those of the zone before."""

    name: str
    table: str
    where: Where
    steps: tuple[Step, ...] = ()
    rules: tuple[Expectation | Unique, ...] = ()
    upsert: bool = False
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    deletes: str | None = None
    history: bool = False
    partition_by: tuple[str, ...] = ()
    format: str = "delta"
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    cadence: float | None = None  # seconds; the zone has a channel of its own
    comment: str | None = None
    observe: tuple[str, ...] | None = None  # columns that are profiled; () for all of them


@dataclass(frozen=True, slots=True)
class Entity:
    """One kind of record; `zones` are those that are enabled, in their order."""

    name: str
    where: Where
    reading: Reading
    zones: tuple[Zone, ...]
    trigger: float | None = None
    owner: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
