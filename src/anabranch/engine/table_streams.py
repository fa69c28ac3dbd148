"""Tables of the pipeline as streams of the rows that come into them, for tables that are detached from their epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from anabranch.connectors.delta_changes import FOLDER
from anabranch.core.changes import DELETES, SEQUENCE, TRUNCATES
from anabranch.core.declarations import Dataset
from anabranch.engine.storage import Storage
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class TableStreams:
    """The tables below a storage. `missing` are those that were asked for before they were made."""

    spark: SparkSession
    storage: Storage
    missing: set[str] = field(default_factory=set)

    def stream(self, dataset: Dataset, feeding: Sequence[DataFrame]) -> DataFrame:
        """The rows that come into a table.

        Until the table is made, the frames of the flows that feed it stand in for it: enough to plan with. Of a table
        that is changed by key these are the changes, without those that delete.
        """
        from deltalake import DeltaTable

        if dataset.format != "delta":
            raise ProjectError(
                "DETACHED_READS_SINK",
                f'"{dataset.name}" is of format {dataset.format}: a detached table can read Delta tables only',
                where=dataset.where,
                hint="keep it as a Delta table, or do not detach what reads it",
            )
        by_key = any(SEQUENCE in frame.columns for frame in feeding)
        location = self.storage.absolute(self.storage.location(dataset)) + (f"/{FOLDER}" if by_key else "")
        if DeltaTable.is_deltatable(location):
            rows = self.spark.readStream.format("delta").load(location)
        else:
            self.missing.add(dataset.name)
            rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), feeding)
        if not by_key:
            return rows
        kept = [f"NOT coalesce({name}, false)" for name in (DELETES, TRUNCATES) if name in rows.columns]
        return rows.where(" AND ".join(kept) or "true").drop(SEQUENCE, DELETES, TRUNCATES)
