"""Four kinds of rules: count, drop, put aside, stop."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
@dp.expect("known_country", "country IN ('de', 'fr')")
@dp.expect_or_drop("has_id", "id IS NOT NULL")
@dp.expect_or_quarantine("positive_amount", "amount > 0")
@dp.expect_or_fail("known_currency", "currency = 'EUR'")
def orders() -> DataFrame:
    return spark.readStream.schema("id INT, country STRING, amount INT, currency STRING").json("landing")
