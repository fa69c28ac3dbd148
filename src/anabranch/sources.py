"""Sources, for use inside flows: each returns an ordinary streaming DataFrame.

from anabranch import sources
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from anabranch.core.declarations import Action
from anabranch.load.rules import expecting

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Query = TypeVar("Query", bound=Callable[..., Any])

#: What the payload of a dead letter holds, for `from_json(payload, sources.DEAD_LETTER)`.
DEAD_LETTER = "record STRING, reason STRING, file STRING, line BIGINT, offset BIGINT, element BIGINT"


def files(
    path: str,
    format: str = "json",  # noqa: A002  as Spark calls it
    *,
    schema: StructType | str | None = None,
    envelope: str | None = None,
    options: Mapping[str, Any] | None = None,
    dead_letters: bool = False,
    clean: str | None = None,
    archive: str | None = None,
    max_files: int | None = None,
    by_name: bool = False,
) -> DataFrame:
    """The files of a folder, and those that arrive in it: json, csv, parquet, avro, orc, text or binary.

    Without a `schema` one is inferred from the files that are there, once, and pinned. `envelope` names the array of
    documents like `{"_meta": ..., "data": [...]}`: its records become rows, each with `_meta`. A malformed record stops
    the epoch, unless `dead_letters` is true and the dataset has `@sources.dead_letters`. `clean` moves files to the
    `archive`, or deletes them, once their epoch is published. `max_files` bounds an epoch; with `by_name` a file that
    was moved to another folder is not read again. `options` are those of Spark's reader.
    """
    from anabranch.engine.source_files import files as read

    return read(
        path,
        format,
        schema,
        envelope,
        options or {},
        dead_letters=dead_letters,
        clean=clean,
        archive=archive,
        max_files=max_files,
        by_name=by_name,
    )


def dead_letters(function: Query) -> Query:
    """Put records that could not be read into the quarantine table of the dataset; its other rows go on.

    Their payload has the record as it stands in the file, with reason, file and place; see `DEAD_LETTER`. The function
    reads `files(..., dead_letters=True)`, whose column `_dead_letter` ends here.
    """
    return expecting("sources.dead_letters", "readable", "_dead_letter IS NULL", Action.QUARANTINE)(function)


def kafka(
    topic: str,
    bootstrap: str,
    *,
    starting: str | datetime | Mapping[str, Mapping[int, int]] = "earliest",
    max_per_trigger: int | None = None,
    value: str | None = None,
    schema: StructType | str | None = None,
    message: str | None = None,
    registry: str | None = None,
    registry_auth: str = "",
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """The rows of a Kafka topic: key, value, topic, partition, offset, timestamp, timestampType, headers.

    `starting` is where a pipeline begins that has no checkpoint yet: "earliest", "latest", a moment, or offsets
    `{"topic": {0: 17}}`. `max_per_trigger` bounds the rows of an epoch. With `value` ("text", "json", "avro" or
    "protobuf") the column `value` is parsed: JSON by a `schema` of Spark's, Avro by a file (.avsc) or a `registry`,
    Protobuf by a descriptor set and the name of a `message`. `options` are those of Spark's reader, `kafka.*` among
    them; secrets in them are looked up. Rows that are gone before they were read stop the channel.
    """
    from anabranch.engine.source_kafka import read_kafka

    return read_kafka(
        topic,
        bootstrap,
        starting=starting,
        max_per_trigger=max_per_trigger,
        value=value,
        schema=schema,
        message=message,
        registry=registry,
        registry_auth=registry_auth,
        options=options or {},
    )


def jdbc(
    url: str,
    *,
    table: str | None = None,
    query: str | None = None,
    mode: str = "incremental",
    column: str | None = None,
    schema: str | None = None,
    start: str | None = None,
    settle: str = "30 seconds",
    parts: int = 4,
) -> DataFrame:
    """Rows of a table or a query in Postgres (by psycopg) or SQLite.

    "incremental" is a stream: each epoch has the rows whose `column` lies above the value that the epoch before ended
    with, up to the greatest value that is `settle` old by the database's clock: time for transactions that are under
    way to end. `start` is the value to begin after; `parts` readers share an epoch of Postgres. "full" is a batch frame
    of all rows at one moment, for views and snapshots. Without a `schema` the database says the types. A password is
    given by reference: `postgresql://loader:${env:SHOP_PASSWORD}@host/shop`.
    """
    from anabranch.engine.source_jdbc import jdbc as read

    return read(url, table, query, mode, column, schema, start, settle, parts)


def debezium(messages: DataFrame, schema: str, *, value: str = "value") -> DataFrame:
    """Debezium's messages, JSON in the column `value`, as changes for `create_auto_cdc_flow`.

    `schema` has the columns of the table, as DDL. Beside them the rows have `_op`; `_lsn` for `sequence_by`, in which a
    row that was read in the first snapshot comes before the changes at its place in the log; `_deleted` for
    `apply_as_deletes`; and `_truncated` for `apply_as_truncates`. Tombstones are left out.
    """
    from anabranch.engine.source_jdbc_changes import debezium as changes

    return changes(messages, schema, value)


def as_snapshot(rows: DataFrame, *, lsn: int = 0) -> DataFrame:
    """Rows of a table with the columns that `debezium` adds, as if each had been read when the log stood at `lsn`.

    With 0 they come before every change: right whenever the messages begin before the rows were read.
    """
    from anabranch.engine.source_jdbc_changes import as_snapshot as read

    return read(rows, lsn)
