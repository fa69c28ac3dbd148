"""The project that is run and killed: one folder of JSON files, read once, feeding three tables."""

from __future__ import annotations

from pathlib import Path

FLOWS = '''"""Every event; one row for each error code of an event; the slow ones."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from anabranch import pipelines as dp

spark = SparkSession.active()
LANDING = Path(__file__).parent.parent / "landing"


@dp.temporary_view
def events() -> DataFrame:
    schema = "id STRING, ms BIGINT, codes ARRAY<STRING>"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(LANDING))


@dp.table
def everything() -> DataFrame:
    return spark.readStream.table("events").select("id", "ms")


@dp.table(partition_cols=["code"])
def errors() -> DataFrame:
    return spark.readStream.table("events").select("id", F.explode("codes").alias("code"))


@dp.table
def slow() -> DataFrame:
    return spark.readStream.table("events").where("ms > 200").select("id", "ms")
'''

CHANNEL = "events"


#: A step that fails is seen to fail; that it is tried again has a test of its own.
NO_RETRIES = "  spark.sql.pipelines.maxFlowRetryAttempts: 0\n"


def make_project(folder: Path, *, lease: float = 600.0, flows: str = FLOWS, configuration: str = NO_RETRIES) -> None:
    """Write the project; `configuration` is YAML for its settings."""
    (folder / "transformations").mkdir(parents=True)
    (folder / "landing").mkdir()
    (folder / "transformations" / "flows.py").write_text(flows)
    (folder / "anabranch.yml").write_text(
        f"name: crash\nstorage: lake\ntrigger: 0 seconds\nlease: {lease} seconds\n"
        f"configuration:\n{configuration}"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
