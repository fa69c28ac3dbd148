"""Files of Parquet through the native pass: value by value what Spark computes, or left to Spark."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from native import parquet_files
from native.native_project import Ran, land

pytestmark = pytest.mark.spark

CODE = f'''
SCHEMA = """{parquet_files.SCHEMA}"""

@dp.temporary_view
def rows():
    return spark.readStream.format("parquet").schema(SCHEMA).load(IN)

@dp.table
def everything():
    return spark.readStream.table("rows")

@dp.table
@dp.expect("named", "loud IS NOT NULL")
@dp.expect_or_drop("some", "next IS NOT NULL OR rest > 0")
def computed():
    found = spark.readStream.table("rows").where("id % 2 = 0 OR d > 0 OR name LIKE 'a%'")
    return found.selectExpr(
        "id", "upper(name) AS loud", "length(name) AS long", "year(day) AS year", "-d AS minus", "d = d AS same",
        "coalesce(n, 0) % 7 AS rest", "f > 1 AS large", "m + 1 AS more", "date_trunc('hour', at) AS hour",
        "inner.deep.x AS x", "inner.`b.c` AS bc", "try_add(i, 1) AS next", "size(tags) AS tags", "at < current_timestamp() AS past",
    )

@dp.table
def exploded():
    found = spark.readStream.table("rows").select("id", "tags", F.explode_outer("items").alias("item"))
    return found.select("id", "item.*", F.explode("tags").alias("tag")).where("qty > 0 OR tag IS NULL OR id % 3 = 0")

@dp.table
def files():
    rows = spark.readStream.format("parquet").schema(SCHEMA).load(IN)
    return rows.select("id", "_metadata.file_path", "_metadata.file_size", F.upper("_metadata.file_name").alias("loud"))
'''  # noqa: E501  of the pipeline
TABLES = ("everything", "computed", "exploded", "files")


def by_spark(spark: Any, folder: Path, name: str, form: str, first: int) -> bytes:
    """A file that Spark wrote, with one form of timestamps."""
    spark.conf.set("spark.sql.parquet.outputTimestampType", form)
    try:
        rows = spark.createDataFrame(parquet_files.table(60, first))
        rows = rows.withColumn("clock", rows["clock"].cast("timestamp_ntz"))
        rows.coalesce(1).write.parquet(str(folder / name))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    (found,) = (folder / name).glob("*.parquet")
    return found.read_bytes()


def test_files_of_parquet_are_read_as_spark_reads_them(tmp_path: Path, spark: Any) -> None:
    source = tmp_path / "in"
    usual = parquet_files.usual()
    for first, form in ((5000, "INT96"), (6000, "TIMESTAMP_MICROS")):
        usual[f"{form} a b%.parquet"] = by_spark(spark, tmp_path, form, form, first)
    land(source, usual)
    ours, theirs = (Ran(tmp_path / mode, spark, mode) for mode in ("audit", "false"))
    for ran in (ours, theirs):
        ran.write(CODE, source)
        assert ran.run() is None, ran.events
    assert set(ours.how().values()) == {"native"}
    assert "native" not in theirs.how().values()
    assert ours.schemas() == theirs.schemas()
    for table in TABLES:
        assert ours.rows(table) == theirs.rows(table), table
    assert ours.quality() == theirs.quality()
    assert ours.counts() == theirs.counts()
    channels = sorted({event.channel for event in ours.published})
    went = [ours.records(channel) for channel in channels]
    count = sum(theirs.rows("files").values())
    assert [one.total() for one in went] == [count, count]
    assert all(one["native"] for one in went)  # of the hostile values many are left to Spark
    assert any(one["spark"] for one in went)

    # A file in another form: Spark computes the epoch.
    some = parquet_files.odd()
    names = ("unsigned", "late day", "text for bytes", "int96 of others", "old Spark", "no text")
    land(source, {f"{name}.parquet": some[name] for name in names})
    for ran in (ours, theirs):
        assert ran.run() is None, ran.events
    assert [ours.records(channel) for channel in channels] == went
    for table in TABLES:
        assert ours.rows(table) == theirs.rows(table), table
    shutil.rmtree(source)


REFUSED = """
@dp.table
def names():
    columns = "id BIGINT, name STRING, pairs MAP<STRING, INT>, d DOUBLE, tags ARRAY<INT>"
    rows = spark.readStream.format("parquet").schema(columns)
    return rows{0}.load(IN).select({1})
