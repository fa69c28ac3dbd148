"""The Kafka sink beside a bare transactional producer that sends bytes which are encoded already: rows per CPU-second.

    python bench/kafka_sink.py [ROWS]

Both send the same rows to the same broker, in one transaction, in turns; the best of some rounds counts. CPU time is
that of this process, in which the client's own threads run; the broker's is not in it.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.kafka import KafkaSink
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.wire_json import json_rows
from anabranch.core.epoch import EpochKey

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "servers"))
from kafka_broker import Broker

ROUNDS = 5
_START = datetime(2026, 1, 1, tzinfo=UTC)


def rows(count: int) -> pa.RecordBatch:
    """Seven columns, about 150 bytes as JSON."""
    numbers = range(count)
    return pa.RecordBatch.from_pydict(
        {
            "id": list(numbers),
            "who": [f"user-{i % 5000}" for i in numbers],
            "price": [i * 0.25 for i in numbers],
            "endpoint": [f"/api/v1/orders/{i % 100}" for i in numbers],
            "country": ["DE" if i % 3 else "FR" for i in numbers],
            "at": pa.array([_START + timedelta(milliseconds=i) for i in numbers], pa.timestamp("us", "UTC")),
            "status": [200 + i % 5 for i in numbers],
        }
    )


def main(count: int) -> None:
    with broker() as (bootstrap, folder):
        compare(bootstrap, folder, rows(count))


@contextmanager
def broker() -> Iterator[tuple[str, Path]]:
    """The address of a broker, and a folder, until the block ends."""
    with tempfile.TemporaryDirectory(prefix="kafka-bench-", ignore_cleanup_errors=True) as folder:
        running = Broker(Path(folder) / "broker").start()
        try:
            yield running.bootstrap, Path(folder)
        finally:
            running.kill()


def compare(bootstrap: str, folder: Path, batch: pa.RecordBatch) -> None:
    ways = prepared(bootstrap, folder, batch)
    best = {"bare": 0.0, "sink": 0.0}
    for epoch in range(-1, ROUNDS):  # the first one connects, and does not count
        speeds = {way: speed(ways[way](epoch + 1), batch.num_rows) for way in best}
        if epoch >= 0:
            best = {way: max(best[way], speeds[way]) for way in best}
    for way, found in best.items():
        print(f"{way:5} {found:12,.0f} rows per CPU-second")
    print(f"ratio {best['sink'] / best['bare']:12.2f}")


def prepared(bootstrap: str, folder: Path, batch: pa.RecordBatch) -> dict[str, Callable[[int], Callable[[], object]]]:
    """For each way and the number of a round: what sends the rows once."""
    options = {"topic": "rows", "kafka.bootstrap.servers": bootstrap, "create": "4", "key": "who"}
    sink = KafkaSink(SinkSpec("out", "kafka://rows", "bench", str(folder), options=options))
    sink.prepare(batch.schema)
    values = json_rows(batch, batch.schema.names).to_pylist()
    keys = batch.column("who").cast(pa.binary()).to_pylist()
    settings = {"linger.ms": 20, "queue.buffering.max.messages": 500_000, "delivery.report.only.error": True}
    bare = Producer({"bootstrap.servers": bootstrap, "transactional.id": "bare", **settings})
    bare.init_transactions()

    def send_bare() -> None:
        bare.begin_transaction()
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    bare.produce("rows", value, key)
                    break
                except BufferError:
                    bare.poll(0.05)
        bare.commit_transaction()

    def apply(number: int) -> Callable[[], object]:
        at = EpochKey("bench", "main", 1, number)
        writer = StagedWriter(sink.staging(at, 1), "0")
        writer.write(batch)
        return partial(sink.apply, at, sink.receipt(at, writer.close()))

    return {"sink": apply, "bare": lambda _: send_bare}


def speed(work: Callable[[], object], count: int) -> float:
    started = time.process_time()
    work()
    return count / (time.process_time() - started)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300_000)
