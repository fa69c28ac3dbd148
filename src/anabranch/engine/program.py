"""Put the flows of a channel into one wide frame, so that one streaming query feeds every output.

A program is the seam between planning and staging: a frame, and for each output which of its columns to take and which
boolean column says that a row is for it. Here every flow is a branch of a union.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.engine.catalyst import sources
from anabranch.engine.flows import union_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.core.plan import ChannelPlan


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """What one flow gives to one output: `columns` are (column of the wide frame, column of the output)."""

    output: str
    mask: str | None
    columns: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Program:
    """One streaming frame for a whole channel."""

    frame: DataFrame
    parts: tuple[OutputColumns, ...]
    sources: tuple[str, ...]


def make_program(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> Program:
    """Join the flows that feed outputs.

    Branches are ordered by what they read, then by name: Spark numbers the sources of a checkpoint by their place in
    the plan, and moving a flow in the user's file must not renumber them.
    """
    outputs = {d.name for d in plan.outputs}
    feeding = [s.flow for s in plan.flows if s.flow.target in outputs]
    feeding.sort(key=lambda f: (sources(frames[f.name]), f.name))
    schemas = output_schemas(plan, frames)
    branches = [_aligned(frames[f.name], schemas[f.target]) for f in feeding]
    names = [[f"b{i}_{j}" for j in range(len(b.columns))] for i, b in enumerate(branches)]
    parts = tuple(
        OutputColumns(f.target, f"b{i}" if len(branches) > 1 else None, tuple(zip(names[i], b.columns, strict=True)))
        for i, (f, b) in enumerate(zip(feeding, branches, strict=True))
    )
    frame = _union(branches, names)
    return Program(frame, parts, sources(frame))


def output_schemas(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> dict[str, StructType]:
    """The columns of each output: those of all its flows together."""
    feeding = {d.name: [s.flow for s in plan.flows if s.flow.target == d.name] for d in plan.outputs}
    return {name: union_of([frames[f.name] for f in flows]).schema for name, flows in feeding.items()}


def _aligned(frame: DataFrame, schema: StructType) -> DataFrame:
    """The frame with all columns of the output; those it lacks are null."""
    if frame.columns == schema.names:
        return frame
    own = {name.lower() for name in frame.columns}
    return frame.select(
        *(F.col(f"`{f.name}`") if f.name.lower() in own else F.lit(None).cast(f.dataType).alias(f.name) for f in schema)
    )


def _union(branches: Sequence[DataFrame], names: Sequence[Sequence[str]]) -> DataFrame:
    if len(branches) == 1:
        return branches[0].toDF(*names[0])
    schemas = [b.schema for b in branches]
    return reduce(DataFrame.unionAll, [_branch(b, i, schemas, names) for i, b in enumerate(branches)])


def _branch(frame: DataFrame, own: int, schemas: Sequence[StructType], names: Sequence[Sequence[str]]) -> DataFrame:
    """A branch with the columns of all branches, null where they are not its own, and one mask per branch."""
    renamed = frame.toDF(*names[own])
    columns = [F.lit(i == own).alias(f"b{i}") for i in range(len(schemas))]
    for i, schema in enumerate(schemas):
        for name, field in zip(names[i], schema.fields, strict=True):
            columns.append(F.col(name) if i == own else F.lit(None).cast(field.dataType).alias(name))
    return renamed.select(*columns)
