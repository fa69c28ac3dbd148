"""Request events arrive as JSON files and feed three tables; nothing here is known to Anabranch alone."""

from pathlib import Path

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()

# Paths start from this file, so the project runs from any folder.
LANDING = Path(__file__).parent.parent / "landing"
SLOW_MS = 200
SCHEMA = """
    eventId STRING, timestamp TIMESTAMP, user STRUCT<userId: STRING, country: STRING>,
    request STRUCT<endpoint: STRING, latency_ms: DOUBLE, status_code: INT>,
    errors ARRAY<STRUCT<errorCode: STRING, severity: STRING>>
"""


@dp.temporary_view
def requests() -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(LANDING))


@dp.table(comment="Every request, flattened")
def request_logs() -> DataFrame:
    return spark.readStream.table("requests").select("eventId", "timestamp", "user.*", "request.*")


@dp.table(comment="One row for each error of a request")
def error_events() -> DataFrame:
    exploded = spark.readStream.table("requests").withColumn("error", F.explode("errors"))
    return exploded.select("eventId", "timestamp", "request.endpoint", "error.*")


@dp.table(comment=f"Requests that took longer than {SLOW_MS} ms")
def slow_requests() -> DataFrame:
    slow = spark.readStream.table("requests").where(F.col("request.latency_ms") > SLOW_MS)
    return slow.select("eventId", "timestamp", "user.country", "request.endpoint", "request.latency_ms")
