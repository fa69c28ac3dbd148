"""Spark and DuckDB over tables that the sink wrote: same rows, files skipped only when they may be."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from anabranch.connectors.delta import DeltaSink, arrow_dataset
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.errors import ProjectError, SinkError

pytestmark = pytest.mark.spark

INNER = pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))])
ALL_TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("i8", pa.int8()),
        ("i16", pa.int16()),
        ("i32", pa.int32()),
        ("f32", pa.float32()),
        ("f64", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("small", pa.decimal128(5, 2)),
        ("mid", pa.decimal128(18, 6)),
        ("big", pa.decimal128(38, 18)),
        ("s", INNER),
        ("items", pa.list_(pa.struct([("k", pa.string())]))),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)


def row(n: int) -> dict[str, Any]:
    """One row; its values grow with `n` in every ordered column."""
    moment = dt.datetime(1500 + n, 1, 1, 3, 4, 5, 678901, tzinfo=dt.UTC)
    return {
        "id": n,
        "i8": n % 100,
        "i16": n,
        "i32": n,
        "f32": n + 0.5,
        "f64": n + 0.25,
        "flag": n % 2 == 0,
        "text": f"{n:05}" + "ö" * 60,
        "raw": b"\x00" + bytes([n % 256]),
        "day": moment.date(),
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "small": Decimal(n) / 100,
        "mid": Decimal(n) / 1000,
        "big": Decimal(f"{n}2345678901234567.000000000000000001"),
        "s": {"a": n, "b": {"c": f"{n:05}"}},
        "items": [{"k": "x"}, {"k": None}, None],
        "tags": [("one", n), ("none", None)],
    }


def key(epoch: int) -> EpochKey:
    return EpochKey("p-1", "main", 1, epoch)


def put(sink: DeltaSink, epoch: int, rows: list[dict[str, Any]]) -> Applied:
    staging = sink.staging(key(epoch), 1)
    writer = StagedWriter(staging, "0")
    writer.write(pa.RecordBatch.from_pylist(rows, schema=staging.schema))
    return sink.apply(key(epoch), Receipt.from_json(sink.receipt(key(epoch), writer.close()).to_json()))


def sink_at(location: Path, schema: pa.Schema, **options: Any) -> DeltaSink:
    sink = DeltaSink("events", str(location), pipeline="p-1", **options)
    sink.prepare(schema)
    return sink


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten files of ten rows, and one of nulls."""
    location = tmp_path_factory.mktemp("delta") / "all"
    sink = sink_at(location, ALL_TYPES)
    for epoch in range(10):
        put(sink, epoch, [row(n) for n in range(epoch * 10, epoch * 10 + 10)])
    put(sink, 10, [{"id": 1000}])
    return str(location)


