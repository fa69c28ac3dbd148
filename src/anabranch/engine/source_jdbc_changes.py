"""Changes of a table as Debezium words them, turned into rows that `create_auto_cdc_flow` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What is added to the columns of a row.
OP, LSN, DELETED, TRUNCATED = "_op", "_lsn", "_deleted", "_truncated"

_SEQUENCE = "STRUCT<lsn: BIGINT, change: INT>"


def debezium(messages: DataFrame, schema: str, value: str) -> DataFrame:
    """See `anabranch.sources.debezium`."""
    body = f"before STRUCT<{schema}>, after STRUCT<{schema}>, op STRING, source STRUCT<lsn: BIGINT>"
    text = F.col(value).cast("string")
    said = F.from_json(text, f"{body}, payload STRUCT<{body}>", {"mode": "FAILFAST"})
    read = messages.where(F.col(value).isNotNull()).select(said.alias("said"))
    plain = F.when(F.col("said.payload").isNotNull(), F.col("said.payload")).otherwise(
        F.struct("said.before", "said.after", "said.op", "said.source")
    )
    changes = read.select(plain.alias("c")).where(F.col("c.op").isin("c", "u", "d", "r", "t"))
    row = F.when(F.col("c.op") == "d", F.col("c.before")).otherwise(F.col("c.after"))
    shaped = changes.select(row.alias("row"), "c.op", F.col("c.source.lsn").alias("lsn"))
    return shaped.select("row.*", *_added(F.col("op"), F.col("lsn")))


def as_snapshot(rows: DataFrame, lsn: int) -> DataFrame:
    """Rows of a table as the reads with which Debezium begins."""
    return rows.select("*", *_added(F.lit("r"), F.lit(lsn).cast("bigint")))


def _added(op: Column, lsn: Column) -> list[Column]:
    # A row that was read comes before the changes at its place in the log: they may or may not be in it already.
    change = F.when(op == "r", 0).otherwise(1)
    return [
        op.alias(OP),
        F.struct(lsn.alias("lsn"), change.cast("int").alias("change")).cast(_SEQUENCE).alias(LSN),
        (op == "d").alias(DELETED),
        (op == "t").alias(TRUNCATED),
    ]
