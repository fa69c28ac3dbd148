"""The usual way to feed three tables from one stream: foreachBatch, one write after the other.

    KILL="1:everything" python tests/crash/plain.py FOLDER

reads FOLDER/landing into FOLDER/lake/tables, and kills itself in that batch when that table has been written.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from anabranch.engine.session import open_session


def main(folder: Path) -> None:
    spark = open_session(app_name="plain", log_folder=folder / "logs")
    kill = os.environ.get("KILL")

    def write(batch: DataFrame, number: int) -> None:
        tables = {
            "everything": batch.select("id", "ms"),
            "errors": batch.select("id", F.explode("codes").alias("code")),
            "slow": batch.where("ms > 200").select("id", "ms"),
        }
        for name, rows in tables.items():
            rows.write.format("delta").mode("append").save(str(folder / "lake" / "tables" / name))
            if kill == f"{number}:{name}":
                os.kill(os.getpid(), signal.SIGKILL)

    events = spark.readStream.schema("id STRING, ms BIGINT, codes ARRAY<STRING>").option("maxFilesPerTrigger", 1)
    query = events.json(str(folder / "landing")).writeStream.foreachBatch(write)
    query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
