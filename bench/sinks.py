"""Each sink beside the plainest way of getting the same rows to the same place: CPU-seconds of this process.

Delta, Iceberg and folders of Parquet: staging and applying, against the library's own append of the same table.
Kafka and Postgres: applying what is staged, against the client alone with rows that are encoded already or tuples. The
servers' own work is not counted. Ways take turns; the least of some rounds counts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
import ways
from measure import Cost, Record, best

if TYPE_CHECKING:
    from cases import Bench

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "servers"))

#: What does the work once, for the number of a round; what it needs is made ready before.
Prepared = Callable[[int], Callable[[], object]]


def sinks(bench: Bench) -> Iterator[Record]:
    """One epoch of rows into each sink, and into the same place without one."""
    count, rounds = (50_000, 2) if bench.quick else (500_000, 5)
    for name, case in (("delta", delta), ("iceberg", iceberg), ("parquet", parquet)):
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=bench.folder))
        yield from _records(bench, name, count, _in_turns(case(folder, _rows(count)), rounds))
        shutil.rmtree(folder)
    yield from _records(bench, "kafka", count, _kafka(count, rounds))
    yield from _records(bench, "postgres", count, _postgres(count, rounds))


def delta(folder: Path, rows: pa.Table) -> Mapping[str, Prepared]:
    """Against `write_deltalake`."""
    from deltalake import write_deltalake

    return {
        ways.OURS: _through("delta", folder, rows),
        "write_deltalake": lambda _: lambda: write_deltalake(str(folder / "bare"), rows, mode="append"),
    }


def iceberg(folder: Path, rows: pa.Table) -> Mapping[str, Prepared]:
    """Against pyiceberg's `append`."""
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("bare", uri=f"sqlite:///{folder}/bare.db", warehouse=f"file://{folder}/bare")
    catalog.create_namespace("default")
    table = catalog.create_table("default.rows", rows.schema)
    return {
        ways.OURS: _through("iceberg", folder, rows),
        "pyiceberg append": lambda _: lambda: table.append(rows),
    }


def parquet(folder: Path, rows: pa.Table) -> Mapping[str, Prepared]:
    """Against one call of pyarrow's, with the same codec."""
    import pyarrow.parquet as pq

    def bare(number: int) -> Callable[[], object]:
        return lambda: pq.write_table(rows, folder / f"{number}.parquet", compression="zstd", compression_level=1)

    return {ways.OURS: _through("parquet", folder, rows), "pyarrow write_table": bare}


def _through(form: str, folder: Path, rows: pa.Table) -> Prepared:
    """Staging and applying an epoch."""
    from anabranch.connectors.contract import SinkSpec
    from anabranch.connectors.parquet_files import StagedWriter
    from anabranch.connectors.registry import open_sink
    from anabranch.core.epoch import EpochKey

    sink = open_sink(form, SinkSpec("out", str(folder / "tables" / "out"), "bench", str(folder)))
    sink.prepare(rows.schema)

    def epoch(number: int) -> Callable[[], object]:
        key = EpochKey("bench", "main", 1, number)

        def work() -> None:
            writer = StagedWriter(sink.staging(key, 1), "0")
            for batch in rows.to_batches(max_chunksize=10_000):  # as Spark hands them over
                writer.write(batch)
            sink.apply(key, sink.receipt(key, writer.close()))

        return work

    return epoch


def _kafka(count: int, rounds: int) -> dict[str, list[Cost]]:
    import kafka_sink

    with kafka_sink.broker() as (bootstrap, folder):
        prepared = kafka_sink.prepared(bootstrap, folder, kafka_sink.rows(count))
        return _in_turns({ways.OURS: prepared["sink"], "bare producer, encoded before": prepared["bare"]}, rounds)


def _postgres(count: int, rounds: int) -> dict[str, list[Cost]]:
    import postgres_sink
    from postgres_server import postgres

    with postgres() as socket:
        url = f"postgresql://postgres@/postgres?host={quote(socket)}"
        with postgres_sink.prepared(url, postgres_sink.sample(count)) as (prepared, emptied):
            named = {ways.OURS if name == "sink" else f"COPY, {name}": each for name, each in prepared.items()}
            return _in_turns(named, rounds, emptied)


def _in_turns(
    prepared: Mapping[str, Prepared], rounds: int, after: Callable[[], None] = lambda: None
) -> dict[str, list[Cost]]:
    """What each way costs; the first round makes the tables and connects, and does not count."""
    costs: dict[str, list[Cost]] = {way: [] for way in prepared}
    for number in range(rounds + 1):
        for way, prepare in prepared.items():
            work = prepare(number)
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            took = Cost(wall_s=time.perf_counter() - wall)
            took.cpu["driver"] = time.process_time() - cpu
            after()
            costs[way] += [took] if number else []
    return costs


def _records(bench: Bench, name: str, count: int, costs: Mapping[str, list[Cost]]) -> Iterator[Record]:
    for way, rounds in costs.items():
        record = best(f"sink: {name}", way, 1, count, rounds)
        bench.say(f"sink: {name}: {way}: {count / max(record.cpu_s, 0.001):,.0f} rows per CPU-second")
        yield record


def _rows(count: int) -> pa.Table:
    import postgres_sink

    return postgres_sink.sample(count)