"""


def test_sources_of_parquet_that_are_left_to_spark(tmp_path: Path, spark: Any) -> None:
    cases = {
        '.option("ignoreCorruptFiles", "true")|"id"': "with the option ignorecorruptfiles",
        '.option("datetimeRebaseMode", "LEGACY")|"id"': "with the option datetimerebasemode",
        '|"id", "_metadata.row_index"': "asks where in a file a row is",
        '|"id", (F.col("_metadata.file_block_start") + 1).alias("x")': "asks where in a file a row is",
        '|"id", F.col("_metadata").alias("file")': "asks where in a file a row is",
        '|F.lit(1).alias("one")': "reads no column of its files",
        '|"id", F.xxhash64("name").alias("h")': "calls `XxHash64`",
        '|"id", "pairs"': "reads pairs, which is map<string,int>",
        '|"id", F.from_json("name", "a INT").alias("e")': "native",
        # What a file says of a row group does not say that there is NaN in it.
        '|"id", "d", "tags").where("d > 5").select("id", F.explode_outer("tags").alias("t")': "chooses rows before",
        '|"id", "d", F.explode_outer("tags").alias("t")).where("d > 5").select("id", "t"': "native",
        '|"id", "tags").where("id > 5").select("id", F.explode_outer("tags").alias("t")': "native",
        '.option("maxFilesPerTrigger", "1").option("recursiveFileLookup", "true")|"name"': "native",
    }
    (tmp_path / "in").mkdir()
    for number, (case, why) in enumerate(cases.items()):
        ran = Ran(tmp_path / str(number), spark, "true")
        ran.write(REFUSED.format(*case.split("|")), tmp_path / "in")
        (how,) = ran.how().values()
        assert why in how, case
        assert how == "native" or how.startswith("fused, spark: "), case


def test_folders_that_are_columns_and_sources_that_are_cleaned(tmp_path: Path, spark: Any) -> None:
    """Files that were read go where they are to go; a folder k=v is a column, which Spark reads."""
    code = """
@dp.table
def names():
    rows = spark.readStream.format("parquet").schema("id BIGINT, k INT").option("maxFilesPerTrigger", 1)
    rows = rows.option("cleanSource", "archive").option("sourceArchiveDir", IN + "-read/x/y")
    return rows.load(IN).select("id", "k")
"""
    found: list[tuple[Counter[str], list[str]]] = []
    for mode in ("true", "false"):
        source = tmp_path / mode / "in"
        land(source, {f"{n}.parquet": parquet_files.packed(parquet_files.table(3, n)) for n in range(3)})
        ran = Ran(tmp_path / mode / "lake", spark, mode)
        ran.write(code, source)
        assert ran.run() is None
        (channel,) = {event.channel for event in ran.published}
        assert (set(ran.how().values()) == {"native"}) == (mode == "true"), ran.how()
        assert bool(ran.records(channel)["native"]) == (mode == "true")
        land(source / "k=7", {"9.parquet": parquet_files.packed(parquet_files.table(3, 9))})
        assert ran.run() is None
        assert ran.records(channel)["native"] == (9 if mode == "true" else 0)
        left = sorted(str(p.relative_to(tmp_path / mode)).rpartition("/")[2] for p in source.glob("**/*.parquet"))
        found.append((ran.rows("names"), left))
    assert found[0] == found[1]
