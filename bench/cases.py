"""The cases: what is measured, with which ways, on how many events."""

from __future__ import annotations

import itertools
import shutil
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import native_cases
import observers
import shape
import sinks
import ways
import zones
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
        """A new task, for which the files of `source` have come in."""
        task = Task(self.spark, outputs, self.folder / f"work-{next(self._numbers)}", source, per_epoch)
        task.land(source, 0)
        return task

    def do(self, way: str, task: Task) -> None:
        """Do a task in one way."""
        self.spark.conf.set(SNAPSHOT_PARTITIONS, "50" if way == ways.DELTA_DEFAULT else "1")
        ways.WAYS[way](task)

    def interleaved(self, tasks: Mapping[str, tuple[str, Task]], rounds: int) -> dict[str, list[Cost]]:
        """What each of some tasks (name -> way, task) costs, in rounds.

        Before, each is done once with few rows, unmeasured: its tables exist, as those of a stream that runs do. Then
        every task in turn, and again: what else the machine does meets them all.
        """
        costs: dict[str, list[Cost]] = {name: [] for name in tasks}
        for way, task in tasks.values():
            self.do(way, task)
        for turn in range(1, rounds + 1):
            for name, (way, task) in tasks.items():
                task.land(self.events, turn)
                cost = cost_of(lambda way=way, task=task: self.do(way, task))  # type: ignore[misc]
                costs[name].append(cost)
                split = ", ".join(f"{role} {seconds:.2f}" for role, seconds in cost.cpu.items())
                self.say(f"round {turn}: {name}: {cost.cpu_s:.2f} CPU-s ({split}), {cost.wall_s:.2f} s")
        check_rows(tasks.values())
        for _way, task in tasks.values():
            shutil.rmtree(task.scratch)
        return costs


def warm_up(bench: Bench) -> None:
    """Start what is started once: Python workers, compiled code."""
    task = bench.task(shape.routed(3), shape.event_files("events-20000", 20_000, 2))
    bench.do(ways.OURS, task)
    shutil.rmtree(task.scratch)


def check_rows(done: Iterable[tuple[str, Task]]) -> None:
    """Refuse figures of ways that did not write the same rows."""
    found = {}
    for way, task in done:
        if way not in (*FLOORS, ways.PIPELINES):  # these are no streams of appends, or write where they like
            found[way, len(task.outputs)] = {output.name: _rows(way, task, output) for output in task.outputs}
    for (way, count), rows in found.items():
        if rows != found.get((ways.OURS, count), rows) or not all(rows.values()):
            raise AssertionError(f"{way} wrote {rows}, ours {found.get((ways.OURS, count))}")


def _rows(way: str, task: Task, output: shape.Output) -> int:
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    from anabranch import read

    if way == ways.OURS:
        return int(read.cut(task.scratch).arrow(output.name).num_rows)
    if way in (ways.PARQUET, ways.PARQUET_THREADS):
        return int(ds.dataset(task.place(output), format="parquet", exclude_invalid_files=True).count_rows())
    return int(DeltaTable(task.place(output)).to_pyarrow_dataset().count_rows())


BATCHES = (ways.PARQUET, ways.DELTA, ways.DELTA_THREADS)


def one_output(bench: Bench) -> Iterator[Record]:
    """One output."""
    more = () if bench.quick else (*BATCHES, ways.STREAMS, ways.PIPELINES, ways.DUCKDB)
    yield from _outputs(bench, 1, (ways.OURS, ways.PYARROW, *more), 2)


def three_outputs(bench: Bench) -> Iterator[Record]:
    """Three outputs, in every way there is."""
    usual = (ways.OURS, ways.PARQUET, ways.DELTA, ways.STREAMS, *FLOORS)
    more = () if bench.quick else (ways.DELTA_THREADS, ways.PARQUET_THREADS, ways.PIPELINES)
    yield from _outputs(bench, 3, (*usual, *more), 2 if bench.quick else 3)


def ten_outputs(bench: Bench) -> Iterator[Record]:
    """Ten outputs; the slowest ways take minutes each."""
    yield from _outputs(bench, 10, (ways.OURS, ways.DELTA, ways.STREAMS), 1)
    if not bench.quick:
        yield from _outputs(bench, 10, (ways.PARQUET, ways.DELTA_THREADS, ways.PIPELINES, *FLOORS), 1)


def thirty_outputs(bench: Bench) -> Iterator[Record]:
    """Thirty outputs."""
    yield from _outputs(bench, 30, (ways.OURS, *BATCHES, ways.STREAMS, *FLOORS), 1)


