"""Iceberg tables beside Delta tables in one channel, run and read by Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from anabranch import read
from anabranch.connectors.iceberg_catalog import CATALOG
from anabranch.core import crash
from anabranch.core.events import EpochRecovered, Event
from anabranch.engine.opened import open_project
from anabranch.engine.run import run
from anabranch.engine.upkeep import vacuum
from anabranch.load.project import read_project

pytestmark = pytest.mark.spark

PIPELINE = """
from anabranch import pipelines as dp
from pyspark.sql import functions as F

@dp.temporary_view
def orders():
    schema = "id INT, at TIMESTAMP, tags ARRAY<STRING>, price DECIMAL(9,2), extra VARIANT"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json({landing!r}).drop("extra")

@dp.table(name="silver.all_orders", format="iceberg", partition_cols=["day(at)", "bucket(2, id)"])
def all_orders():
    return spark.readStream.table("orders")

@dp.table
def cheap():
    return spark.readStream.table("orders").where("price < 5").select("id", "price")

dp.create_streaming_table("newest", format="iceberg")
dp.create_auto_cdc_flow(target="newest", source="orders", keys=["id"], sequence_by="at", except_column_list=["tags"])

@dp.materialized_view(format="iceberg")
def per_day():
    return spark.read.table("silver.all_orders").groupBy(F.to_date("at").alias("day")).count()
"""


class Made:
    """The project in a folder of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.landing, self.storage = root, root / "landing", root / "storage"
        self.landing.mkdir()
        self.events: list[Event] = []
        (root / "transformations").mkdir()
        (root / "transformations" / "pipeline.py").write_text(PIPELINE.format(landing=str(self.landing)))
        (root / "anabranch.yml").write_text(json.dumps({"name": "made", "storage": "storage"}))

    def feed(self, number: int, first: int, count: int) -> list[dict[str, Any]]:
        rows = [
            {"id": i % 7, "at": f"2024-01-0{1 + i % 3}T00:00:{i:02}Z", "tags": [f"t{i}"], "price": i % 9}
            for i in range(first, first + count)
        ]
        file = self.landing / f"{number}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        return rows

    def run(self) -> None:
        run(read_project(self.root), once=True, listener=self.events.append)

    def ids(self, table: str) -> list[int]:
        return sorted(read.cut(self.root).arrow(table)["id"].to_pylist())


@contextmanager
def jdbc_catalog(spark: Any, database: Path, warehouse: Path) -> Iterator[None]:
    """Spark as anybody would set it up to read the tables, knowing nothing of Anabranch."""
    settings = {
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "jdbc",
        f"spark.sql.catalog.{CATALOG}.uri": f"jdbc:sqlite:{database}",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse),
        f"spark.sql.catalog.{CATALOG}.jdbc.schema-version": "V1",
        f"spark.sql.catalog.{CATALOG}.cache-enabled": "false",
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


def test_delta_and_iceberg_in_one_channel_killed_recovered_and_read(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path)
    first = made.feed(0, 0, 10)
    made.run()
    second = made.feed(1, 10, 8)
    with monkeypatch.context() as patch:
        patch.setenv(crash.VARIABLE, "committed(silver.all_orders):raise")
        with pytest.raises(Exception, match="committed"):
            made.run()
    every = first + second
    # The Iceberg tables have the epoch, the cut has not moved.
    catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{made.storage}/iceberg.db")
    assert catalog.load_table("silver.all_orders").scan().to_arrow().num_rows == len(every)
    assert read.cut(made.root).dataset("silver.all_orders").count_rows() == len(first)
    made.run()
    assert any(isinstance(event, EpochRecovered) for event in made.events)

    cut = read.cut(made.root)
    assert made.ids("silver.all_orders") == sorted(r["id"] for r in every)
    assert made.ids("cheap") == sorted(r["id"] for r in every if r["price"] < 5)
    newest = {r["id"]: r["at"] for r in sorted(every, key=lambda r: r["at"])}
    assert {r["id"]: r["at"].strftime("%Y-%m-%dT%H:%M:%SZ") for r in cut.arrow("newest").to_pylist()} == newest
    assert sum(cut.arrow("per_day")["count"].to_pylist()) == len(every)

    with jdbc_catalog(spark, made.storage / "iceberg.db", made.storage / "tables"):
        for table, name in (
            ("silver.all_orders", "silver.all_orders"),
            ("newest", "default.newest"),
            ("per_day", "default.per_day"),
        ):
            plain = sorted(map(str, spark.table(f"{CATALOG}.{name}").collect()))
            assert plain == sorted(map(str, cut.spark(table, spark).collect()))
            assert len(plain) == cut.dataset(table).count_rows()
        days = spark.table(f"{CATALOG}.silver.all_orders").where("at >= '2024-01-03'").count()
        assert days == sum(r["at"] >= "2024-01-03" for r in every)
        # Others may write there too; the next epoch comes on top of it.
        spark.sql(f"INSERT INTO {CATALOG}.silver.all_orders SELECT * FROM {CATALOG}.silver.all_orders LIMIT 1")
    assert read.cut(made.root, at={"orders": 0, "per_day": 0}).spark("silver.all_orders", spark).count() == len(first)

    third = made.feed(2, 18, 2)
    with monkeypatch.context() as patch:
        patch.setattr("anabranch.engine.epoch.SMALL_BYTES", -1)  # staged by Spark's workers, not by the driver
        made.run()
    assert len(made.ids("silver.all_orders")) == len(every) + 1 + len(third)
    with open_project(read_project(made.root)) as opened:
        assert vacuum(opened, dry_run=True)
