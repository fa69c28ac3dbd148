"""For a Structured Streaming job that wants the commit and no framework: one stream, any number of tables, together.

    from anabranch import fan_out

    job = fan_out(
        stream,                                             # any streaming DataFrame
        outputs={
            "bronze": lambda df: df,                        # a function over the stream's frame,
            "errors": "status >= 500",                      # a condition in SQL that picks rows,
            "users": Output(newest_user, keys=("id",), sequence_by="at"),       # or more about the table
        },
        storage="/lake/requests",
    )
    job.run_once()                                          # or: with job.start(): ...
    job.cut().sql("SELECT count(*) FROM errors")

An output may read another one as `spark.readStream.table("bronze")`. A job that must keep its own `foreachBatch` passes
`each_batch(outputs, storage=...)` to it instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.core.changes import Changes
from anabranch.core.declarations import Action, Dataset, Expectation, Flow, Kind, Pipeline, Unique
from anabranch.core.events import Event, Listener
from anabranch.core.where import Where
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.engine.run import RunSummary
    from anabranch.engine.started import Started
    from anabranch.load.project import Project
    from anabranch.read import Cut

Query = Callable[["DataFrame"], "DataFrame"]

#: The name under which the functions of the outputs get their input.
INPUT = "stream"


@dataclass(frozen=True)
class Output:
    """A table fed by a function over the stream's frame, or by the rows for which a condition in SQL holds.

    With `keys`, rows are upserted: the row with the greatest `sequence_by` of each key stays, and one for which
    `deletes` holds removes its key. Rules are SQL conditions by name; a row that breaks one of `expect` is counted,
    of `expect_or_drop` left out, of `expect_or_quarantine` put into the table `NAME_quarantine`, and one of
    `expect_or_fail` gives the epoch up, as does a row with the key of another one under `unique`.

    >>> Output("status >= 500", partition_by=("day",), expect_or_drop={"has_id": "id IS NOT NULL"}).format
    'delta'
    """

    query: Query | str
    partition_by: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    sequence_by: str | None = None
    deletes: str | None = None
    expect: Mapping[str, str] = field(default_factory=dict)
    expect_or_drop: Mapping[str, str] = field(default_factory=dict)
    expect_or_quarantine: Mapping[str, str] = field(default_factory=dict)
    expect_or_fail: Mapping[str, str] = field(default_factory=dict)
    unique: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    format: str = "delta"
    path: str | None = None  # default: below the storage folder
    properties: Mapping[str, str] = field(default_factory=dict)
    comment: str | None = None


@dataclass(frozen=True)
class FanOut:
    """A stream and what becomes of it; nothing runs before `run_once` or `start`."""

    stream: DataFrame
    outputs: Mapping[str, Output]
    project: Project
    listener: Listener

    def run_once(self) -> RunSummary:
        """Take in everything that is available, then stop."""
        from anabranch.engine.started import run_to_the_end

        return run_to_the_end(self.project, self._pipeline(), self.listener)

    def start(self) -> AbstractContextManager[Started]:
        """Go on until the block ends, or `stop()` is called."""
        from anabranch.engine.started import started

        return started(self.project, self._pipeline(), self.listener)

    def cut(self, *, at: int | None = None) -> Cut:
        """The tables at the last published epoch, or an older one."""
        from anabranch.read import cut

        return cut(self.project.storage, at=at)

    def _pipeline(self) -> Pipeline:
        return pipeline_of(self.project.name, self.stream, self.outputs)


def fan_out(
    stream: DataFrame,
    outputs: Mapping[str, Query | str | Output],
    *,
    storage: str | Path,
    name: str = "fan_out",
    trigger_seconds: float = 10.0,
    listener: Listener | None = None,
) -> FanOut:
    """Feed one stream to many tables that commit together; `listener` gets every event of the run."""
    from anabranch.load.project import project_at

    project = project_at(Path(storage), name, trigger_seconds=trigger_seconds)
    return FanOut(stream, as_outputs(outputs), project, listener or _nobody)


@contextmanager
def each_batch(
    outputs: Mapping[str, Query | str | Output],
    *,
    storage: str | Path,
    name: str = "fan_out",
    listener: Listener | None = None,
) -> Iterator[Callable[[DataFrame, int], None]]:
    """A function for `foreachBatch` of a query you run yourself; the tables commit together in every batch.

    with each_batch({"bronze": f, "silver": g}, storage="/lake") as write:
        stream.writeStream.foreachBatch(write).option("checkpointLocation", ...).start().awaitTermination()
    """
    from anabranch.engine.each_batch import BatchBody
    from anabranch.load.project import project_at

    body = BatchBody(project_at(Path(storage), name), as_outputs(outputs), listener or _nobody)
    try:
        yield body
    finally:
        body.close()


def as_outputs(outputs: Mapping[str, Query | str | Output]) -> dict[str, Output]:
    """Plain functions and conditions as outputs with nothing else said."""
    return {name: o if isinstance(o, Output) else Output(o) for name, o in outputs.items()}


def pipeline_of(name: str, frame: DataFrame, outputs: Mapping[str, Output]) -> Pipeline:
    """The declarations that a project's files would have made; `frame` is a stream, or one batch of it."""
    here = Where("<fan_out>")
    datasets = [Dataset(INPUT, Kind.TEMPORARY_VIEW, here)]
    flows = [Flow(INPUT, INPUT, lambda: frame, here)]
    for output, said in outputs.items():
        where = _where(said.query)
        datasets.append(
            Dataset(
                output,
                Kind.STREAMING_TABLE,
                where,
                comment=said.comment,
                partition_by=said.partition_by,
                format=said.format,
                options={"path": said.path} if said.path else {},
                properties=said.properties,
                expectations=_expectations(said, where),
                unique=_unique(said, where),
            )
        )
        query = _over_the_input(said.query, frame)
        flows.append(Flow(output, output, query, where, inputs=(INPUT,), changes=_changes(output, said, where)))
    return Pipeline(name, tuple(datasets), tuple(flows), here)