def _outputs(bench: Bench, count: int, names: Sequence[str], rounds: int) -> Iterator[Record]:
    case, outputs = f"{count} output{'s' * (count > 1)}", shape.routed(count)
    tasks = {f"{case}, {way}": (way, bench.task(outputs, few_events())) for way in names}
    for (way, _task), costs in zip(tasks.values(), bench.interleaved(tasks, rounds).values(), strict=True):
        yield best(case, way, count, bench.count, costs)


def few_events() -> Path:
    """Events for a first epoch that makes the tables."""
    return shape.event_files("events-1000", 1000, 1)


def copies(bench: Bench) -> Iterator[Record]:
    """Ten full copies beside one, and what pyarrow needs only to encode one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = {"1 copy": 1, "10 copies": 10}
    tasks = {name: (ways.OURS, bench.task(shape.copies(count), few_events())) for name, count in counts.items()}
    for name, costs in bench.interleaved(tasks, bench.rounds).items():
        yield best(name, ways.OURS, counts[name], bench.count, costs)
    rows = pa.concat_tables([ways.read_with_pyarrow(path)[0] for path in sorted(bench.events.iterdir())])
    rows = rows.select(list(shape.REQUEST))
    target = bench.folder / "encoded.parquet"
    times = 10 if bench.quick else 1  # CPU time has ticks of 10 ms: too coarse for few rows

    def encode() -> None:
        for _ in range(times):
            pq.write_table(rows, target, compression="zstd", compression_level=1)

    yield best("1 copy", ways.ENCODE, 1, bench.count, [cost_of(encode).shared(times) for _ in range(bench.rounds)])


def small_epochs(bench: Bench) -> Iterator[Record]:
    """Epochs of 1,000 rows into three tables: the median wall time of a micro-batch, and CPU per epoch."""
    names = [ways.OURS, ways.EMPTY, ways.DELTA]
    names += [] if bench.quick else [ways.DELTA_THREADS, ways.DELTA_DEFAULT]
    for way in names:
        epochs = 8 if bench.quick or way == ways.DELTA_DEFAULT else 50  # that one takes many seconds each
        source = shape.event_files(f"small-{epochs}", 1000 * epochs, epochs)
        task = bench.task(shape.routed(3), source, per_epoch=1)
        cost = _once(bench, way, task)
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
    cost = _once(bench, ways.OURS, task).shared(epochs // 20)  # the records are about 20 epochs each
    walls = [p["triggerExecution"] / 1000 for p in task.progress]
    yield _epoch_record("2,000 epochs: around epoch 20", ways.OURS, 3, 10, cost, walls[10:30])
    yield _epoch_record("2,000 epochs: the last 20", ways.OURS, 3, 10, cost, walls[-20:])


def _once(bench: Bench, way: str, task: Task) -> Cost:
    cost = cost_of(lambda: bench.do(way, task))
    shutil.rmtree(task.scratch)
    return cost


def _epoch_record(case: str, way: str, outputs: int, rows: int, cost: Cost, walls: list[float]) -> Record:
    whole = best(case, way, outputs, rows, [cost])
    about = whole.as_json() | {"wall_s": round(statistics.median(walls), 3), "rounds": len(walls), "chosen": "median"}
    # CPU is that of all epochs, and the start of the query, shared out.
    return Record(**(about | {"cpu_s": round(cost.cpu_s / max(1, len(walls)), 3)}))


def large_epoch(bench: Bench) -> Iterator[Record]:
    """5 M events in one epoch: how much memory it takes."""
    source = shape.repeated(bench.events, 5)
    cost = _once(bench, ways.OURS, bench.task(shape.routed(3), source))
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


#: In the order of a run. Short epochs come when the JVM has compiled what they need, as in a stream that runs.
CASES = {
    "planning": planning,
    "one": one_output,
    "three": three_outputs,
    "ten": ten_outputs,
    "copies": copies,
    "small": small_epochs,
    "large": large_epoch,
    "many": many_epochs,
    "thirty": thirty_outputs,
    "zones": zones.zones,
    "sinks": sinks.sinks,
    "observers": observers.observers,
    **native_cases.CASES,
}
QUICK = ("planning", "one", "three", "ten", "copies", "small")


def chosen(names: str) -> list[str]:
    """The cases that are named, with commas between; a name stands also for those that begin with it and a dash.

    >>> chosen("three,zones")
    ['three', 'zones']
    >>> chosen("native")[:2]
    ['native-three', 'native-one']
    """
    found = {name: [c for c in CASES if c == name or c.startswith(f"{name}-")] for name in names.split(",")}
    if unknown := [name for name, cases in found.items() if not cases]:
        raise SystemExit(f"no such case: {', '.join(unknown)}; there are {', '.join(CASES)}")
    return [case for cases in found.values() for case in cases]


def all_cases(bench: Bench, names: Sequence[str]) -> Iterator[Record]:
    """The named cases."""
    warm_up(bench)
    for name in names:
        yield from CASES[name](bench)
