"""One Iceberg table: creating it, naming staged files in new metadata, and whose staged files are left over.

Staged files have no column ids of Iceberg's; the table's name mapping says which column is which.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from anabranch.connectors.contract import Staging
from anabranch.connectors.delta_log import staged_name, staged_prefix
from anabranch.connectors.delta_schema import Difference
from anabranch.connectors.folder import Folder
from anabranch.connectors.iceberg_catalog import Identifier, SqlTables, Undeclared
from anabranch.connectors.iceberg_moves import Change, Move, summary_of
from anabranch.connectors.iceberg_rest import RestTables
from anabranch.connectors.iceberg_schema import compare, iceberg_arrow_schema, iceberg_schema, physical
from anabranch.connectors.iceberg_versions import data_files, named_files, version_name
from anabranch.connectors.parquet_transforms import Part, check_parts
from anabranch.core.epoch import EpochKey, Receipt, StagedFile
from anabranch.errors import InternalError, ProjectError, SinkError

#: What a table of ours is created with; a project may say otherwise.
PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",  # else every epoch leaves one more file to be read by each scan
    "write.parquet.compression-codec": "zstd",
}
#: The first metadata of a table: whoever is killed while creating one may leave it, known to no catalogue.
_FIRST = re.compile(r"(_changes/)?metadata/00000-[0-9a-f-]{36}\.metadata\.json")
_NAMES = "schema.name-mapping.default"
_NO_BOUNDS = MetricsMode(MetricModeTypes.NONE)


@dataclass
class IcebergTable:
    """A table of a catalogue at a location."""

    name: str  # the output's, for messages and staged files
    location: str
    identifier: Identifier
    tables: SqlTables | RestTables
    parts: tuple[Part, ...] = ()
    properties: Mapping[str, str] | None = None
    comment: str | None = None
    pipeline: str | None = None

    def __post_init__(self) -> None:
        self.data = Folder(f"{self.location}/data")
        self._table: Table | None = None

    def examine(self, rows: pa.Schema) -> str:
        """What `create` and `check` would find or do, in words."""
        if not self.is_there():
            self._check_empty()
            return "will be created"
        difference = self.check(self.fresh().metadata, iceberg_schema(rows), self.parts)
        parts = [f"columns to be added: {', '.join(difference.added)}"] if difference.added else []
        parts += [f"columns that will be null: {', '.join(difference.missing)}"] if difference.missing else []
        return "; ".join(parts) or "matches"

    def accept(self, schema: pa.Schema) -> pa.Schema:
        """The schema of staged files."""
        rows = iceberg_arrow_schema(schema)
        check_parts(rows, self.parts)
        return rows

    def create(self, rows: pa.Schema) -> None:
        """Create the table if it is not there, and see whether it can take such rows."""
        schema = iceberg_schema(rows)
        if not self.is_there():
            self._check_empty()
            properties = {**PROPERTIES, **(self.properties or {})}
            properties |= {"comment": self.comment} if self.comment else {}
            properties |= {_NAMES: schema.name_mapping.model_dump_json()}
            self.tables.create(self.identifier, schema, _spec(schema, self.parts), self.location, properties)
            folder, _, file = self.fresh().metadata_location.rpartition("/")
            Folder(folder).sync_file(file)
            Folder(self.location).sync([f"metadata/{file}"])
            Folder(self.location).sync_itself()
        self.check(self.fresh().metadata, schema, self.parts)

    def is_there(self) -> bool:
        """Whether the catalogue has the table."""
        if isinstance(self.tables, SqlTables):
            return self.tables.is_there and self.tables.location_of(self.identifier) is not None
        return self.tables.load(self.identifier) is not None

    def fresh(self) -> Table:
        """The table as it stands, reusing what was read of it if it has not moved."""
        if isinstance(self.tables, SqlTables):
            place = self.tables.location_of(self.identifier) if self.tables.is_there else None
            if self._table is None or self._table.metadata_location != place:
                self._table = self.tables.load(self.identifier) if place else None
        else:
            self._table = self.tables.load(self.identifier)
        if self._table is None:
            raise SinkError(
                "TABLE_MISSING",
                f'table "{self.name}" is not in the Iceberg catalogue {self.tables.shown} any more',
                hint="put the table or the catalogue back, or reset the channel to build it anew",
            )
        return self._table

    def moved(self, table: Table | None) -> None:
        """Remember what the table has become; None to read it anew."""
        self._table = table

    def version(self) -> str:
        """The name of the newest metadata."""
        return version_name(self.location, self.fresh().metadata_location)

    def has(self, version: str) -> bool:
        """Whether the table is there and once stood at this version."""
        if not self.is_there():
            return False
        table = self.fresh()
        place = version if "/" in version else f"{self.location}/metadata/{version}"
        if place == table.metadata_location or any(e.metadata_file == place for e in table.metadata.metadata_log):
            return True
        return isinstance(self.tables, SqlTables) and self.tables.was_at(self.identifier, place)

    def staging(self, key: EpochKey, token: int, rows: pa.Schema) -> Staging:
        """Files go into the table's own folder, where no reader sees them before metadata names them."""
        self.pipeline = self.pipeline or key.pipeline
        prefix = staged_prefix(self._owner(key.pipeline), key.generation, key.epoch, token)
        return Staging(self.name, self.data.location, prefix, rows, transforms=self.parts)

    def staging_like(self, key: EpochKey, token: int, rows: pa.Schema, metadata: TableMetadata) -> Staging:
        """The same with the partitions that the table has by now."""
        return replace(self.staging(key, token, rows), transforms=parts_of(metadata))

    def receipt(self, rows: pa.Schema, files: Iterable[StagedFile], *, replace: bool) -> Receipt:
        """The files in a fixed order, with the rows' schema in Iceberg's JSON form."""
        ordered = tuple(sorted(files, key=lambda f: f.path))
        return Receipt(self.name, ordered, iceberg_schema(rows).model_dump_json(), replace)

    def move(
        self, key: EpochKey, receipt: Receipt, *, sink: str | None, gone: Callable[[DataFile], bool] | None = None
    ) -> Move:
        """New metadata that names the receipt's files, and no longer those that are `gone`; all in one snapshot."""
        table = self.fresh()
        rows = Schema.model_validate_json(receipt.schema)
        odd = [tuple(f.partition) for f in receipt.files if set(f.partition) != _names(table.metadata)]
        if odd:
            raise _partitioned(self.name, table.metadata, ", ".join(odd[0]))
        difference = self.check(table.metadata, rows, parts_of(table.metadata))
        change = Change(table)
        if table.metadata.name_mapping() is None:
            change.set_properties({_NAMES: table.metadata.schema().name_mapping.model_dump_json()})
        if difference.added:
            with change.update_schema() as update:
                update.union_by_name(rows)
        added = self._data_files(change.table_metadata, receipt.files)
        snapshot = change.update_snapshot(snapshot_properties=summary_of(key, sink or self.name))
        removed = (
            [f for f in data_files(table) if receipt.replace or (gone and gone(f))] if receipt.replace or gone else []
        )
        is_merging = table.metadata.properties.get("commit.manifest-merge.enabled") == "true"
        if removed or receipt.replace:
            made: Any = snapshot.overwrite()
        else:
            made = snapshot.merge_append() if is_merging else snapshot.fast_append()
        with made:
            for file in added:
                made.append_data_file(file)
            for file in removed:
                made.delete_data_file(file)
        return Move(table, change, sink)

    def check(self, metadata: TableMetadata, rows: Schema, parts: tuple[Part, ...]) -> Difference:
        """Refuse what a table cannot take; returns what is different and harmless."""
        if metadata.location.removeprefix("file://") != self.location.removeprefix("file://"):
            raise ProjectError(
                "TABLE_ELSEWHERE",
                f'table "{self.name}" is {".".join(self.identifier)} in the catalogue, which is kept at '
                f"{metadata.location}, not at {self.location}",
                hint="set the option path to where it is, or the option table to another name",
            )
        if metadata.format_version != 2:
            raise ProjectError(
                "TABLE_FEATURE_UNSUPPORTED",
                f'table "{self.name}" is of Iceberg\'s format version {metadata.format_version}, not 2',
                hint="write to a new table, or upgrade one of version 1",
            )
        if parts_of(metadata) != parts:
            raise _partitioned(self.name, metadata, ", ".join(map(str, parts)))
        difference = compare(metadata.schema(), rows)
        if difference.problems:
            raise ProjectError(
                "SCHEMA_INCOMPATIBLE",
                f'table "{self.name}" cannot take the rows: {"; ".join(difference.problems)}',
                hint="cast or rename in the flow so that types match; new columns are fine, missing ones become null",
                details={"problems": difference.problems, "added": difference.added, "missing": difference.missing},
            )
        return difference

    def leftovers(self, keep: frozenset[str], token: int) -> list[tuple[str, int]]:
        """Our own staged files of older attempts that no snapshot names."""
        if isinstance(self.tables, Undeclared) or not self.is_there():
            return []
        mine = {
            self.full(found.path): found
            for found in self.data.files()
            if (parts := self._own(found.path)) and int(parts["token"]) < token and found.path not in keep
        }
        if mine:
            table = self.fresh()
            mine = {path: found for path, found in mine.items() if path not in {f.file_path for f in data_files(table)}}
            # Files of rows that gave way to others are still named by the snapshots before.
            named = named_files(table, table.metadata.snapshots) if mine else set()
            mine = {path: found for path, found in mine.items() if path not in named}
        return sorted((found.path, found.size) for found in mine.values())

    def discard(self, paths: Iterable[str]) -> None:
        """Remove staged files of ours."""
        for path in paths:
            if self._own(path) is None:
                raise InternalError("NOT_A_STAGED_FILE", f"{path} was not staged by {self.name}, it is not removed")
            self.data.remove(path)

    def remove(self) -> None:
        """Take the table out of the catalogue, then remove its files."""
        if isinstance(self.tables, RestTables):
            self.tables.drop(self.identifier)
        elif self.tables.is_there:
            self.tables.forget(self.identifier)
        self._table = None
        Folder(self.location).remove_all()

    def full(self, path: str) -> str:
        """A staged file as metadata names it."""
        return f"{self.location}/data/{path}"

    def _data_files(self, metadata: TableMetadata, files: Iterable[StagedFile]) -> list[DataFile]:
        schema, spec = metadata.schema(), metadata.spec()
        plan = compute_statistics_plan(schema, metadata.properties)
        columns = parquet_path_to_id_mapping(schema)
        kinds = {f.name: f.transform.result_type(schema.find_type(f.source_id)) for f in spec.fields}
        found = []
        for file in files:
            with self.data.asked():
                footer = pq.read_metadata(self.data.full(file.path), filesystem=self.data.system)
            there = _with_statistics(footer, columns)
            # Of a column without bounds pyiceberg would warn each time.
            wanted = {i: c if i in there else replace(c, mode=_NO_BOUNDS) for i, c in plan.items()}
            statistics = data_file_statistics_from_parquet_metadata(footer, wanted, columns)
            found.append(
                DataFile.from_args(
                    content=DataFileContent.DATA,
                    file_path=self.full(file.path),
                    file_format=FileFormat.PARQUET,
                    partition=Record(*(physical(file.partition[name], kind) for name, kind in kinds.items())),
                    file_size_in_bytes=file.size,
                    sort_order_id=None,
                    spec_id=spec.spec_id,
                    equality_ids=None,
                    key_metadata=None,
                    **statistics.to_serialized_dict(),
                )
            )
        return found

    def _check_empty(self) -> None:
        found = (f.path for f in Folder(self.location).files())
        foreign = [path for path in found if staged_name(path) is None and not _FIRST.fullmatch(path)]
        if foreign:
            raise ProjectError(
                "TABLE_NOT_REGISTERED",
                f"{self.location} holds files ({min(foreign)}, {len(foreign)} in all), and the Iceberg catalogue "
                f"{self.tables.shown} has no table {'.'.join(self.identifier)}",
                hint="choose an empty folder, put the catalogue back, or register the table's newest metadata there",
            )

    def _owner(self, pipeline: str | None) -> str:
        if pipeline is None or self.pipeline not in (None, pipeline):
            raise InternalError("SINK_OWNER", f'"{self.name}" was opened for pipeline {self.pipeline}, not {pipeline}')
        return hashlib.blake2b(f"{pipeline}/{self.name}".encode(), digest_size=4).hexdigest()

    def _own(self, path: str) -> re.Match[str] | None:
        match = staged_name(path)
        return match if match and match["owner"] == self._owner(self.pipeline) else None


