"""Read a pipeline's tables at one consistent cut: every table at the same epoch, never torn, never going back.

    from anabranch import read

    cut = read.cut("path/to/project")
    cut.epochs                                   # {"requests": 41}
    cut.arrow("request_logs")                    # pyarrow.Table
    cut.sql("SELECT count(*) FROM error_events") # DuckDB, every table by its name
    cut.spark("request_logs", spark)             # DataFrame, pinned to the version of that epoch
    read.cut("path/to/project", at=17)           # an older one, while it is retained

No JVM is needed, but for `spark`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.connectors.registry import is_readable, read_dataset
from anabranch.core.epoch import CutRecord, CutTable
from anabranch.core.names import MOST_PARTS, resolve
from anabranch.errors import ProjectError, StateError, did_you_mean
from anabranch.load.project import Project, project_at, read_project
from anabranch.load.sql_tables import with_tables
from anabranch.store.ledger import Ledger, PipelineRecord

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    import pyarrow.dataset
    from pyspark.sql import DataFrame, SparkSession

_SCHEMAS_OF_DUCKDB = ("memory", "temp", "system", "pg_catalog", "information_schema")


@dataclass(frozen=True, slots=True)
class Cut:
    """One published cut. Everything read through it belongs to the same epochs, however long it is kept."""

    record: CutRecord

    @property
    def epochs(self) -> Mapping[str, int]:
        """The published epoch of each channel."""
        return self.record.epochs

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of each table."""
        return {name: table.version for name, table in self.record.tables.items() if is_readable(table.format)}

    def dataset(self, table: str) -> pyarrow.dataset.Dataset:
        """A table as an Arrow dataset, to be scanned with filters and columns."""
        pinned = self.table(table)
        return read_dataset(pinned.format, pinned.location, pinned.version)

    def arrow(self, table: str) -> pa.Table:
        """A whole table in memory."""
        return self.dataset(table).to_table()

    def spark(self, table: str, session: SparkSession) -> DataFrame:
        """A table as a Spark frame."""
        pinned = self.table(table)
        return at_version(session, pinned.format, pinned.location, pinned.version)

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """A new DuckDB connection in which every table is there by its name.

        `silver.orders` is there as "silver.orders", and as the table `orders` of the schema `silver`. A catalogue is
        part of the first only.
        """
        import duckdb

        connection = duckdb.connect()
        for name in self.versions:
            connection.register(name, self.dataset(name))
        for schema, table, name in _in_schemas(self.versions):
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
            connection.execute(f'CREATE VIEW memory."{schema}"."{table}" AS SELECT * FROM "{name}"')
        return connection

    def sql(self, query: str) -> pa.Table:
        """The answer of DuckDB to a query over the tables."""
        with self.duckdb() as connection:
            return connection.sql(with_tables(query, self._with_catalog)).to_arrow_table()

    def _with_catalog(self, name: str) -> str | None:
        """DuckDB's name for `main.sales.orders`, whose catalogue is none of its own."""
        found = resolve(name, self.versions) if name.count(".") == MOST_PARTS - 1 else None
        return f'"{found}"' if found and found.count(".") == MOST_PARTS - 1 else None

    def table(self, name: str) -> CutTable:
        """Where a table is, and its version in this cut."""
        if name not in self.record.tables:
            known = self.versions
            raise ProjectError(
                "TABLE_UNKNOWN",
                f'no table "{name}" in this cut',
                hint=did_you_mean(name, known) or f"tables there: {', '.join(known) or 'none'}",
            )
        table = self.record.tables[name]
        if not is_readable(table.format):
            raise ProjectError(
                "SINK_NOT_READABLE",
                f'"{name}" cannot be read: it is a sink of format {table.format}, whose rows are kept elsewhere',
                hint=f"read what feeds it; tables there: {', '.join(self.versions) or 'none'}",
            )
        return table


def at_version(session: SparkSession, format_name: str, location: str, version: str) -> DataFrame:
    """A version of a table as a Spark frame."""
    if format_name == "iceberg":
        # The metadata file alone is enough for Iceberg's reader, so no catalogue has to be set up in the session.
        return session.read.format("iceberg").load(version if "/" in version else f"{location}/metadata/{version}")
    return session.read.format(format_name).option("versionAsOf", version).load(location)


def cut(project: str | Path = ".", *, at: int | Mapping[str, int] | None = None) -> Cut:
    """The last published cut of a project, or the one at an older epoch.

    `project` is a project's folder or file, or a storage folder whose ledger is in it. `at` is an epoch number, or one
    for each channel when the pipeline has several.
    """
    spec = _found(Path(project))
    with open_ledger(spec) as (ledger, pipeline):
        channels = ledger.channels(pipeline.pipeline_id)
        wanted = {c.channel: at for c in channels if c.outputs} if isinstance(at, int) else at
        record = ledger.cut(pipeline.pipeline_id, at=wanted)
    root = Path(spec.storage)
    tables = {name: _absolute(table, root) for name, table in record.tables.items()}
    return Cut(CutRecord(record.pipeline, record.epochs, tables))


def _found(path: Path) -> Project:
    identity = path / "_anabranch" / "identity.json"
    if not identity.exists():
        return read_project(path)
    return project_at(path, json.loads(identity.read_text())["name"])


@contextmanager
def open_ledger(project: Project) -> Iterator[tuple[Ledger, PipelineRecord]]:
    """A project's ledger, for reading only, and what it knows of the pipeline."""
    identity = Path(project.storage) / "_anabranch" / "identity.json"
    if not identity.exists():
        raise StateError(
            "NOTHING_RUN_YET",
            f'"{project.name}" has not been run yet: {project.storage} holds nothing',
            hint="anabranch run --once",
        )
    with Ledger.open(project.ledger, create=False, readonly=True) as ledger:
        pipeline = ledger.pipeline(project.name)
        known = json.loads(identity.read_text())
        if pipeline is None or (known["pipeline"], known["ledger"]) != (pipeline.pipeline_id, ledger.ledger_id):
            raise StateError(
                "LEDGER_FOREIGN",
                f'the ledger does not know the pipeline "{project.name}" of {project.storage}',
                hint="name the right ledger in the project file, or set the pipeline's name back",
            )
        yield ledger, pipeline


def _in_schemas(tables: Iterable[str]) -> list[tuple[str, str, str]]:
    """The schema, the table and the name of each that has both, but for those that are two tables, or DuckDB's own."""
    found: dict[tuple[str, str], list[tuple[str, str, str]]] = {}
    for name in tables:
        if "." in name:
            schema, table = name.split(".")[-2:]
            found.setdefault((schema.lower(), table.lower()), []).append((schema, table, name))
    return [each[0] for (schema, _), each in found.items() if len(each) == 1 and schema not in _SCHEMAS_OF_DUCKDB]


def _absolute(table: CutTable, root: Path) -> CutTable:
    location = table.location if "://" in table.location else str(root / table.location)
    return CutTable(table.name, table.format, location, table.version, table.channel, table.epoch)
