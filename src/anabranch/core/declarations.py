"""What the user declared: datasets and the flows that feed them, each knowing its file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from anabranch.core.changes import Changes
from anabranch.core.detectors import Detector
from anabranch.core.names import HOME
from anabranch.core.where import Where


class Kind(StrEnum):
    """What a dataset is."""

    STREAMING_TABLE = "streaming table"
    MATERIALIZED_VIEW = "materialized view"
    TEMPORARY_VIEW = "temporary view"
    SINK = "sink"


class Action(StrEnum):
    """What becomes of a row that breaks an expectation."""

    WARN = "warn"  # it is written, and counted
    DROP = "drop"  # it is left out, and counted
    QUARANTINE = "quarantine"  # it goes to the quarantine table of its dataset
    FAIL = "fail"  # the epoch is given up before anything is visible


@dataclass(frozen=True, slots=True)
class Expectation:
    """A rule for the rows of a dataset: SQL that is true for a good row. Null is not true.

    >>> Expectation("has_id", "id IS NOT NULL", Action.DROP, Where("pipeline.py", 3)).action.value
    'drop'
    """

    name: str
    condition: str
    action: Action
    where: Where


@dataclass(frozen=True, slots=True)
class Unique:
    """A rule for all rows of a dataset together: no two have the same values in `columns`.

    >>> Unique("one_per_id", ("id",), Action.FAIL, Where("pipeline.py", 3)).columns
    ('id',)
    """

    name: str
    columns: tuple[str, ...]
    action: Action
    where: Where


@dataclass(frozen=True, slots=True)
class Dataset:
    """A name that flows feed: a table, a view or a sink.

    >>> orders = Dataset("orders", Kind.STREAMING_TABLE, Where("pipeline.py", 3))
    >>> orders.is_output
    True
    """

    name: str
    kind: Kind
    where: Where
    comment: str | None = None
    schema: str | None = None  # DDL text; a StructType is kept as its DDL
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    format: str = "delta"
    options: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    expectations: tuple[Expectation, ...] = ()
    unique: tuple[Unique, ...] = ()
    handler: Callable[..., Any] | None = field(default=None, compare=False)  # f(df, batch_id) of a foreach_batch sink
    ignored: tuple[str, ...] = ()  # what was said and has no effect here, for a warning
    quarantine: str | None = None  # the table for rows that are put aside, if it is not called after the dataset
    epoch_column: str | None = None  # a column that gets the number of the epoch when a row is written
    owner: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    origin: bool = False  # every row says where it came from
    trigger: float | None = None  # seconds between two looks of its channel for new rows; the project's without it
    observe: tuple[str, ...] | None = None  # columns that are profiled as rows are written; () for all of them
    detached: bool = False  # fed by a channel of its own, which reads the tables before it as they come

    @property
    def is_output(self) -> bool:
        """Whether rows of this dataset are written anywhere."""
        return self.kind is not Kind.TEMPORARY_VIEW


@dataclass(frozen=True, slots=True)
class Flow:
    """A query that feeds a dataset.

    `inputs` are the datasets its code names, as far as they can be known without running it; `inputs_known` is False
    when some of them are computed.
    """

    name: str
    target: str
    query: Callable[..., Any] = field(compare=False)
    where: Where
    inputs: tuple[str, ...] = ()
    inputs_known: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None
    mode: Literal["append", "update"] = "append"
    once: bool = False  # runs in the first epoch only
    changes: Changes | None = None  # how rows change the target by key; without it they are appended
    ignored: tuple[str, ...] = ()  # what was said and has no effect here, for a warning

    @property
    def at_rest(self) -> bool:
        """Whether it reads tables as they are, and not what comes in."""
        return self.once or (self.changes is not None and self.changes.snapshot)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything one project declares."""

    name: str
    datasets: tuple[Dataset, ...]
    flows: tuple[Flow, ...]
    where: Where
    home: tuple[str, str] = HOME  # the catalogue and the database that names leave out
    detectors: tuple[Detector, ...] = ()
