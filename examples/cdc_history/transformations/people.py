"""A feed of changes into the newest rows and into the history."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.temporary_view
def changes() -> DataFrame:
    schema = "id INT, name STRING, city STRING, version INT, op STRING"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json("landing")


dp.create_streaming_table("people")
dp.create_auto_cdc_flow(
    target="people",
    source="changes",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="op = 'delete'",
    except_column_list=["op", "version"],
)

dp.create_streaming_table("people_history")
dp.create_auto_cdc_flow(
    target="people_history",
    source="changes",
    keys=["id"],
    sequence_by="version",
    apply_as_deletes="op = 'delete'",
    except_column_list=["op", "version"],
    stored_as_scd_type=2,
)
