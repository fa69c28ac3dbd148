"""Transformers of this project: the files in entities/ name them."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.zones import register_zone_transformer


@register_zone_transformer
def with_delay(df: DataFrame) -> DataFrame:
    """How much later than promised a shipment arrived, in minutes; null while it is under way."""
    late = F.unix_timestamp("actual_delivery_at") - F.unix_timestamp("promised_delivery_at")
    minutes = F.when(late > 0, F.floor(late / 60).cast("int")).when(late <= 0, 0)
    return df.withColumn("delay_minutes", minutes)