def parts_of(metadata: TableMetadata) -> tuple[Part, ...]:
    """How a table is partitioned."""
    found = []
    for field in metadata.spec().fields:
        how, _, size = str(field.transform).rstrip("]").partition("[")
        if how != "void":
            column = metadata.schema().find_column_name(field.source_id) or ""
            found.append(Part(column, how, int(size) if size else None))
    return tuple(found)


def _names(metadata: TableMetadata) -> set[str]:
    return {f.name for f in metadata.spec().fields}


def _spec(schema: Schema, parts: Iterable[Part]) -> PartitionSpec:
    fields = [
        PartitionField(schema.find_field(part.column).field_id, 1000 + number, part.transform, part.name)
        for number, part in enumerate(parts)
    ]
    return PartitionSpec(*fields)


def _partitioned(name: str, metadata: TableMetadata, rows: str) -> ProjectError:
    return ProjectError(
        "PARTITIONING_CHANGED",
        f'table "{name}" is partitioned by {", ".join(map(str, parts_of(metadata))) or "nothing"}, '
        f"the rows by {rows or 'nothing'}",
        hint="a table's partitioning is fixed: put it back, or write to a new table",
    )


def _with_statistics(footer: pq.FileMetaData, columns: Mapping[str, int]) -> set[int]:
    """The columns whose bounds are in every row group."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    every = [(number, columns[footer.schema.column(number).path]) for number in range(footer.num_columns)]
    return {i for number, i in every if all(group.column(number).is_stats_set for group in groups)}
