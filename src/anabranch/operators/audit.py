"""Where a row came from, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from anabranch.core.origin import EPOCH, INGESTED_AT, ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def audit(df: DataFrame) -> DataFrame:
    """Adds `_ingested_at`, the same for all rows of an epoch, and `_epoch`; what is known of its source comes last.

    The number of the epoch is put in when the rows are written.
    """
    own = [c for c in df.columns if c not in (*ORIGIN, INGESTED_AT, EPOCH)]
    origin = [c for c in ORIGIN if c in df.columns]
    added = [F.current_timestamp().alias(INGESTED_AT), F.lit(None).cast("bigint").alias(EPOCH)]
    return df.select(*own, *added, *origin)
