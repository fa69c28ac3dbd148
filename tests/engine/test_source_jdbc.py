"""Rows of a database as a source: bounds that are fixed, rows that settle late, a snapshot that changes follow."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from anabranch import Output, fan_out, sources
from anabranch.engine.source_jdbc_databases import Asked, Database, database_of
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.postgres

TABLE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, name text, at timestamptz NOT NULL DEFAULT now(), price numeric(9,2))"
)
ARROW = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.fixture
def database(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(TABLE.encode())
        yield connection


def asked(url: str, column: str = "at", seconds: float = 0, rows: str = "SELECT * FROM orders") -> Database:
    return database_of(Asked(url, rows, column, timedelta(seconds=seconds)))


def ids(database: Database, lower: Any, upper: Any) -> list[int]:
    return sorted(n for b in database.read(lower, upper, ARROW) for n in b["id"].to_pylist())


def test_parts_of_a_range_have_each_row_once(database: psycopg.Connection[Any], postgres_url: str) -> None:
    database.execute(
        "INSERT INTO orders SELECT g, 'n', '2024-01-01Z'::timestamptz + (g / 3) * '1 s'::interval "
        "FROM generate_series(1, 100) g"
    )
    for column in ("at", "id"):
        source = asked(postgres_url, column)
        upper = source.upper()
        for parts in (1, 2, 7, 500):
            cuts = source.cuts(None, upper, parts)
            assert cuts[0] is None
            assert cuts[-1] == upper
            assert len(cuts) > 2 or parts == 1
            read = [n for low, high in pairwise(cuts) for n in ids(source, low, high)]
            assert Counter(read) == Counter(range(1, 101)), (column, parts)
    middle = str(database.execute("SELECT at::text FROM orders WHERE id = 50").fetchone()[0])  # type: ignore[index]
    source = asked(postgres_url)
    low, high = ids(source, None, middle), ids(source, middle, source.upper())
    assert sorted(low + high) == list(range(1, 101))  # rows with the very value of the bound are in one of them


def test_rows_of_a_transaction_that_ends_late_are_not_skipped(
    database: psycopg.Connection[Any], postgres_url: str
) -> None:
    hasty, patient = asked(postgres_url), asked(postgres_url, seconds=3600)
    with psycopg.connect(postgres_url) as slow:
        slow.execute("INSERT INTO orders VALUES (1, 'slow')")  # its time is that of its beginning
        database.execute("INSERT INTO orders VALUES (2, 'fast')")
        bound, kept = hasty.upper(), patient.upper()
        assert ids(hasty, None, bound) == [2]
        slow.commit()
    assert ids(hasty, bound, hasty.upper()) == []  # so 1 would be lost
    assert kept is None
    database.execute("UPDATE orders SET at = at - interval '2 hours'")  # two hours later
    assert ids(patient, kept, patient.upper()) == [1, 2]


def test_what_cannot_be_read_is_told(database: psycopg.Connection[Any], postgres_url: str, tmp_path: Path) -> None:
    database.execute("ALTER TABLE orders ALTER at DROP NOT NULL")
    database.execute("INSERT INTO orders VALUES (1, 'x', NULL)")
    with pytest.raises(ProjectError) as null:
        asked(postgres_url).check()
    assert null.value.code == "JDBC_NULL_CURSOR"
    with pytest.raises(ProjectError, match="settled"):
        asked(postgres_url, "id", seconds=30).check()
    asked(postgres_url, "id").check()
    for wrong in (
        {"table": "a", "query": "b"}, {"table": "a", "mode": "all"}, {"table": "a"},
        {"table": "a", "column": "b", "settle": "soon"},
    ):  # fmt: skip
        with pytest.raises(ProjectError) as refused:
            sources.jdbc(postgres_url, **wrong)  # type: ignore[arg-type]
        assert refused.value.code == "JDBC_INVALID"
    for url in ("mysql://db/x", "postgresql://ann:tulips-in-may@db/x", "postgresql://db/x?password=tulips-in-may"):
        with pytest.raises(ProjectError) as refused:
            sources.jdbc(url, table="a", column="b")
        assert "tulips" not in f"{refused.value.as_record()}"


def test_types_are_those_of_the_database(postgres_url: str, tmp_path: Path) -> None:
    query = "SELECT 1::int2 a, 2::int8 b, 1.5::numeric(9,2) c, now() d, gen_random_uuid() e, '{}'::json f, 1::numeric g"
    assert asked(postgres_url, rows=query).types() == (
        "`a` SMALLINT, `b` BIGINT, `c` DECIMAL(9,2), `d` TIMESTAMP, `e` STRING, `f` STRING, `g` DECIMAL(38,18)"
    )
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as shop:
        shop.execute("CREATE TABLE t (id INTEGER, name VARCHAR(9), price DOUBLE, raw BLOB, at TEXT)")
        shop.executemany(
            "INSERT INTO t VALUES (?, 'x', 0.5, NULL, ?)", [(9, "2024-01-01 00:00:00"), (10, "2999-01-01")]
        )
    lite = database_of(Asked(f"sqlite:///{file}", "SELECT * FROM t", "at", timedelta(seconds=5)))
    assert lite.types() == "`id` BIGINT, `name` STRING, `price` DOUBLE, `raw` BINARY, `at` STRING"
    assert lite.upper() == "2024-01-01 00:00:00"
    numbers = database_of(Asked(f"sqlite:///{file}", "SELECT * FROM t", "id", timedelta(0)))
    one = pa.schema([("id", pa.int64())])
    assert numbers.upper() == "10"
    assert [b["id"].to_pylist() for b in numbers.read("9", "10", one)] == [[10]]


@pytest.mark.spark
def test_two_outputs_read_it_once_and_a_run_reads_what_is_new(
    spark: SparkSession, database: psycopg.Connection[Any], postgres_url: str, tmp_path: Path
) -> None:
    database.execute(
        "INSERT INTO orders SELECT g, 'a', now() - interval '1 hour' + g * '1 s'::interval, g "
        "FROM generate_series(1, 50) g"
    )
    frame = sources.jdbc(postgres_url, table="orders", column="at")
    job = fan_out(frame, {"every": lambda df: df, "odd": "id % 2 = 1"}, storage=tmp_path / "lake")
    assert job.run_once().epochs == 1
    (offsets,) = (tmp_path / "lake").rglob("offsets/0")
    assert [json.loads(line).keys() for line in offsets.read_text().splitlines()[2:]] == [{"upper"}]  # one scan
    database.execute("INSERT INTO orders VALUES (51, 'late', now() - interval '1 minute'), (52, 'too new', now())")
    job.run_once()
    job.run_once()
    cut = job.cut()
    assert cut.sql("SELECT count(*) n, count(DISTINCT id) d, max(price) m FROM every").to_pylist() == [
        {"n": 51, "d": 51, "m": 50}
    ]
    assert cut.sql("SELECT count(*) n FROM odd").to_pylist() == [{"n": 26}]


@pytest.mark.spark
def test_secrets_are_neither_in_plans_nor_in_checkpoints(
    spark: SparkSession, database: psycopg.Connection[Any], postgres_url: str, tmp_path: Path
) -> None:
    database.execute("INSERT INTO orders VALUES (1, 'a', now() - interval '1 hour')")
    secret = tmp_path / "secret"
    secret.write_text("hyacinth-in-march\n")
    url = postgres_url.replace("postgres@", f"postgres:${{file:{secret}}}@")
    job = fan_out(sources.jdbc(url, table="orders", column="at"), {"every": lambda df: df}, storage=tmp_path / "lake")
    job.run_once()
    assert len(job.cut().sql("SELECT * FROM every").to_pylist()) == 1
    frame = sources.jdbc(url, table="orders", mode="full")
    assert "hyacinth" not in frame._jdf.queryExecution().toString()
    assert [row.id for row in frame.collect()] == [1]
    kept = [p for p in (tmp_path / "lake").rglob("*") if p.is_file() and b"hyacinth" in p.read_bytes()]
    assert kept == []


ROW = "id BIGINT, name STRING, price DECIMAL(9,2)"


@pytest.mark.spark
def test_a_snapshot_and_the_changes_around_it_make_the_table(
    spark: SparkSession, database: psycopg.Connection[Any], postgres_url: str, tmp_path: Path
) -> None:
    """Changes commit before, while and after the rows are read; those in between are in both."""
    slot = f"s_{os.getpid()}"
    database.execute("INSERT INTO orders SELECT g, 'old', now(), g FROM generate_series(1, 20) g")
    database.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    database.execute(f"CREATE PUBLICATION {slot} FOR TABLE orders".encode())
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
    try:
        database.execute("UPDATE orders SET name = 'between' WHERE id <= 5")
        database.execute("DELETE FROM orders WHERE id = 6")
        query = "SELECT id, name, price FROM orders"
        snapshot = sources.as_snapshot(sources.jdbc(postgres_url, query=query, mode="full", schema=ROW))
        snapshot.write.parquet(str(tmp_path / "snapshot"))  # what was read at this moment
        database.execute("UPDATE orders SET name = 'after', price = price + 1 WHERE id IN (3, 10)")
        database.execute("DELETE FROM orders WHERE id = 11")
        database.execute("INSERT INTO orders VALUES (30, 'new', now(), 0.5)")
        messages = decoded(database, slot)
    finally:
        database.execute("SELECT pg_drop_replication_slot(%s)", [slot])
    (tmp_path / "topic").mkdir()
    lines = [json.dumps({"value": m}) for m in (*messages, None, *messages[:4])]  # tombstones, and some twice
    (tmp_path / "topic" / "1.json").write_text("\n".join(lines))
    topic = spark.readStream.schema("value STRING").json(str(tmp_path / "topic"))
    changes = sources.debezium(topic, ROW)
    rows = spark.readStream.schema(snapshot.schema).parquet(str(tmp_path / "snapshot"))
    output = Output(lambda df: df, keys=("id",), sequence_by="_lsn", deletes="_deleted")
    job = fan_out(changes.unionByName(rows), {"orders": output}, storage=tmp_path / "lake")
    job.run_once()
    found = job.cut().sql("SELECT id, name, price FROM orders ORDER BY id").to_pylist()
    assert [tuple(row.values()) for row in found] == database.execute(query + " ORDER BY id").fetchall()


def decoded(database: psycopg.Connection[Any], slot: str) -> list[str]:
    """What a slot has, in Debezium's words. The protocol is that of PostgreSQL's pgoutput, version 1."""
    found = database.execute(
        "SELECT lsn - '0/0', data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, "
        "'proto_version', '1', 'publication_names', %s)",
        [slot, slot],
    ).fetchall()
    names: list[str] = []
    messages = []
    for lsn, data in found:
        kind, at = data[:1], 5
        if kind == b"R":
            names = _columns(data)
        if kind not in (b"I", b"U", b"D"):
            continue
        rows: dict[str, Any] = {}
        while at < len(data):
            which, (row, at) = data[at : at + 1], _row(data, at + 1, names)
            rows["after" if which == b"N" else "before"] = row
        op = {b"I": "c", b"U": "u", b"D": "d"}[kind]
        messages.append(json.dumps({"before": None, "after": None, **rows, "op": op, "source": {"lsn": int(lsn)}}))
    return messages


def _columns(data: bytes) -> list[str]:
    at = data.index(b"\0", data.index(b"\0", 5) + 1) + 2  # namespace, name, replica identity
    (count,) = struct.unpack_from(">h", data, at)
    at, names = at + 2, []
    for _ in range(count):
        end = data.index(b"\0", at + 1)
        names.append(data[at + 1 : end].decode())
        at = end + 9
    return names


def _row(data: bytes, at: int, names: list[str]) -> tuple[dict[str, Any], int]:
    at, row = at + 2, {}
    for name in names:
        kind, at = data[at : at + 1], at + 1
        row[name] = None
        if kind == b"t":
            (size,) = struct.unpack_from(">i", data, at)
            text = data[at + 4 : at + 4 + size].decode()
            row[name] = text if name in ("name", "at") else float(text)
            at += 4 + size
    row["id"] = int(row["id"])
    return row, at


@pytest.mark.spark
def test_the_forms_of_a_message(spark: SparkSession) -> None:
    row = {"id": 1, "name": "x", "price": 1}
    said = [
        {"before": None, "after": row, "op": "r", "source": {"lsn": 7, "snapshot": "true"}, "ts_ms": 1},
        {"schema": {"type": "struct"}, "payload": {"before": row, "after": None, "op": "d", "source": {"lsn": 9}}},
        {"op": "t", "source": {"lsn": 10}},
        {"op": "m", "message": {}, "source": {"lsn": 11}},
    ]
    lines = [(json.dumps(message),) for message in said]
    found = sources.debezium(spark.createDataFrame([*lines, (None,)], "value STRING"), ROW).collect()
    assert [(r.id, r._op, tuple(r._lsn), r._deleted, r._truncated) for r in found] == [
        (1, "r", (7, 0), False, False),
        (1, "d", (9, 1), True, False),
        (None, "t", (10, 1), False, True),
    ]
