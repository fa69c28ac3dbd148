"""Sessions of scans: a shipment that is scanned again within six hours is in the same session."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import pipelines as dp

spark = SparkSession.active()

GAP = "6 hours"


@dp.materialized_view(name="gold.scan_sessions", comment="Scans of a shipment without a long pause between them")
def scan_sessions() -> DataFrame:
    events = spark.read.table("silver.shipment_scan_event")
    session = F.session_window("event_time", GAP)
    grouped = events.groupBy(F.col("shipment_shipment_id").alias("shipment_id"), session)
    found = grouped.agg(
        F.count("*").alias("events"),
        F.count_distinct("facility_facility_id").alias("facilities"),
        F.max_by("event_type", "event_time").alias("last_event"),
    )
    return found.select(
        "shipment_id",
        F.col("session_window.start").alias("started_at"),
        F.col("session_window.end").alias("ended_at"),
        "events",
        "facilities",
        "last_event",
    )
