"""The cases: what is measured, with which ways, on how many events."""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shape
import ways
from measure import Cost, Record, best, cost_of
from ways import Task

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What Delta does unless told otherwise; sessions of ours say 1, and so all ways have it.
SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"

FLOORS = (ways.DUCKDB, ways.PYARROW)


@dataclass
class Bench:
    """A session, a folder for what is written, and the sizes of this run."""

    spark: SparkSession
    folder: Path
    quick: bool
    say: Callable[[str], None]
    events: Path = field(init=False)
    count: int = field(init=False)
    rounds: int = field(init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.count = 100_000 if self.quick else 1_000_000
        self.rounds = 2 if self.quick else 3
        self.say(f"making {self.count:,} events, once")
        self.events = shape.event_files(f"events-{self.count}", self.count, 4)

    def task(self, outputs: list[shape.Output], source: Path, per_epoch: int | None = None) -> Task:
        return Task(self.spark, outputs, source, self.folder / f"work-{next(self._numbers)}", per_epoch)

    def measure(self, way: str, task: Task) -> Cost:
        """Do a task in one way, and remove what it wrote."""
        self.spark.conf.set(SNAPSHOT_PARTITIONS, "50" if way == ways.DELTA_DEFAULT else "1")
        cost = cost_of(lambda: ways.WAYS[way](task))
        shutil.rmtree(task.scratch, ignore_errors=True)
        return cost


def warm_up(bench: Bench) -> None:
    """Let every way run once, unmeasured, and see that all write the same rows."""
    source = shape.event_files("events-20000", 20_000, 2)
    found = {}
    for way in (ways.OURS, ways.PARQUET, ways.DELTA, ways.STREAMS, *FLOORS):
        task = bench.task(shape.routed(5), source)
        ways.WAYS[way](task)
        found[way] = {output.name: _rows(way, task, output) for output in task.outputs}
        shutil.rmtree(task.scratch)
    wrong = {way: rows for way, rows in found.items() if rows != found[ways.PYARROW] or not all(rows.values())}
    if wrong:
        raise AssertionError(f"pyarrow wrote {found[ways.PYARROW]}, others did not: {wrong}")


def _rows(way: str, task: Task, output: shape.Output) -> int:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from anabranch import read

    if way == ways.OURS:
        return int(read.cut(task.scratch).arrow(output.name).num_rows)
    if way in FLOORS:
        return int(ds.dataset(f"{task.place(output)}.parquet").count_rows())
    if way == ways.PARQUET:
        return int(ds.dataset(task.place(output), format="parquet", exclude_invalid_files=True).count_rows())
    return int(DeltaTable(task.place(output)).to_pyarrow_dataset().count_rows())


def many_outputs(bench: Bench) -> Iterator[Record]:
    """1, 3, 10 and 30 outputs from the same events, and ten that all hold every event."""
    streams, batches = ways.STREAMS, (ways.PARQUET, ways.DELTA)
    if bench.quick:
        yield from _interleaved(bench, "1 output", shape.routed(1), (ways.OURS, ways.PYARROW), bench.rounds)
        every = (ways.OURS, *batches, ways.PARQUET_THREADS, ways.DELTA_THREADS, streams, *FLOORS)
        yield from _interleaved(bench, "3 outputs", shape.routed(3), every, bench.rounds)
        yield from _interleaved(bench, "10 outputs", shape.routed(10), (ways.OURS, *batches, streams), 1)
    else:
        every = (ways.OURS, *batches, ways.PARQUET_THREADS, ways.DELTA_THREADS, streams, ways.PIPELINES, *FLOORS)
        for count in (1, 3):
            name = "1 output" if count == 1 else f"{count} outputs"
            yield from _interleaved(bench, name, shape.routed(count), every, bench.rounds)
        some = (ways.OURS, *batches, ways.DELTA_THREADS, *FLOORS)
        yield from _interleaved(bench, "10 outputs", shape.routed(10), some, bench.rounds)
        yield from _interleaved(bench, "10 outputs", shape.routed(10), (streams, ways.PIPELINES), 1)
        yield from _interleaved(bench, "30 outputs", shape.routed(30), some, 2)
        yield from _interleaved(bench, "30 outputs", shape.routed(30), (streams,), 1)
    yield from _copies(bench)


def _copies(bench: Bench) -> Iterator[Record]:
    """Ten full copies beside one, and what pyarrow needs only to encode one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pa.concat_tables([ways.read_with_pyarrow(path)[0] for path in sorted(bench.events.iterdir())])
    rows = rows.select(list(shape.REQUEST))
    target = bench.folder / "encoded.parquet"
    costs: dict[str, list[Cost]] = {"1 copy": [], "10 copies": [], "encode": []}
    for _ in range(bench.rounds):
        costs["1 copy"].append(bench.measure(ways.OURS, bench.task(shape.copies(1), bench.events)))
        costs["10 copies"].append(bench.measure(ways.OURS, bench.task(shape.copies(10), bench.events)))
        encode = cost_of(lambda: pq.write_table(rows, target, compression="zstd", compression_level=1))
        costs["encode"].append(encode)
    yield best("1 copy", ways.OURS, 1, bench.count, costs["1 copy"])
    yield best("10 copies", ways.OURS, 10, bench.count, costs["10 copies"])
    yield best("1 copy", ways.ENCODE, 1, bench.count, costs["encode"])


def _interleaved(
    bench: Bench, case: str, outputs: list[shape.Output], names: Sequence[str], rounds: int
) -> Iterator[Record]:
    """Every way once, then every way again: what else the machine does meets them all."""
    costs: dict[str, list[Cost]] = {way: [] for way in names}
    for number in range(rounds):
        for way in names:
            cost = bench.measure(way, bench.task(outputs, bench.events))
            costs[way].append(cost)
            bench.say(f"{case}, round {number + 1}: {way}: {cost.cpu_s:.2f} CPU-s, {cost.wall_s:.2f} s")
    for way in names:
        yield best(case, way, len(outputs), bench.count, costs[way])


def small_epochs(bench: Bench) -> Iterator[Record]:
    """Epochs of 1,000 rows into three tables: the median wall time of a micro-batch, and CPU per epoch."""
    epochs = 12 if bench.quick else 50
    source = shape.event_files(f"small-{epochs}", 1000 * epochs, epochs)
    names = [ways.OURS, ways.EMPTY, ways.DELTA]
    names += [] if bench.quick else [ways.DELTA_THREADS, ways.DELTA_DEFAULT]
    for way in names:
        task = bench.task(shape.routed(3), source, per_epoch=1)
        cost = bench.measure(way, task)
        walls = [p["triggerExecution"] / 1000 for p in task.progress]
        yield _epoch_record("epochs of 1,000 rows", way, 3, 1000, cost, walls)
        parts = {k: statistics.median(p[k] for p in task.progress if k in p) for k in task.progress[-1]}
        bench.say(
            f"epochs of 1,000 rows: {way}: {walls and statistics.median(walls):.3f} s; Spark's parts, ms: {parts}"
        )
        if task.times:
            own = {k: round(1000 * statistics.median(t[k] for t in task.times)) for k in task.times[-1]}
            bench.say(f"epochs of 1,000 rows: {way}: own parts, ms: {own}")


def many_epochs(bench: Bench) -> Iterator[Record]:
    """2,000 epochs in a row: does an epoch cost more when many came before it?"""
    epochs = 2000
    source = shape.event_files(f"tiny-{epochs}", 10 * epochs, epochs)
    task = bench.task(shape.routed(3), source, per_epoch=1)
    cost = bench.measure(ways.OURS, task)
    walls = [p["triggerExecution"] / 1000 for p in task.progress]
    yield _epoch_record("2,000 epochs: around epoch 20", ways.OURS, 3, 10, cost, walls[10:30])
    yield _epoch_record("2,000 epochs: the last 20", ways.OURS, 3, 10, cost, walls[-20:])


def _epoch_record(case: str, way: str, outputs: int, rows: int, cost: Cost, walls: list[float]) -> Record:
    whole = best(case, way, outputs, rows, [cost])
    about = whole.as_json() | {"wall_s": round(statistics.median(walls), 3), "rounds": len(walls), "chosen": "median"}
    # CPU is that of all epochs, and the start of the query, shared out.
    return Record(**(about | {"cpu_s": round(cost.cpu_s / max(1, len(walls)), 3)}))


def large_epoch(bench: Bench) -> Iterator[Record]:
    """5 M events in one epoch: how much memory it takes."""
    source = shape.repeated(bench.events, 5)
    cost = bench.measure(ways.OURS, bench.task(shape.routed(3), source))
    yield best("5 M events in one epoch", ways.OURS, 3, 5 * bench.count, [cost])


def planning(bench: Bench) -> Iterator[Record]:
    """Loading and planning a project of 30 outputs, up to the frame that is run."""
    from anabranch.engine.program import make_program
    from anabranch.engine.run import plan_with_spark

    costs = []
    for _ in range(bench.rounds + 1):
        task = bench.task(shape.routed(30), bench.events)
        made = ways.project(task)

        def plan(project: Any = made) -> None:
            planned = plan_with_spark(project, bench.spark, {})
            for channel in planned.plan.channels:
                make_program(channel, planned.frames)

        costs.append(cost_of(plan))
        shutil.rmtree(task.scratch)
    yield best("planning 30 outputs", ways.OURS, 30, 0, costs[1:])


def all_cases(bench: Bench) -> Iterator[Record]:
    """Every case of this run, the short ones first."""
    started = time.monotonic()
    warm_up(bench)
    bench.say(f"warm after {time.monotonic() - started:.0f} s")
    cases = [planning, small_epochs, many_outputs]
    for case in cases if bench.quick else [*cases, large_epoch, many_epochs]:
        yield from case(bench)
