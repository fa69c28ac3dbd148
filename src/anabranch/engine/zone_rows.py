"""The rows of an entity: read from its source, and taken from zone to zone by transformers."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from anabranch import sources
from anabranch.core.origin import FILE
from anabranch.core.zones import Entity, Reading, Step, Zone
from anabranch.engine.source_files import how_of_json
from anabranch.engine.source_files_letters import DEAD_LETTER
from anabranch.engine.user_code import told
from anabranch.errors import AnabranchError, UserCodeError
from anabranch.operators.columns import quoted
from anabranch.operators.explode import explode

if TYPE_CHECKING:
    from collections.abc import Callable


#: Names that no column of a user has.
_ROW, _CORRUPT = "__anabranch_row", "__anabranch_corrupt"


def source_rows(entity: Entity) -> DataFrame:
    """The records of an entity as they come."""
    reading = entity.reading
    try:
        frame = _topic(reading) if reading.format == "kafka" else _files(reading)
        return explode(frame, reading.explode) if reading.explode else frame
    except AnabranchError as error:
        raise _placed(error, f'entity "{entity.name}": ', reading) from error


def zone_rows(entity: Entity, zone: Zone, before: str) -> DataFrame:
    """The rows of a zone from those before it."""
    return reduce(lambda frame, step: _applied(frame, step, entity, zone), zone.steps, rows_of(before))


def rows_of(name: str) -> DataFrame:
    """The rows that come into a dataset."""
    return SparkSession.active().readStream.table(name)


def _files(reading: Reading) -> DataFrame:
    assert reading.path is not None, "files have a path"
    letters = reading.letters
    frame = sources.files(
        reading.path,
        reading.format,
        schema=reading.schema,
        envelope=reading.envelope,
        options=reading.options,
        dead_letters=letters,
        clean=reading.clean,
        archive=reading.archive,
        max_files=reading.max_files,
    )
    if not reading.origin:
        return frame
    return frame.select("*", F.col("_metadata.file_path").alias(FILE))


def _topic(reading: Reading) -> DataFrame:
    """The values of a topic as JSON; one that cannot be read becomes a dead letter that names its offset.

    A message without a value is no record.
    """
    assert reading.topic is not None, "checked when the file was read"
    assert reading.bootstrap is not None, "checked when the file was read"
    rows = sources.kafka(
        reading.topic,
        reading.bootstrap,
        starting=reading.starting or "earliest",
        max_per_trigger=reading.max_per_trigger,
        value="text",
        options=reading.options,
    ).where("value IS NOT NULL")
    columns = StructType.fromDDL(reading.schema or "")
    assert isinstance(columns, StructType), "DDL of columns is nothing else"
    corrupt = StructType([*columns.fields, StructField(_CORRUPT, StringType())])
    parsed = rows.withColumn(_ROW, F.from_json("value", corrupt, {"columnNameOfCorruptRecord": _CORRUPT}))
    bad = F.col(_ROW).isNull() | F.col(f"{_ROW}.{_CORRUPT}").isNotNull()
    place = F.concat(F.lit("kafka:"), F.col("topic"), F.lit("/"), F.col("partition"), F.lit("/"), F.col("offset"))
    letter = F.struct(
        F.col("value").alias("record"),
        F.lit(None).cast("int").alias("element"),
        place.alias("file"),
        F.lit(0).cast("bigint").alias("start"),
        F.lit(0).cast("bigint").alias("length"),
        F.lit(how_of_json(columns)).alias("how"),
    )
    names = [F.col(f"{_ROW}.{quoted(field.name)}").alias(field.name) for field in columns.fields]
    origin = [F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset")] if reading.origin else []
    return parsed.select(*names, *origin, F.when(bad, letter).alias(DEAD_LETTER))


def _applied(frame: DataFrame, step: Step, entity: Entity, zone: Zone) -> DataFrame:
    what = f'entity "{entity.name}", zone "{zone.name}", transformer "{step.name}"'
    try:
        found = _function(step)(frame, **step.arguments, **step.given)
    except AnabranchError as error:
        if error.where is not None:
            raise
        raise UserCodeError(error.code, f"{what}: {error.message}", where=step.where, hint=error.hint) from error
    except Exception as error:
        raise told(error, what, step.where) from error
    if isinstance(found, DataFrame):
        return found
    raise UserCodeError(
        "TRANSFORMER_NO_FRAME",
        f"{what} returned {type(found).__name__}, not a DataFrame",
        where=step.where,
        hint="return the DataFrame that it computes",
    )


def _function(step: Step) -> Callable[..., Any]:
    if not isinstance(step.function, str):
        return step.function
    module, _, name = step.function.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found


def _placed(error: AnabranchError, what: str, reading: Reading) -> AnabranchError:
    if error.where is not None:
        return error
    return UserCodeError(error.code, f"{what}{error.message}", where=reading.where, hint=error.hint)
