"""Tables of a database as a source: all rows, or those that changed since the epoch before.

A Python data source of Spark's. What an epoch reads lies between two values of the cursor column, which stand in the
offset log, so that it reads the same when it is done again. The address goes with its references to secrets; they are
looked up where a connection is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from anabranch.core.names import quoted
from anabranch.core.secrets import has_secret
from anabranch.engine.source_jdbc_databases import Asked, Bound, Database, database_of
from anabranch.errors import ProjectError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

NAME = "anabranch_jdbc"

_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400}


def jdbc(
    url: str,
    table: str | None,
    query: str | None,
    mode: str,
    column: str | None,
    schema: str | None,
    start: str | None,
    settle: str,
    parts: int,
) -> DataFrame:
    """See `anabranch.sources.jdbc`."""
    if (table is None) == (query is None):
        raise _invalid("it reads a table or a query, one of the two", 'table="sales.orders"')
    if mode not in ("incremental", "full"):
        raise _invalid(f'mode is "{mode}"', 'choose "incremental" or "full"')
    if mode == "incremental" and not column:
        raise _invalid("an incremental load needs a column that grows", 'column="updated_at"')
    _check_password(url)
    rows = query if query is not None else f"SELECT * FROM {_table(table or '')}"
    asked = Asked(url, rows, column or "", duration(settle) if mode == "incremental" else timedelta(0), start)
    database = database_of(asked)
    if mode == "incremental":
        database.check()
    spark = SparkSession.active()
    if NAME not in _registered(spark):
        spark.dataSource.register(JdbcSource)
    reader = spark.readStream if mode == "incremental" else spark.read
    options = {
        "url": url,
        "dbtable": rows,
        "column": asked.column,
        "settle": str(asked.settle.total_seconds()),
        "parts": str(parts),
        **({"start": start} if start is not None else {}),
    }
    return reader.format(NAME).options(**options).schema(schema or database.types()).load()


def _registered(spark: SparkSession) -> Sequence[str]:
    manager = spark._jsparkSession.sessionState().dataSourceManager()  # noqa: SLF001
    return [NAME] if manager.dataSourceExists(NAME) else []


def _table(name: str) -> str:
    parts = re.findall(r'"(?:[^"]|"")+"|[^".]+', name)
    return ".".join(part if part.startswith('"') else quoted(part) for part in parts)


def _check_password(url: str) -> None:
    """An address is part of the query's plan: a password in it would be, too."""
    found = re.search(r"://[^/@\s:]*:([^@\s]*)@|password=([^&\s]+)", url)
    if found and not has_secret(found[1] or found[2] or ""):
        raise _invalid(
            "the address holds a password, which would be in the plan of the query",
            "keep it elsewhere and refer to it: postgresql://loader:${env:SHOP_PASSWORD}@host/shop",
        )


def duration(text: str) -> timedelta:
    """A length of time in words.

    >>> duration("30 seconds"), duration("1 hour")
    (datetime.timedelta(seconds=30), datetime.timedelta(seconds=3600))
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(second|minute|hour|day)s?\s*", text)
    if not found:
        raise _invalid(f'settle is "{text}"', 'write a number and a unit: settle="30 seconds"')
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]])


def _invalid(message: str, hint: str) -> ProjectError:
    return ProjectError("JDBC_INVALID", f"sources.jdbc: {message}", hint=hint)


class JdbcSource(DataSource):
    """What Spark knows of it."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        return Whole(self._asked(), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return Changes(self._asked(), schema, int(self.options["parts"]))

    def _asked(self) -> Asked:
        said = self.options
        settle = timedelta(seconds=float(said["settle"]))
        return Asked(said["url"], said["dbtable"], said["column"], settle, said.get("start"))


@dataclass
class Part(InputPartition):
    """The rows above one value and up to another."""

    lower: Bound
    upper: Bound


class Whole(DataSourceReader):
    """All rows, by one statement: so they are of one moment."""

    def __init__(self, asked: Asked, schema: StructType) -> None:
        self._asked, self._schema = asked, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [Part(None, None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return database_of(self._asked).read(None, None, _arrow(self._schema))


class Changes(DataSourceStreamReader):
    """The rows of each epoch."""

    def __init__(self, asked: Asked, schema: StructType, parts: int) -> None:
        self._asked, self._schema, self._parts = asked, schema, parts

    @property
    def _database(self) -> Database:
        return database_of(self._asked)

    def initialOffset(self) -> dict[str, Any]:
        return {"upper": self._asked.start}

    def latestOffset(self) -> dict[str, Any]:
        return {"upper": self._database.upper()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if end["upper"] is None or start["upper"] == end["upper"]:
            return []
        cuts = self._database.cuts(start["upper"], end["upper"], self._parts)
        return [Part(lower, upper) for lower, upper in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, Part), "made above"
        return self._database.read(partition.lower, partition.upper, _arrow(self._schema))


def _arrow(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema)
