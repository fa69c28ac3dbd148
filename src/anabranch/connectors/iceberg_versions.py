"""Old versions of Iceberg tables: reading them without a catalogue, and clearing away what no pinned version needs.

A version is the name of a metadata file below the table's folder; a file elsewhere is named by its whole path.
"""

from __future__ import annotations

import functools
import itertools
import operator
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import PrimitiveType

from anabranch.connectors.delta_versions import parquet_form, version_gone
from anabranch.connectors.folder import Folder
from anabranch.connectors.iceberg_catalog import Tables
from anabranch.connectors.iceberg_moves import Written
from anabranch.connectors.iceberg_schema import arrow_schema, arrow_type
from anabranch.errors import SinkError

if TYPE_CHECKING:
    from anabranch.core.epoch import StagedFile

_HOUR = 3600.0
#: Types whose bounds are used; not floats, because of NaN.
_ORDERED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal)


def version_name(location: str, metadata_location: str) -> str:
    """What a version of a table is called.

    >>> version_name("/lake/orders", "/lake/orders/metadata/00001-ab.metadata.json")
    '00001-ab.metadata.json'
    """
    return metadata_location.removeprefix(f"{location}/metadata/")


def metadata_path(location: str, version: str) -> str:
    """Where the metadata of a version is."""
    return version if "/" in version else f"{location}/metadata/{version}"


def read_version(location: str, version: str) -> ds.Dataset:
    """One version of a table, to be scanned with filters and columns."""
    io = Written({})
    try:
        return dataset(FromInputFile.table_metadata(io.new_input(metadata_path(location, version))), io, version)
    except (FileNotFoundError, ValueError) as error:
        raise version_gone(location, version, str(error)) from error


def dataset(metadata: TableMetadata, io: FileIO, version: str) -> ds.Dataset:
    """The rows of the snapshot that metadata calls the current one."""
    _check_names(metadata)
    snapshot = metadata.current_snapshot()
    files = list(_files(snapshot, io, metadata.location)) if snapshot else []
    folder = Folder(metadata.location)
    start = f"{metadata.location.rstrip('/')}/"
    elsewhere = [f.file_path for f in files if not f.file_path.startswith(start)]
    if elsewhere:
        raise _unsupported(metadata.location, f"its files are not all in its folder: {elsewhere[0]}")
    paths = [f.file_path.removeprefix(start) for f in files]
    if missing := folder.missing(paths):
        raise version_gone(metadata.location, version, f"{len(missing)} of its files are gone, {missing[0]} among them")
    form = parquet_form()
    fragments = [
        form.make_fragment(folder.full(path), folder.system, _holds(file, metadata))
        for path, file in zip(paths, files, strict=True)
    ]
    return ds.FileSystemDataset(fragments, arrow_schema(metadata.schema()), form, folder.system)


def staged_dataset(folder: Folder, files: Iterable[StagedFile], schema: pa.Schema) -> ds.Dataset:
    """Staged files as a dataset."""
    form = parquet_form()
    fragments = [form.make_fragment(folder.full(f.path), folder.system) for f in files]
    return ds.FileSystemDataset(fragments, schema, form, folder.system)


def data_files(table: Table) -> list[DataFile]:
    """The files that make up a table now."""
    snapshot = table.current_snapshot()
    return list(_files(snapshot, table.io, table.metadata.location)) if snapshot else []


def named_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """Every data file that these snapshots name."""
    manifests = {m.manifest_path: m for snapshot in snapshots for m in snapshot.manifests(table.io)}
    entries = (entry for m in manifests.values() for entry in m.fetch_manifest_entry(table.io, discard_deleted=True))
    return {entry.data_file.file_path for entry in entries}


def vacuum(tables: Tables, table: Table, versions: set[str], *, older_than_hours: float, dry_run: bool) -> list[str]:
    """Let a table forget snapshots that are neither the newest nor those of `versions`, and remove their files.

    A snapshot goes when another took its place longer ago than the given age, so that whoever began to read then can
    finish. Snapshots that a branch or a tag names stay. What was staged and not named yet is never touched.
    """
    location = table.metadata.location
    horizon = time.time() - older_than_hours * _HOUR
    pinned = {_snapshot_at(location, version) for version in versions}
    old = [s for s in _replaced_before(table.metadata, horizon) if s.snapshot_id not in pinned]
    kept = [s for s in table.metadata.snapshots if s not in old]
    needed = named_files(table, kept) | _metadata_files(table, kept)
    unneeded = (named_files(table, old) | _metadata_files(table, old)) - needed
    unneeded |= _unnamed_metadata(table, horizon, needed, {metadata_path(location, v) for v in versions})
    folder, start = Folder(location), len(location) + 1
    removed = sorted(path[start:] for path in unneeded if path.startswith(f"{location}/"))
    if not dry_run:
        if old:
            tables.expire(table, [s.snapshot_id for s in old])
        for path in removed:
            folder.remove(path)
    return removed


