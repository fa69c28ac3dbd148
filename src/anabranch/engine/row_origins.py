"""Rows that say where they came from: a column `_origin` for tables that ask for one.

A flow's plan is rewritten before anything is fused: at its source the place of a row is put into a column, and every
step above gives that column on, so that rows which are exploded all keep the place of the one they were. It stays one
pass. Where many rows become one, or code that cannot be looked into gives rows, there is no such place: `_origin` says
the flow alone, and `anabranch plan` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.core.origin import EPOCH, ROW_ORIGIN, ROW_ORIGIN_FIELDS
from anabranch.engine.catalyst import Catalyst, catalyst_of
from anabranch.engine.catalyst_columns import input_name
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, identity, items, kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.core.declarations import Dataset, Flow
    from anabranch.core.plan import ChannelPlan

#: Nodes that give the columns below on.
_GIVING_ON = frozenset(
    """
    CollectMetrics Deduplicate DeduplicateWithinWatermark EventTimeWatermark Filter Generate GlobalLimit LocalLimit
    Repartition RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias View Window
    """.split()  # noqa: SIM905  a list of a word per line is no easier to read
)

_REASONS = {
    "Aggregate": "it puts several rows together",
    "Distinct": "it puts rows together that are the same",
    "Join": "it joins rows of several streams",
    "MapInArrow": "a Python function gives its rows",
    "MapInPandas": "a Python function gives its rows",
}

_CARRIED = "__anabranch_origin"
#: Where a frame keeps why its rows have no place.
_REASON = "anabranch.origin"
_PLACE = ("source", "file", "position", "topic", "partition", "offset")


@dataclass(frozen=True)
class _Lost:
    """Why the place of a row cannot be followed."""

    reason: str


#: A plan, and the attribute in its output that has the origin.
_Carried = tuple[Node, Node]


def with_origin(frame: DataFrame, dataset: Dataset, flow: Flow) -> DataFrame:
    """The frame with `_origin`, and with `_epoch` if the number is to be written."""
    if flow.changes is not None and flow.changes.keeps_history:
        return frame  # rows are compared with those before, and an origin always differs
    if _is_origin(frame, ROW_ORIGIN):
        above, before = frame, F.col(ROW_ORIGIN)
        frame = above.withColumn(ROW_ORIGIN, _origin(before, flow.name, F.col(f"{ROW_ORIGIN}.flow")))
    else:
        carried = _carry(catalyst_of(frame.sparkSession), frame)
        if isinstance(carried, _Lost):
            reason = carried.reason
            frame = frame.withColumn(ROW_ORIGIN, _origin(None, flow.name, None))
            frame = frame.withMetadata(ROW_ORIGIN, {_REASON: reason})
        else:
            has_parent = "flow" in _fields(carried, _CARRIED)
            parent = F.col(f"{_CARRIED}.flow") if has_parent else None
            frame = carried.withColumn(ROW_ORIGIN, _origin(F.col(_CARRIED), flow.name, parent)).drop(_CARRIED)
    if dataset.epoch_column == EPOCH and EPOCH not in frame.columns:
        frame = frame.withColumn(EPOCH, F.lit(None).cast("bigint"))
    return frame


def origin_notes(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """Why rows of a channel's flows do not say where they came from, although that is asked for."""
    notes = []
    asking = {d.name for d in plan.outputs if d.origin}
    for flow in (s.flow for s in plan.flows if s.flow.target in asking and s.flow.name in frames):
        schema = frames[flow.name].schema
        if ROW_ORIGIN not in schema.names:
            notes.append(f'"{flow.target}" keeps the history of its rows, and has no {ROW_ORIGIN}')
        elif reason := schema[ROW_ORIGIN].metadata.get(_REASON):
            notes.append(f'rows of flow "{flow.name}" say no source in {ROW_ORIGIN}: {reason}')
    return tuple(notes)


def _origin(before: Column | None, flow: str, parent: Column | None) -> Column:
    types = dict(field.split(" ", 1) for field in ROW_ORIGIN_FIELDS)
    values = {name: before.getField(name) if before is not None else F.lit(None) for name in _PLACE}
    values |= {"flow": F.lit(flow), "parent": F.lit(None) if parent is None else parent}
    return F.struct(*(values[name].cast(types[name]).alias(name) for name in types))


