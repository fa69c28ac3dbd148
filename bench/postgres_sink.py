"""Rows into Postgres: through the sink, against psycopg's COPY alone, of the same rows, in turns.

    python bench/postgres_sink.py postgresql://user@host/database [rows] [rounds]

`sink` reads staged Parquet, encodes and commits with the epoch. `write_row` is psycopg's COPY as its manual shows it,
of rows that are Python tuples already, in text and in binary; `encoded` only sends bytes that were encoded before: what
the server can take. CPU is that of this process, without the server's.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa

from anabranch.connectors.contract import Sink, SinkSpec
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.connectors.postgres_copy import blocks
from anabranch.connectors.registry import open_sink
from anabranch.core.epoch import EpochKey

COLUMNS = {
    "id": "bigint",
    "at": "timestamp with time zone",
    "visitor": "text",
    "status": "integer",
    "amount": "double precision",
    "path": "text",
    "ok": "boolean",
}
_OIDS = ["int8", "timestamptz", "text", "int4", "float8", "text", "bool"]


def sample(count: int) -> pa.Table:
    """Requests as a web server logs them."""
    chance = np.random.default_rng(1)
    return pa.table(
        {
            "id": pa.array(np.arange(count)),
            "at": pa.array(chance.integers(1_700_000_000_000_000, 1_730_000_000_000_000, count)).cast(
                pa.timestamp("us", "UTC")
            ),
            "visitor": pa.array([f"visitor-{n % 5000}" for n in range(count)]),
            "status": pa.array(chance.integers(200, 599, count).astype("int32")),
            "amount": pa.array(chance.random(count) * 1000, mask=chance.random(count) < 0.05),
            "path": pa.array([f'/api/v1/items/{n}?q="some words", and é {n * 7}' for n in range(count)]),
            "ok": pa.array(chance.random(count) > 0.5),
        }
    )


def main() -> None:
    url = sys.argv[1]
    count, rounds = (int(sys.argv[2]) if len(sys.argv) > 2 else 500_000), int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with prepared(url, sample(count)) as (ways, emptied):
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for number in range(rounds + 1):  # the first one warms up
            for name, prepare in ways.items():
                work = prepare(number)
                wall, cpu = time.perf_counter(), time.process_time()
                work()
                figures[name].append((time.perf_counter() - wall, time.process_time() - cpu))
                emptied()
    _show(count, {name: each[1:] for name, each in figures.items()})


Ways = dict[str, Callable[[int], Callable[[], object]]]


@contextmanager
def prepared(url: str, rows: pa.Table) -> Iterator[tuple[Ways, Callable[[], None]]]:
    """For each way and the number of a round what writes the rows once, and what empties the tables after it."""
    tuples = [tuple(row.values()) for row in rows.to_pylist()]
    ready = [bytes(block) for block in blocks(rows.to_batches(max_chunksize=10_000), COLUMNS)]
    with psycopg.connect(url) as database, tempfile.TemporaryDirectory() as storage:
        sink = open_sink("postgres", SinkSpec("bench_sink", "postgres://bench_sink", "bench", storage, {"url": url}))
        sink.prepare(rows.schema)
        database.execute(f"CREATE TABLE bench_alone ({', '.join(f'{n} {t}' for n, t in COLUMNS.items())})".encode())
        database.commit()
        ways: Ways = {
            "sink": lambda number: _through(sink, rows, number),
            "write_row, text": lambda _: lambda: _alone(database, tuples, binary=False),
            "write_row, binary": lambda _: lambda: _alone(database, tuples, binary=True),
            "encoded": lambda _: lambda: _send(database, ready),
        }

        def emptied() -> None:
            database.execute("TRUNCATE bench_alone, bench_sink")
            database.commit()

        try:
            yield ways, emptied
        finally:
            database.rollback()
            database.execute("DROP TABLE bench_alone, bench_sink, anabranch_epochs")


def _through(sink: Sink, rows: pa.Table, number: int) -> Callable[[], object]:
    key = EpochKey("bench", "bench", 1, number)
    writer = StagedWriter(sink.staging(key, 1), "0")
    for batch in rows.to_batches():
        writer.write(batch)
    receipt = sink.receipt(key, writer.close())
    return lambda: sink.apply(key, receipt)


def _alone(database: psycopg.Connection[Any], tuples: list[tuple[Any, ...]], *, binary: bool) -> None:
    form = "(FORMAT BINARY)" if binary else ""
    with database.cursor() as cursor, cursor.copy(f"COPY bench_alone FROM STDIN {form}".encode()) as copy:
        if binary:
            copy.set_types(_OIDS)
        for row in tuples:
            copy.write_row(row)
    database.commit()


def _send(database: psycopg.Connection[Any], ready: list[bytes]) -> None:
    with database.cursor() as cursor, cursor.copy(b"COPY bench_alone FROM STDIN (FORMAT BINARY)") as copy:
        for block in ready:
            copy.write(block)
    database.commit()


def _show(count: int, figures: dict[str, list[tuple[float, float]]]) -> None:
    middle = {name: (median(w for w, _ in each), median(c for _, c in each)) for name, each in figures.items()}
    own_wall, own_cpu = middle["sink"]
    print(f"{count:,} rows; median of {len(figures['sink'])}; sink against each: rows a second, rows a CPU-second")
    for name, (wall, cpu) in middle.items():
        ratios = f"{wall / own_wall:5.2f} {cpu / own_cpu:5.2f}"
        print(f"{name:18} {count / wall:12,.0f} rows/s {count / cpu:12,.0f} rows/CPU-s   {ratios}")


if __name__ == "__main__":
    main()
