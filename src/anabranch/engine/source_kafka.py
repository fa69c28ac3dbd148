"""Kafka topics as a source: Spark's own reader, set up so that nothing is skipped in silence, and values parsed.

JSON is parsed by Spark's `from_json`, Avro by its `from_avro`. The jar of its `from_protobuf` is not to be had for this
version of Spark, so Protobuf is decoded in Spark's Python workers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.connectors.wire_registry import FRAME, Registered, newest
from anabranch.core.secrets import reveal
from anabranch.errors import ProjectError, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

#: How values can be parsed.
VALUES = ("text", "json", "avro", "protobuf")

Starting = str | datetime | Mapping[str, Mapping[int, int]]


def read_kafka(
    topic: str,
    bootstrap: str,
    *,
    starting: Starting,
    max_per_trigger: int | None,
    value: str | None,
    schema: StructType | str | None,
    message: str | None,
    registry: str | None,
    registry_auth: str,
    options: Mapping[str, str],
) -> DataFrame:
    """The rows of one or more topics, parted by commas."""
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is None:
        raise ProjectError(
            "SOURCE_WITHOUT_SESSION",
            "sources.kafka was called where no Spark session is",
            hint="call it inside a flow's function: it is called when the run has a session",
        )
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", reveal(bootstrap))
    reader = reader.option("subscribe", topic).option("includeHeaders", "true").option("failOnDataLoss", "true")
    for name, text in starting_options(topic, starting).items():
        reader = reader.option(name, text)
    if max_per_trigger is not None:
        reader = reader.option("maxOffsetsPerTrigger", str(max_per_trigger))
    for name, text in options.items():
        reader = reader.option(name, reveal(str(text)))
    frame = reader.load()
    if value is None:
        return frame
    found = newest(reveal(registry), f"{topic}-value", reveal(registry_auth)) if registry else None
    return frame.withColumn("value", parsed(frame["value"], value, schema, message, found))


def starting_options(topic: str, starting: Starting) -> dict[str, str]:
    """Spark's option for where to begin.

    >>> starting_options("t", "earliest")
    {'startingOffsets': 'earliest'}
    >>> starting_options("t", {"t": {0: 5, 1: -2}})
    {'startingOffsets': '{"t": {"0": 5, "1": -2}}'}
    >>> from datetime import timezone
    >>> starting_options("t", datetime(2026, 1, 1, tzinfo=timezone.utc))
    {'startingTimestamp': '1767225600000', 'startingOffsetsByTimestampStrategy': 'latest'}
    """
    if isinstance(starting, datetime):
        if starting.tzinfo is None:
            raise _wrong(f"starting={starting.isoformat()} has no time zone", "datetime(..., tzinfo=timezone.utc)")
        # A partition whose newest row is older has nothing to begin with: its end, and no error.
        moment = str(int(starting.timestamp() * 1000))
        return {"startingTimestamp": moment, "startingOffsetsByTimestampStrategy": "latest"}
    if isinstance(starting, Mapping):
        offsets = {t: {str(p): offset for p, offset in parts.items()} for t, parts in starting.items()}
        if unknown := sorted(offsets.keys() - {t.strip() for t in topic.split(",")}):
            raise _wrong(f"starting has offsets of {', '.join(unknown)}, which is not read", f"topics: {topic}")
        return {"startingOffsets": json.dumps(offsets)}
    if starting not in ("earliest", "latest"):
        raise _wrong(f'starting="{starting}"', '"earliest", "latest", a datetime, or offsets: {"topic": {0: 17, 1: 0}}')
    return {"startingOffsets": starting}


def parsed(
    column: Column, value: str, schema: StructType | str | None, message: str | None, found: Registered | None
) -> Column:
    """A column of bytes, parsed."""
    from pyspark.sql import functions as F

    if value not in VALUES:
        raise _wrong(f'value="{value}"', did_you_mean(value, VALUES) or f"one of {', '.join(VALUES)}")
    if value == "text":
        return column.cast("string")
    body = _unframed(column, found) if found else column
    if value == "json":
        if schema is None:
            raise _wrong('value="json" needs a schema', 'schema="id BIGINT, name STRING"')
        return F.from_json(body.cast("string"), schema)
    if value == "avro":
        from pyspark.sql.avro.functions import from_avro

        text = found.text if found and schema is None else _file(schema, "avro", ".avsc")
        return from_avro(body, text, {"mode": "FAILFAST"})
    if message is None:
        raise _wrong('value="protobuf" needs a message', 'message="package.Name"')
    from anabranch.engine.source_protobuf import from_protobuf

    return from_protobuf(body, str(schema), message, framed=found is not None)


def _unframed(column: Column, found: Registered) -> Column:
    """The value behind its frame; one with another schema's id stops the run, for it would be misread."""
    from pyspark.sql import functions as F

    frame = F.substring(column, 1, FRAME.size)
    wrong = F.raise_error(
        F.concat(
            F.lit("[ANABRANCH_SCHEMA_ID] a value begins with "),
            F.hex(frame),
            F.lit(f", and schema {found.id} of the registry is read"),
        )
    )
    body = F.expr(f"substring(value, {FRAME.size + 1})")
    return F.when(column.isNull(), column).when(frame == F.lit(found.frame), body).otherwise(wrong.cast("binary"))


def _file(schema: StructType | str | None, value: str, ending: str) -> str:
    if schema is None or not isinstance(schema, str):
        raise _wrong(f'value="{value}" needs a schema', f'schema="orders{ending}", or registry="http://..."')
    if schema.lstrip().startswith("{"):
        return schema
    try:
        return Path(schema).read_text("utf-8")
    except OSError as error:
        raise ProjectError(
            "WIRE_SCHEMA_MISSING",
            f"sources.kafka: the schema {schema} cannot be read: {error.strerror}",
            hint="name a file by an absolute path, or by one from the folder the run is started in",
        ) from error


def _wrong(what: str, hint: str) -> ProjectError:
    return ProjectError("OPTION_INVALID", f"sources.kafka: {what}", hint=hint)