def _replaced_before(metadata: TableMetadata, horizon: float) -> list[Snapshot]:
    """Snapshots that stopped being the newest before a moment."""
    protected = {ref.snapshot_id for ref in metadata.refs.values()} | {metadata.current_snapshot_id}
    ordered = sorted(metadata.snapshots, key=lambda s: s.timestamp_ms)
    return [
        snapshot
        for snapshot, after in itertools.pairwise(ordered)
        if after.timestamp_ms < horizon * 1000 and snapshot.snapshot_id not in protected
    ]


def _snapshot_at(location: str, version: str) -> int | None:
    io = Written({})
    try:
        return FromInputFile.table_metadata(io.new_input(metadata_path(location, version))).current_snapshot_id
    except (FileNotFoundError, ValueError) as error:
        raise version_gone(location, version, str(error)) from error


def _metadata_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    """The manifests of snapshots, and the lists of them."""
    chosen = list(snapshots)
    return {s.manifest_list for s in chosen} | {m.manifest_path for s in chosen for m in s.manifests(table.io)}


def _unnamed_metadata(table: Table, horizon: float, needed: set[str], pinned: set[str]) -> set[str]:
    """Old files of the metadata folder that nothing names: of moves that another writer forestalled, or long past."""
    location = table.metadata.location
    log = {entry.metadata_file for entry in table.metadata.metadata_log}
    named = needed | pinned | log | {table.metadata_location}
    named |= {s.manifest_list for s in table.metadata.snapshots}
    found = {f"{location}/{f.path}": f for f in Folder(location).files("metadata", deep=False)}
    endings = (".metadata.json", ".avro")
    known = named | _metadata_files(table, table.metadata.snapshots)
    return {path for path, f in found.items() if f.modified < horizon and path.endswith(endings) and path not in known}


def _files(snapshot: Snapshot, io: FileIO, location: str) -> Iterator[DataFile]:
    for manifest in snapshot.manifests(io):
        if manifest.content == ManifestContent.DELETES:
            raise _unsupported(location, "rows were deleted with delete files")
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            file = entry.data_file
            if file.content != DataFileContent.DATA or file.file_format != FileFormat.PARQUET:
                raise _unsupported(location, f"{file.file_path} is not a Parquet file of rows")
            yield file


def _check_names(metadata: TableMetadata) -> None:
    """Files are read by the names of their columns, so a name must always have meant the same."""
    ids: dict[str, int] = {}
    for schema in metadata.schemas:
        for name in schema.column_names:
            if ids.setdefault(name, schema.find_field(name).field_id) != schema.find_field(name).field_id:
                raise _unsupported(metadata.location, f'the column "{name}" was dropped and added again')
    names = {i: name for name, i in ids.items()}
    if len(names) != len(ids):
        raise _unsupported(metadata.location, "columns were renamed")


def _holds(file: DataFile, metadata: TableMetadata) -> ds.Expression:
    """What is true of every row of a file, so that scans can leave the file out."""
    true = [ds.scalar(True)]
    lows, highs, nulls = file.lower_bounds or {}, file.upper_bounds or {}, file.null_value_counts or {}
    for field in metadata.schema().fields:
        kind = field.field_type
        if field.field_id not in lows or field.field_id not in highs or not isinstance(kind, PrimitiveType):
            continue
        arrow = arrow_type(kind)
        if not any(ordered(arrow) for ordered in _ORDERED):
            continue
        low, high = (_scalar(from_bytes(kind, raw[field.field_id]), arrow) for raw in (lows, highs))
        bounds = [ds.field(field.name) >= low, ds.field(field.name) <= high]
        none_null = nulls.get(field.field_id) == 0
        true += bounds if none_null else [bound | ds.field(field.name).is_null() for bound in bounds]
    return functools.reduce(operator.and_, true)


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_date(kind) and isinstance(value, int):
        return pa.scalar(value, pa.int32()).cast(kind)
    if pa.types.is_timestamp(kind) and isinstance(value, int):
        return pa.scalar(value, pa.int64()).cast(kind)
    return pa.scalar(value, kind)


def _unsupported(location: str, why: str) -> SinkError:
    return SinkError(
        "TABLE_FEATURE_UNSUPPORTED",
        f"{location} cannot be read or cleaned here: {why}",
        hint="read it with Spark, or write to a new table",
    )
