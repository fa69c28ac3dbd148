"""The functions of `foreach_batch` sinks: called with a frame of the staged rows of one epoch."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from anabranch.errors import UserCodeError

if TYPE_CHECKING:
    from anabranch.connectors.foreach_batch import Handler
    from anabranch.core.declarations import Dataset


def handler_of(dataset: Dataset) -> Handler | None:
    """Calls the function that a sink was declared with; None for an output that has none.

    The frame belongs to the session that is active now, since the function is called from other threads. An error of a
    connection may pass, so the channel is started again after a while, as for any other output.
    """
    if dataset.handler is None:
        return None
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from anabranch.engine.user_code import user_code

    function, spark = dataset.handler, SparkSession.active()

    def call(paths: Sequence[str], schema: str, epoch: int) -> None:
        # Nothing but the files themselves: a folder on the way to them may look like a partition, or like a pattern.
        reader = spark.read.schema(StructType.fromJson(json.loads(schema))).option("recursiveFileLookup", "true")
        frame = reader.parquet(*map(_literal, paths))
        try:
            with user_code(f'foreach_batch sink "{dataset.name}" in epoch {epoch}', dataset.where):
                function(frame, epoch)
        except UserCodeError as error:
            error.retryable = isinstance(error.__cause__, ConnectionError | TimeoutError)
            raise

    return call


def _literal(path: str) -> str:
    r"""A path that Hadoop does not take for a pattern.

    >>> print(_literal("/lake/a{1}/x.parquet"))
    /lake/a\{1\}/x.parquet
    """
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)