def _expectations(said: Output, where: Where) -> tuple[Expectation, ...]:
    by_action = {
        Action.WARN: said.expect,
        Action.DROP: said.expect_or_drop,
        Action.QUARANTINE: said.expect_or_quarantine,
        Action.FAIL: said.expect_or_fail,
    }
    return tuple(
        Expectation(name, condition, action, where)
        for action, rules in by_action.items()
        for name, condition in rules.items()
    )


def _unique(said: Output, where: Where) -> tuple[Unique, ...]:
    return tuple(Unique(name, tuple(columns), Action.FAIL, where) for name, columns in said.unique.items())


def _changes(output: str, said: Output, where: Where) -> Changes | None:
    if said.keys and said.sequence_by:
        return Changes(INPUT, keys=said.keys, sequence_by=said.sequence_by, deletes=said.deletes)
    if said.keys or said.sequence_by or said.deletes:
        raise ProjectError(
            "UPSERT_INCOMPLETE",
            f'output "{output}" has only some of keys, sequence_by and deletes: which row of a key is the newest?',
            where=where,
            hint='say both: Output(f, keys=("id",), sequence_by="updated_at")',
        )
    return None


def _over_the_input(query: Query | str, frame: DataFrame) -> Callable[[], Any]:
    # By the view's name, so that all outputs are seen to stand on the same thing; in the frame's own session, which
    # inside of foreachBatch is not the one that is active.
    if isinstance(query, str):
        return lambda: frame.sparkSession.table(INPUT).where(query)
    return lambda: query(frame.sparkSession.table(INPUT))


def _where(query: Query | str) -> Where:
    code = getattr(query, "__code__", None)
    return Where(code.co_filename, code.co_firstlineno) if code else Where("<fan_out>")


def _nobody(event: Event) -> None:
    """A listener that does not listen."""
