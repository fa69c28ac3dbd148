"""One row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

from anabranch.errors import UserCodeError
from anabranch.operators.columns import column, known_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = "__anabranch_number"


def dedupe(
    df: DataFrame,
    keys: Sequence[str],
    sequence_by: str | None = None,
    within: str | None = None,
    at: str | None = None,
) -> DataFrame:
    """One row of each key.

    Of rows at rest it is the newest by `sequence_by`. Of a stream it is the first that comes; `within` says for how
    long the key is remembered, by the time in the column `at`. To keep the newest of a stream, merge it into a table
    (`mode: upsert`): then this changes nothing, and the merge does it.
    """
    found = known_columns("dedupe", df, keys)
    if df.isStreaming:
        if within is None or at is None:
            raise UserCodeError(
                "DEDUPE_UNBOUNDED",
                "dedupe of a stream needs to know for how long keys are remembered",
                hint="say within: 1 hour and at: the column with the time; or use mode: upsert, which keeps the newest",
            )
        (time,) = known_columns("dedupe", df, [at])
        return df.withWatermark(time, within).dropDuplicatesWithinWatermark(found)
    if sequence_by is None:
        return df.dropDuplicates(found)
    (sequence,) = known_columns("dedupe", df, [sequence_by])
    newest = Window.partitionBy(*(column(k) for k in found)).orderBy(column(sequence).desc_nulls_last())
    return df.withColumn(_NUMBER, F.row_number().over(newest)).where(F.col(_NUMBER) == 1).drop(_NUMBER)
