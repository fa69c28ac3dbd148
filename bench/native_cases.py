"""The native pass beside the general one, through Spark, and beside others: CPU-seconds.

What is compared is done in turn, round by round, in one warm session. Figures are refused if a way did not write the
same rows, value by value, or if records that were to go the native way did not.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import native_events
import psutil
import shape
import ways
from measure import Cost, Record, best, cost_of
from ways import Task

from anabranch.engine import program
from anabranch.engine.native_pass import SETTING

if TYPE_CHECKING:
    from cases import Bench
    from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "servers"))

OURS = ways.OURS
GENERAL = "ours, all by Spark"
THROUGH_JVM = "ours, records through the JVM"
MINE = (OURS, GENERAL, THROUGH_JVM)
FLOORS = (ways.PYARROW, ways.DUCKDB)

THREE = "native: 3 outputs"
SMALL = "native: epochs of 1,000 rows"
LEFT = f"{SMALL}, 1 for Spark"


@dataclass(frozen=True)
class Work:
    """One way of one case: a task, and what comes in for each round."""

    case: str
    way: str
    task: Task
    events: Path
    count: int
    native: float = 1.0  # the least share of the records that is to go the native way
    server: Callable[[], float] = lambda: 0.0  # CPU-seconds of a server, which are not counted
    costs: list[Cost] = field(default_factory=list)

    def do(self) -> None:
        with switched(self.task.spark, self.way):
            ways.WAYS[OURS if self.way in MINE else self.way](self.task)

    def record(self) -> Record:
        return best(self.case, self.way, len(self.task.outputs), self.count, self.costs)


@contextmanager
def switched(spark: SparkSession, way: str) -> Iterator[None]:
    """The native pass off, or on but without reading files, while a way is under way."""
    from pyspark.sql import SparkSession

    feed = program.file_feed
    # A run takes the active session, which need not be the one that was opened first.
    sessions = [spark, SparkSession.getActiveSession() or spark]
    for session in sessions:
        session.conf.set(SETTING, "false" if way == GENERAL else "true")
    if way == THROUGH_JVM:
        program.file_feed = lambda _: None
    try:
        yield
    finally:
        program.file_feed = feed
        for session in sessions:
            session.conf.unset(SETTING)


def in_turns(bench: Bench, works: Sequence[Work], rounds: int) -> Iterator[Record]:
    """What each costs; before, each is done with few rows, which makes the tables."""
    for work in works:
        work.do()
    for turn in range(1, rounds + 1):
        for work in works:
            work.task.land(work.events, turn)
        for work in works:
            before = work.server()
            cost = cost_of(work.do)
            cost.cpu["jvm"] -= work.server() - before
            work.costs.append(cost)
            split = ", ".join(f"{role} {seconds:.2f}" for role, seconds in cost.cpu.items())
            bench.say(f"{turn}: {work.case}: {work.way}: {cost.cpu_s:.2f} CPU-s ({split}), {cost.wall_s:.2f} s")
    check(works)
    for work in works:
        shutil.rmtree(work.task.scratch)
        yield work.record()


def check(works: Sequence[Work]) -> None:
    """Refuse figures of ways that did not write the same rows, or did not go the way they were to go."""
    found: dict[str, dict[str, object]] = {}
    for work in works:
        if work.way in MINE:
            rows = {output.name: fingerprint(work.task, output.name) for output in work.task.outputs}
            first = found.setdefault(work.case, rows)
            if rows != first or not all(count for count, _ in rows.values()):
                raise AssertionError(f"{work.case}: {work.way} wrote {rows}, not {first}")
            went = work.task.records
            share = went["native"] / max(1, went.total())
            if share > 0 if work.way == GENERAL else share < work.native:
                raise AssertionError(f"{work.case}: {work.way}: {share:.0%} of the records went the native way: {went}")
    for work in works:
        if work.way == ways.PARQUET:
            for output in work.task.outputs:
                wanted, written = found[work.case][output.name], _parquet_rows(work.task.place(output))
                if written != wanted[0]:  # type: ignore[index]
                    raise AssertionError(f"{work.case}: {written} rows of {output.name} by {work.way}, not {wanted}")


def fingerprint(task: Task, table: str) -> tuple[int, int]:
    """How many rows a table of ours has, and the sum of their hashes."""
    import duckdb

    from anabranch import read

    rows = read.cut(task.scratch).arrow(table)  # noqa: F841  DuckDB finds it by its name
    with duckdb.connect() as connection:
        return connection.sql("SELECT count(*), coalesce(sum(hash(rows)), 0) FROM rows").fetchall()[0]


def _parquet_rows(folder: str) -> int:
    import pyarrow.dataset as ds

    return int(ds.dataset(folder, format="parquet", exclude_invalid_files=True).count_rows())


def requests(bench: Bench, case: str, way: str, count: int, events: Path | None = None, native: float = 1.0) -> Work:
    """Request events into tables of a service."""
    task = bench.task(shape.routed(count), shape.event_files("events-1000", 1000, 1))
    return Work(case, way, task, events or bench.events, bench.count, native)


def outputs(count: int, rounds: int) -> Callable[[Bench], Iterator[Record]]:
    """Some outputs, in every way."""

    def case(bench: Bench) -> Iterator[Record]:
        name = f"native: {count} output{'s' * (count > 1)}"
        order = (OURS, GENERAL, ways.PARQUET, *FLOORS)
        yield from in_turns(bench, [requests(bench, name, way, count) for way in order], rounds)

    return case


def three_outputs(bench: Bench) -> Iterator[Record]:
    """Three outputs in every way, through the JVM as well; and with faults in one record of twenty."""
    works = [requests(bench, THREE, way, 3) for way in (OURS, GENERAL, THROUGH_JVM, ways.PARQUET, *FLOORS)]
    for how in (native_events.truncated, native_events.mistyped):
        events = how(bench.events)
        works += [requests(bench, f"{THREE}, 5 % {how.__name__}", way, 3, events, 0.9) for way in (OURS, GENERAL)]
    # The JVM compiles its own code for many rounds; what is left of that weighs the more the less there is to do.
    yield from in_turns(bench, works, 2 * bench.rounds)


def _of_kind(bench: Bench, kind: native_events.Kind, count: int) -> list[Work]:
    count = count // 10 if bench.quick else count
    bench.say(f"making {count:,} {kind.name} events, once")
    few, many = kind.files(count // 50, 1), kind.files(count, 4)
    found = []
    for way in (OURS, GENERAL):
        task = bench.task(kind.outputs, few)
        found.append(Work(f"native: {kind.name} events", way, replace(task, code=kind.code(task.source)), many, count))
    return found


def kinds(bench: Bench) -> Iterator[Record]:
    """Events of 200 fields, of three, and of 50 KB."""
    works = _of_kind(bench, native_events.WIDE, 40_000) + _of_kind(bench, native_events.TINY, 2_000_000)
    works += _of_kind(bench, native_events.HUGE, 3_000) + _of_kind(bench, native_events.QUOTED, 3_000)
    yield from in_turns(bench, works, 2)


def csv(bench: Bench) -> Iterator[Record]:
    """Files of CSV into three tables."""
    yield from in_turns(bench, _of_kind(bench, native_events.CSV, 1_000_000), bench.rounds)


def sources(bench: Bench) -> Iterator[Record]:
    """Files of JSON instead of text; and one flow of four that Spark has to compute."""
    works = []
    for way in (OURS, GENERAL):
        work = requests(bench, "native: 3 outputs, files of JSON", way, 3)
        works.append(replace(work, task=_coded(work.task, native_events.json_code)))
        work = requests(bench, "native: 1 of 4 flows by Spark", way, 3)
        task = _coded(work.task, native_events.mixed_code)
        works.append(replace(work, task=replace(task, outputs=[*task.outputs, shape.Output("hashed", ())])))
    yield from in_turns(bench, works, bench.rounds)


def parquet(bench: Bench) -> Iterator[Record]:
    """Files of Parquet, of which there is nothing to parse."""
    few = native_events.parquet_files(shape.event_files("events-1000", 1000, 1))
    many = native_events.parquet_files(bench.events)
    works = []
    for way in (OURS, GENERAL):
        task = _coded(bench.task(shape.routed(3), few), native_events.parquet_code)
        works.append(Work("native: 3 outputs, files of Parquet", way, task, many, bench.count))
    yield from in_turns(bench, works, bench.rounds)


def _coded(task: Task, code: Callable[[list[shape.Output], Path], str]) -> Task:
    return replace(task, code=code(task.outputs, task.source))


def kafka(bench: Bench) -> Iterator[Record]:
    """From a topic."""
    from kafka_broker import Broker

    count = 30_000 if bench.quick else 300_000
    many, few = shape.event_files(f"events-{count}", count, 2), shape.event_files("events-1000", 1000, 1)
    with tempfile.TemporaryDirectory(prefix="kafka-bench-", ignore_cleanup_errors=True) as folder:
        broker = Broker(Path(folder) / "broker").start()
        try:
            (process,) = (p for p in psutil.Process().children() if "kafka.Kafka" in p.cmdline())
            topic = Topic(broker.bootstrap)
            code = native_events.kafka_code(shape.routed(3), broker.bootstrap, topic.name)
            works = []
            for way in (OURS, GENERAL):
                scratch = bench.folder / f"kafka-{len(works)}"
                task = TopicTask(bench.spark, shape.routed(3), scratch, few, code=code, topic=topic)
                task.land(few, 0)
                works.append(
                    Work(
                        "native: 3 outputs, Kafka", way, task, many, count, server=lambda: sum(process.cpu_times()[:2])
                    )
                )
            yield from in_turns(bench, works, bench.rounds)
        finally:
            broker.kill()


@dataclass
class Topic:
    """A topic of four partitions that several tasks read."""

    bootstrap: str
    name: str = "requests"
    _turns: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        from kafka_reader import create_topic

        create_topic(self.bootstrap, self.name, 4)

    def land(self, folder: Path, turn: int) -> None:
        """Send the lines of files, once for each turn."""
        from confluent_kafka import Producer

        if turn in self._turns:
            return
        self._turns.add(turn)
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 20})
        for path in sorted(folder.iterdir()):
            for number, line in enumerate(path.read_bytes().splitlines()):
                producer.produce(self.name, line, partition=number % 4)
                if number % 10_000 == 0:
                    producer.flush()
        producer.flush()


@dataclass
class TopicTask(Task):
    """A task whose events come in through a topic."""

    topic: Topic | None = None

    def land(self, folder: Path, turn: int) -> None:
        assert self.topic is not None
        self.scratch.mkdir(exist_ok=True)
        self.topic.land(folder, turn)


def small_epochs(bench: Bench) -> Iterator[Record]:
    """Epochs of 1,000 rows into three tables: CPU per epoch, and the median wall time of a micro-batch.

    All of them native; and with one record in each that is left to Spark.
    """
    epochs = 48
    source = shape.event_files(f"small-{epochs}", 1000 * epochs, epochs)
    cases = [(SMALL, source, 1.0), (LEFT, native_events.doubted(source), 0.0)]
    wanted = [(case, way) for case, _, _ in cases for way in (OURS, GENERAL)]
    found: dict[tuple[str, str], list[Record]] = {each: [] for each in wanted}
    for _turn in range(1 if bench.quick else 3):
        works = [
            Work(case, way, bench.task(shape.routed(3), events, per_epoch=1), events, 1000, native)
            for case, events, native in cases
            for way in (OURS, GENERAL)
        ]
        for work in works:
            work.costs.append(cost_of(work.do).shared(epochs))
            wall = statistics.median(p["triggerExecution"] / 1000 for p in work.task.progress)
            record = replace(work.record(), wall_s=round(wall, 3), rounds=epochs, chosen="median")
            found[work.case, work.way].append(record)
            own = {k: round(1000 * statistics.median(t[k] for t in work.task.times)) for k in work.task.times[-1]}
            bench.say(f"{work.case}: {work.way}: {record.cpu_s:.3f} CPU-s, {wall:.3f} s an epoch; own parts, ms: {own}")
        check(works)
        for work in works:
            shutil.rmtree(work.task.scratch)
    for records in found.values():
        yield min(records, key=lambda r: r.cpu_s)


CASES: dict[str, Callable[[Bench], Iterator[Record]]] = {
    "native-three": three_outputs,
    "native-one": outputs(1, 2),
    "native-ten": outputs(10, 2),
    "native-thirty": outputs(30, 1),
    "native-sources": sources,
    "native-parquet": parquet,
    "native-kinds": kinds,
    "native-csv": csv,
    "native-kafka": kafka,
    "native-small": small_epochs,
}

#: All cases in which there is a general way.
COMPARED = (
    *(f"native: {count}" for count in ("1 output", "3 outputs", "10 outputs", "30 outputs")),
    *(f"{THREE}, {what}" for what in ("5 % truncated", "5 % mistyped", "files of JSON", "files of Parquet", "Kafka")),
    "native: 1 of 4 flows by Spark",
    *(f"native: {kind} events" for kind in ("wide", "tiny", "huge", "huge-quoted", "CSV")),
    SMALL,
    LEFT,
)
