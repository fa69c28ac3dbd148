"""One stream of orders to tables, to a table elsewhere, and to a function."""

import json
from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

ALERTS = Path(__file__).parents[1] / "lake" / "alerts"


@dp.temporary_view
def landed() -> DataFrame:
    schema = "id INT, customer STRING, lines ARRAY<STRUCT<sku: STRING, cents: INT>>"
    return spark.readStream.schema(schema).json("landing")


@dp.table
def orders() -> DataFrame:
    total = F.aggregate("lines", F.lit(0), lambda so_far, line: so_far + line.cents)
    return spark.readStream.table("landed").select("id", "customer", total.alias("cents"))


@dp.table
def order_lines() -> DataFrame:
    lines = spark.readStream.table("landed").select("id", F.explode("lines").alias("line"))
    return lines.select("id", "line.*")


dp.create_sink("archive", "delta", {"path": "archive/orders"})


@dp.append_flow(target="archive")
def to_the_archive() -> DataFrame:
    return spark.readStream.table("landed").select("id", F.to_json(F.struct("*")).alias("document"))


@dp.foreach_batch_sink(name="alerts")
def alert(large: DataFrame, epoch: int) -> None:
    """Stands for a call to another system. Named by the epoch, so that doing it again changes nothing."""
    ALERTS.mkdir(parents=True, exist_ok=True)
    (ALERTS / f"{epoch}.json").write_text(json.dumps([row.asDict() for row in large.collect()]))


@dp.append_flow(target="alerts")
def large_orders() -> DataFrame:
    return spark.readStream.table("orders").where("cents > 10000").select("id", "customer", "cents")
