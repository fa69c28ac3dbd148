"""The types of an output's rows as Arrow has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from anabranch.errors import ProjectError

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_types(output: str, rows: StructType) -> pa.Schema:
    """The schema in which rows are handed to the writer; refuses types that Arrow has no form for."""
    for field in rows.fields:
        try:
            to_arrow_schema(StructType([field]))
        except PySparkTypeError as error:
            raise ProjectError(
                "SCHEMA_UNSUPPORTED",
                f'column "{field.name}" of "{output}" is of type {field.dataType.simpleString()}, '
                "which Delta has no place for",
                hint=f"cast it in the flow, for example CAST({field.name} AS STRING)",
            ) from error
    return to_arrow_schema(rows)
