"""A table for each region, made in a loop, and a view over all of them."""

from functools import reduce

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

REGIONS = ("americas", "asia", "europe")


@dp.temporary_view
def orders() -> DataFrame:
    return spark.readStream.schema("id INT, region STRING, amount INT").json("landing")


def regional_table(region: str) -> None:
    """Declares the table of one region; a function, so that each keeps the region of its own turn of the loop."""

    @dp.table(name=f"orders_{region}", comment=f"Orders from {region}")
    def of_region() -> DataFrame:
        return spark.readStream.table("orders").where(F.col("region") == region).select("id", "amount")


for name in REGIONS:
    regional_table(name)


@dp.materialized_view
def revenue() -> DataFrame:
    tables = [spark.read.table(f"orders_{region}").withColumn("region", F.lit(region)) for region in REGIONS]
    every = reduce(DataFrame.unionByName, tables)
    return every.groupBy("region").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))
