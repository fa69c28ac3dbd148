"""What the user declared: datasets and the flows that feed them, each knowing its file and line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from anabranch.core.where import Where


class Kind(StrEnum):
    """What a dataset is."""

    STREAMING_TABLE = "streaming table"
    MATERIALIZED_VIEW = "materialized view"
    TEMPORARY_VIEW = "temporary view"
    SINK = "sink"


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


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Everything one project declares."""

    name: str
    datasets: tuple[Dataset, ...]
    flows: tuple[Flow, ...]
    where: Where
