"""Flows run in one pass beside the same flows run each alone by Spark, which is what they must equal."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.core.channels import Channel
from anabranch.core.declarations import Dataset, Flow, Kind
from anabranch.core.plan import ChannelPlan, RunFlow, StageOutput
from anabranch.core.where import Where
from anabranch.engine.fuse import SETTINGS
from anabranch.engine.program import Program, make_program
from anabranch.engine.rows import take

HERE = Where("together.py")


def plan_of(targets: Mapping[str, str]) -> ChannelPlan:
    """A channel of flows: flow -> the table it feeds."""
    datasets = tuple(Dataset(name, Kind.STREAMING_TABLE, HERE) for name in dict.fromkeys(targets.values()))
    flows = tuple(Flow(name, target, lambda: None, HERE) for name, target in targets.items())
    steps = (*(RunFlow(f, ()) for f in flows), *(StageOutput(d) for d in datasets))
    return ChannelPlan(Channel("made", datasets, flows), steps)


def program_of(frames: Mapping[str, DataFrame]) -> Program:
    """The program of flows that feed a table each, named as the flow."""
    return make_program(plan_of({name: name for name in frames}), frames)


def taken(program: Program, wide: pa.Table) -> dict[str, Counter[str]]:
    """The rows of each output in the wide frame's rows."""
    found: dict[str, Counter[str]] = {part.output: Counter() for part in program.parts}
    for part in program.parts:
        for batch in wide.to_batches():
            found[part.output] += rows(pa.Table.from_batches([take(batch, part)]))
    return found


def rows(table: pa.Table) -> Counter[str]:
    """Rows as texts that tell apart whatever differs; as often as they occur."""
    columns = [[_text(value) for value in column.to_pylist()] for column in table.columns]
    return Counter(zip(*columns, strict=True)) if columns else Counter({(): table.num_rows})  # type: ignore[arg-type]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "nan" if value != value else struct.pack(">d", value).hex()
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_text(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    return repr(value)


def collected(frame: DataFrame) -> pa.Table:
    """The rows of a frame as Spark gives them.

    `toArrow` casts them to the very same types, which pyarrow refuses where a field that is never null stands in a
    struct that is.
    """
    return pa.Table.from_batches(frame._collect_as_arrow(empty_list_if_zero_records=False))  # type: ignore[operator]


def alone(frame: DataFrame) -> Counter[str] | str:
    """The rows of a flow run alone, or the name of the error it raises."""
    try:
        return rows(collected(frame))
    except Exception as error:  # noqa: BLE001  whatever it raises, the fused form must raise as well
        return condition(error)


def condition(error: Exception) -> str:
    """What went wrong, in Spark's words."""
    found = getattr(error, "getCondition", lambda: None)()
    return str(found or type(error).__name__)


def same(frames: Mapping[str, DataFrame]) -> Program:
    """Check that the flows in one pass give what each gives alone; the program, to look at it."""
    for frame in frames.values():
        # Alone as well: without it Spark computes what a short circuit would not, and a flow may raise for that.
        for key, value in SETTINGS.items():
            frame.sparkSession.conf.set(key, value)
    expected = {name: alone(frame) for name, frame in frames.items()}
    errors = {answer for answer in expected.values() if isinstance(answer, str)}
    program = program_of(frames)
    found = in_one_pass(program)
    if isinstance(found, str):
        assert found in errors, f"raises {found}, which no flow does alone"
        return program
    assert not errors, f"does not raise {errors}, which a flow does alone"
    for name, answer in expected.items():
        assert found[name] == answer, f"{name} differs: {program.how}"
    return program


def in_one_pass(program: Program) -> dict[str, Counter[str]] | str:
    """The rows of each output, or the name of the error that is raised."""
    try:
        return taken(program, collected(program.frame))
    except Exception as error:  # noqa: BLE001  it is compared with those of the flows alone
        return condition(error)


def executed(frame: DataFrame) -> str:
    """The physical plan."""
    return str(frame._jdf.queryExecution().executedPlan().toString())
