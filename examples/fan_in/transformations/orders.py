"""Three sources, each in a form of its own, into one table."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

dp.create_streaming_table("orders", schema="id STRING, amount INT, shop STRING")


@dp.append_flow(target="orders")
def from_the_web() -> DataFrame:
    orders = spark.readStream.schema("id STRING, amount INT, page STRING").json("landing/web")
    return orders.select("id", "amount", F.lit("web").alias("shop"))


@dp.append_flow(target="orders")
def from_tills() -> DataFrame:
    orders = spark.readStream.schema("id STRING, amount INT").option("header", True).csv("landing/tills")
    return orders.withColumn("shop", F.lit("tills"))


@dp.append_flow(target="orders")
def from_partners() -> DataFrame:
    orders = spark.readStream.schema("`order` STRING, cents BIGINT").parquet("landing/partners")
    return orders.selectExpr("`order` AS id", "CAST(cents / 100 AS INT) AS amount", "'partners' AS shop")