def _carry(catalyst: Catalyst, frame: DataFrame) -> DataFrame | _Lost:
    plan = catalyst.inlined(analyzed(frame))
    own = items(plan.output())
    found = _carried(catalyst, plan)
    if isinstance(found, _Lost):
        return found
    below, origin = found
    try:
        return catalyst.frame(catalyst.project([*own, catalyst.alias(origin, _CARRIED)], below))
    except AnalysisException as error:
        return _Lost(f"Spark cannot give it on: {str(error).strip().splitlines()[0]}")


def _carried(catalyst: Catalyst, node: Node) -> _Carried | _Lost:
    """The plan with the origin of its rows among its columns."""
    name = kind(node)
    if name == "View" or not children_of(node):
        held = next((a for a in items(node.output()) if a.name() == ROW_ORIGIN), None)
        if held is not None:
            return node, held
    if not children_of(node):
        return _source(catalyst, node)
    if name == "Union":
        return _united(catalyst, node)
    place = _streaming_side(node) if name == "Join" else 0
    if place is None or (name not in _GIVING_ON and name not in ("Project", "Join")):
        return _Lost(_REASONS.get(name, f"it goes through {name}"))
    children = children_of(node)
    below = _carried(catalyst, children[place])
    if isinstance(below, _Lost):
        return below
    children[place], origin = below
    if name == "Project":
        return catalyst.project([*items(node.projectList()), origin], children[0]), origin
    above = catalyst.with_children(node, children)
    if identity(origin) not in [identity(a) for a in items(above.output())]:
        return _Lost(_REASONS.get(name, f"it goes through {name}"))
    return above, origin


def _streaming_side(join: Node) -> int | None:
    """Which side of a join the rows come from that the others are looked up for."""
    streaming = [number for number, child in enumerate(children_of(join)) if child.isStreaming()]
    return streaming[0] if len(streaming) == 1 else None


def _united(catalyst: Catalyst, union: Node) -> _Carried | _Lost:
    parts = []
    for child in children_of(union):
        found = _carried(catalyst, child)
        if isinstance(found, _Lost):
            return found
        below, origin = found
        shape = catalyst.frame(catalyst.project([catalyst.alias(origin, _CARRIED)], below)).schema[_CARRIED].dataType
        parts.append((catalyst.project([*items(child.output()), origin], below), shape))
    if len({shape.simpleString() for _, shape in parts}) > 1:
        return _Lost("it unites rows of a source with rows that have an origin already")
    above = catalyst.with_children(union, [plan for plan, _ in parts])
    return above, above.output().last()


def _source(catalyst: Catalyst, relation: Node) -> _Carried | _Lost:
    """A source with the place of each row, as far as it tells."""
    rows = catalyst.frame(relation)
    place: dict[str, Column] = {"source": F.lit(input_name(relation))}
    if {"topic", "partition", "offset"} <= set(rows.columns) and input_name(relation).startswith("kafka"):
        place |= {name: F.col(name) for name in ("topic", "partition", "offset")}
    elif _has_files(rows):
        place |= {"file": F.col("_metadata.file_path"), "position": F.col("_metadata.file_block_start")}
    types = dict(field.split(" ", 1) for field in ROW_ORIGIN_FIELDS)
    fields = [place.get(name, F.lit(None)).cast(types[name]).alias(name) for name in _PLACE]
    plan = analyzed(rows.withColumn(_CARRIED, F.struct(*fields)))
    return plan, plan.output().last()


def _has_files(rows: DataFrame) -> bool:
    try:
        rows.select("_metadata.file_path", "_metadata.file_block_start")
    except AnalysisException:
        return False
    return True


def _is_origin(frame: DataFrame, column: str) -> bool:
    return {"source", "flow"} <= _fields(frame, column)


def _fields(frame: DataFrame, column: str) -> set[str]:
    if column not in frame.columns:
        return set()
    shape = frame.schema[column].dataType
    return set(shape.fieldNames()) if isinstance(shape, StructType) else set()