def files_read(frame: Any) -> int:
    """How many files the executed plan read, by Spark's own count."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        metrics = node.metrics()
        if metrics.contains("numFiles"):
            return int(metrics.apply("numFiles").value())
        if node.getClass().getSimpleName() == "AdaptiveSparkPlanExec":
            nodes.append(node.executedPlan())
        children = node.children()
        nodes += [children.apply(i) for i in range(children.size())]
    raise AssertionError("no scan in the plan")


def test_spark_reads_every_type(spark: Any, table: str) -> None:
    frame = spark.read.format("delta").load(table).orderBy("id")
    got = frame.toArrow().cast(ALL_TYPES).to_pylist()
    expected = pa.RecordBatch.from_pylist([row(n) for n in range(100)] + [{"id": 1000}], schema=ALL_TYPES).to_pylist()
    assert got == expected


def test_arrow_and_duckdb_read_every_type(table: str) -> None:
    expected = pa.RecordBatch.from_pylist([row(n) for n in range(100)] + [{"id": 1000}], schema=ALL_TYPES).to_pylist()
    data = arrow_dataset(table, 11)
    assert data.to_table().sort_by("id").cast(ALL_TYPES).to_pylist() == expected
    with duckdb.connect() as connection:
        connection.register("t", data)
        assert connection.sql("select count(*), sum(id), max(s.b.c) from t where id < 50").fetchall() == [
            (50, 1225, "00049")
        ]
        assert connection.sql("select id from t where text is null").fetchall() == [(1000,)]
        assert connection.sql(
            "select count(*) from t where \"at\" >= timestamptz '1590-01-01 00:00:00+00'"
        ).fetchall() == [(10,)]
    assert arrow_dataset(table, 3).count_rows() == 30


#: A condition that only the rows 40 to 49 fulfil, or fewer; for each ordered column, at its edges.
ONE_FILE = [
    "id = 45",
    "id >= 40 and id < 50",
    "i32 = 40",
    "i16 = 49",
    "i8 = 45",
    "f32 = 49.5",
    "f64 = 40.25",
    "text = concat('00045', repeat('ö', 60))",
    "text > concat('00048', repeat('ö', 61)) and text < '00050'",
    "day = date'1540-01-01'",
    "at = timestamp'1549-01-01 03:04:05.678901Z'",
    "at >= timestamp'1549-01-01 03:04:05.678901Z' and at < timestamp'1550-01-01 00:00:00Z'",
    "local = timestamp_ntz'1540-01-01 03:04:05.678901'",
    "small = 0.45",
    "mid = 0.049",
    "big = 452345678901234567.000000000000000001BD",
    "s.a = 45",
    "s.b.c = '00049'",
]


@pytest.mark.parametrize("condition", ONE_FILE)
def test_spark_skips_files_and_loses_no_row(spark: Any, table: str, condition: str) -> None:
    frame = spark.read.format("delta").load(table).where(condition)
    assert files_read(frame) == 1
    got = sorted(r.id for r in frame.collect())
    spark.conf.set("spark.databricks.delta.stats.skipping", "false")
    try:
        unskipped = spark.read.format("delta").load(table).where(condition)
        assert files_read(unskipped) == 11
        assert sorted(r.id for r in unskipped.collect()) == got
    finally:
        spark.conf.unset("spark.databricks.delta.stats.skipping")
    assert got
    assert all(40 <= n < 50 for n in got)


def test_spark_skips_by_nulls(spark: Any, table: str) -> None:
    frame = spark.read.format("delta").load(table)
    for column in ("text", "big", "s.a", "at", "flag"):
        nulls = frame.where(f"{column} is null")
        assert files_read(nulls) == 1
        assert [r.id for r in nulls.collect()] == [1000]
        assert files_read(frame.where(f"{column} is not null")) == 10


def test_counts_and_bounds_from_the_log_alone_are_right(spark: Any, table: str) -> None:
    [answer] = spark.sql(f"select count(*) n, min(id) low, max(id) high from delta.`{table}`").collect()
    assert (answer.n, answer.low, answer.high) == (101, 0, 1000)
    [answer] = spark.sql(f"select min(day) low, max(day) high, max(f32) f, min(i8) i from delta.`{table}`").collect()
    assert answer.low == dt.date(1500, 1, 1)
    assert answer.high == dt.date(1599, 1, 1)
    assert (answer.f, answer.i) == (99.5, 0)


def test_difficult_values_are_never_skipped(spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC"))])
    sink = sink_at(tmp_path / "t", schema)
    far = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)
    near = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    put(sink, 0, [{"id": 0, "f": math.nan, "s": "\U0010ffff" * 40, "t": far}, {"id": 1, "f": 1.0, "s": "a", "t": far}])
    put(sink, 1, [{"id": 2, "f": -0.0, "s": "\ud7ff" * 40, "t": near}, {"id": 3, "f": -5.0, "s": "", "t": near}])
    put(sink, 2, [{"id": 4, "f": math.inf, "s": '\x00\n"\\', "t": None}])
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    for condition, expected in {
        "f > 100": [0, 4],
        "f = double('NaN')": [0],
        "f = 0.0": [2],
        "f >= 0.0 and f < 0.5": [2],
        "f = double('Infinity')": [4],
        "s > 'b'": [0, 2],
        "s = ''": [3],
        "s < 'A'": [3, 4],
        "t > timestamp'9999-12-31 23:59:59.999Z'": [0, 1],
        "t <= timestamp'0001-01-01 00:00:00Z'": [2, 3],
        "t is null": [4],
    }.items():
        assert sorted(r.id for r in frame.where(condition).select("id").collect()) == expected, condition


def test_spark_reads_and_prunes_partitions(spark: Any, tmp_path: Path) -> None:
    kinds = {
        "s": pa.string(),
        "d": pa.date32(),
        "t": pa.timestamp("us", "UTC"),
        "n": pa.timestamp("us"),
        "b": pa.bool_(),
        "x": pa.decimal128(9, 2),
        "i": pa.int32(),
        "f": pa.float64(),
    }
    schema = pa.schema([("id", pa.int64()), *kinds.items()])
    sink = sink_at(tmp_path / "t", schema, partition_by=tuple(kinds))
    moment = dt.datetime(1400, 2, 28, 23, 59, 59, 123456, tzinfo=dt.UTC)
    texts = ["plain", "a/b", "50%", "x=y:z", "é ü", "a%20b+c", "#?*", "", None, "__HIVE_DEFAULT_PARTITION__", "y" * 300]
    wanted = [
        {
            "id": n,
            "s": text,
            "d": moment.date() if n % 2 else None,
            "t": moment if n % 3 else None,
            "n": moment.replace(tzinfo=None) if n % 3 else None,
            "b": n % 2 == 0,
            "x": Decimal("-1.50"),
            "i": -n,
            "f": n / 3,
        }
        for n, text in enumerate(texts)
    ]
    put(sink, 0, wanted)
    expected = [{**r, "s": r["s"] or None} for r in wanted]
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    assert frame.orderBy("id").toArrow().cast(schema).to_pylist() == expected
    assert arrow_dataset(str(tmp_path / "t"), 1).to_table().sort_by("id").cast(schema).to_pylist() == expected
    assert [r.id for r in frame.where("s = 'a/b'").collect()] == [1]
    assert files_read(frame.where("s = 'a/b'")) == 1
    assert sorted(r.id for r in frame.where("t = timestamp'1400-02-28 23:59:59.123456Z'").collect()) == [
        1,
        2,
        4,
        5,
        7,
        8,
        10,
    ]
    previous = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert frame.where("t = timestamp'1400-02-28 23:59:59.123456Z'").count() == 7
    finally:
        spark.conf.set("spark.sql.session.timeZone", previous)


def test_spark_may_write_and_optimize_between_epochs(spark: Any, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    sink = sink_at(tmp_path / "t", schema)
    for epoch in range(3):
        put(sink, epoch, [{"id": epoch, "at": dt.datetime(2020, 1, 1, 0, 0, 0, 999, tzinfo=dt.UTC)}])
    spark.sql("select 100L id, timestamp'3000-01-01 00:00:00.000999Z' at").write.format("delta").mode("append").save(
        location
    )
    assert put(sink, 3, [{"id": 3}]) == Applied("5")
    spark.sql(f"optimize delta.`{location}`")
    assert put(sink, 4, [{"id": 4}]) == Applied("7")
    spark.sql(f"alter table delta.`{location}` add columns (extra string)")
    assert put(sink, 5, [{"id": 5}]) == Applied("9")
    expected = [0, 1, 2, 3, 4, 5, 100]
    assert sorted(r.id for r in spark.read.format("delta").load(location).collect()) == expected
    data = arrow_dataset(location, 9)
    assert sorted(data.to_table()["id"].to_pylist()) == expected
    later = pa.compute.field("at") >= pa.scalar(
        dt.datetime(3000, 1, 1, 0, 0, 0, 999, tzinfo=dt.UTC), schema.field("at").type
    )
    assert data.to_table(filter=later)["id"].to_pylist() == [100]
    assert sink.find(key(2)) == Applied("3", already=True)
    pinned = spark.read.format("delta").option("versionAsOf", 3).load(location)
    assert sorted(r.id for r in pinned.collect()) == [0, 1, 2]
    history = spark.sql(f"describe history delta.`{location}`").select("version", "operation").collect()
    assert len(history) == 10


def test_deletion_vectors_are_told(spark: Any, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    sink = sink_at(tmp_path / "t", pa.schema([("id", pa.int64())]))
    put(sink, 0, [{"id": n} for n in range(10)])
    spark.sql(f"alter table delta.`{location}` set tblproperties ('delta.enableDeletionVectors' = 'true')")
    put(sink, 1, [{"id": n} for n in range(10, 20)])
    assert arrow_dataset(location, 3).count_rows() == 20
    spark.sql(f"delete from delta.`{location}` where id = 5")
    put(sink, 2, [{"id": 20}])
    assert spark.read.format("delta").load(location).count() == 20
    with pytest.raises(SinkError) as raised:
        arrow_dataset(location, 5)
    assert raised.value.code == "TABLE_FEATURE_UNSUPPORTED"


def test_tables_of_spark_are_taken_or_refused(spark: Any, tmp_path: Path) -> None:
    location = tmp_path / "plain"
    spark.sql(f"create table delta.`{location}` (id bigint, name string) using delta")
    sink = sink_at(location, pa.schema([("id", pa.int64()), ("name", pa.string())]))
    put(sink, 0, [{"id": 1, "name": "x"}])
    assert spark.read.format("delta").load(str(location)).count() == 1
    location = tmp_path / "mapped"
    spark.sql(
        f"create table delta.`{location}` (id bigint) using delta tblproperties ('delta.columnMapping.mode' = 'name')"
    )
    with pytest.raises(ProjectError) as raised:
        sink_at(location, pa.schema([("id", pa.int64())]))
    assert raised.value.code == "TABLE_FEATURE_UNSUPPORTED"
