"""Old versions of Delta tables: reading them without Spark, and clearing away what no pinned version needs."""

from __future__ import annotations

import functools
import operator
import re
import time
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from anabranch.connectors.delta_log import LOG, Log, live_files, staged_name, unneeded_log
from anabranch.connectors.delta_schema import arrow_schema
from anabranch.connectors.folder import Folder, Found
from anabranch.core.epoch import StagedFile
from anabranch.errors import SinkError, StateError

_HOUR = 3600.0

#: Small files are put together once there are so many of them.
_MANY = 50
#: Types whose bounds are used; not floats, because of NaN.
_ORDERED = (pa.types.is_integer, pa.types.is_string, pa.types.is_date, pa.types.is_timestamp, pa.types.is_decimal)
_HIDDEN = re.compile(r"(^|/)[_.][^=]*(/|$)")  # Delta keeps its own things under such names; `_c=1/` is a partition


def arrow_dataset(location: str, version: int) -> ds.Dataset:
    """One version of a table, to be scanned with filters and columns.

    Made here and not by `DeltaTable.to_pyarrow_dataset`, which skips files that lack a bound others have.
    """
    table = table_at(location, version)
    check_readable(location, table)
    folder = Folder(location)
    files = pa.table(table.get_add_actions()).to_batches()
    gone = folder.missing(live_files(table))
    if gone:
        raise version_gone(location, version, f"{len(gone)} of its files are gone, {gone[0]} among them")
    form = parquet_form()
    fragments = [
        form.make_fragment(folder.full(unquote(batch["path"][row].as_py())), folder.system, _holds(batch, row))
        for batch in files
        for row in range(batch.num_rows)
    ]
    return ds.FileSystemDataset(fragments, arrow_schema(table.schema()), form, folder.system)


def staged_dataset(folder: Folder, files: Iterable[StagedFile], schema: pa.Schema) -> ds.Dataset:
    """Staged files as a dataset; the values of partition columns are in their names only."""
    form = parquet_form()
    fragments = [
        form.make_fragment(folder.full(f.path), folder.system, functools.reduce(operator.and_, _partition(f, schema)))
        for f in files
    ]
    return ds.FileSystemDataset(fragments, schema, form, folder.system)


def _partition(file: StagedFile, schema: pa.Schema) -> Iterator[ds.Expression]:
    yield ds.scalar(True)
    for name, text in file.partition.items():
        column = ds.field(name)
        yield column.is_null() if text is None else column == pa.scalar(text).cast(schema.field(name).type)


def parquet_form() -> ds.ParquetFileFormat:
    """How data files are read, whoever wrote them."""
    # Spark writes timestamps in a form that pyarrow would take for nanoseconds, which end in the year 2262.
    return ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))


def _holds(batch: pa.RecordBatch, row: int) -> ds.Expression:
    """What is true of every row of a file, so that scans can leave the file out."""
    true = [ds.scalar(True)]
    for name, value in _struct(batch, "partition", row).items():
        true.append(ds.field(name) == value if value.is_valid else ds.field(name).is_null())
    lows, highs, nulls = (_struct(batch, column, row) for column in ("min", "max", "null_count"))
    for name, low in lows.items():
        high = highs.get(name)
        if high is None or not (low.is_valid and high.is_valid and any(ordered(low.type) for ordered in _ORDERED)):
            continue
        if pa.types.is_timestamp(high.type):
            high = pa.scalar(high.value + 1000, high.type)  # Spark cuts the upper bound to milliseconds
        bounds = [ds.field(name) >= low, ds.field(name) <= high]
        none_null = name in nulls and nulls[name].as_py() == 0
        true += bounds if none_null else [bound | ds.field(name).is_null() for bound in bounds]
    return functools.reduce(operator.and_, true)


def _struct(batch: pa.RecordBatch, column: str, row: int) -> dict[str, pa.Scalar]:
    return dict(batch[column][row].items()) if column in batch.schema.names and batch[column][row].is_valid else {}


def check_readable(location: str, table: DeltaTable) -> None:
    """Refuse a table that means something else than its files say."""
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise _unsupported(location, "the table has column mapping")
    known = {
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "columnMapping",
        "deletionVectors",
        "variantType",
    }
    features = set(table.protocol().reader_features or ())
    if features - known:
        raise _unsupported(location, f"the table has the features {', '.join(sorted(features - known))}")
    if "deletionVectors" in features and pa.table(table.deletion_vectors()).num_rows:
        raise _unsupported(location, "rows were deleted with deletion vectors")


def compact(table: DeltaTable, size: int) -> int:
    """Put files of less than half the `size` together if there are many; how many went. Old versions keep theirs."""
    sizes = pa.table(table.get_add_actions())["size_bytes"].to_pylist()
    if sum(each < size // 2 for each in sizes) < _MANY:
        return 0
    return int(table.optimize.compact(target_size=size, max_concurrent_tasks=1)["numFilesRemoved"])


def vacuum(location: str, keep_versions: Iterable[int], *, older_than_hours: float, dry_run: bool) -> list[str]:
    """Remove files that neither the newest version nor any of `keep_versions` needs; returns their paths.

    A data file goes when it is older than the given age, and was not taken out of the table more recently than that
    either, so that whoever began to read then can finish. Staged files that no commit has named are never touched. Of
    the log goes what is as old and comes before the oldest of those versions: every file in it slows commits down.
    """
    folder = Folder(location)
    newest = table_at(location, None)
    if "deletionVectors" in (newest.protocol().writer_features or ()):
        raise _unsupported(location, "the table has deletion vectors")
    versions = {int(newest.version()), *keep_versions}
    needed = {path for version in sorted(versions) for path in live_files(table_at(location, version))}
    horizon = time.time() - older_than_hours * _HOUR
    log = Log.of(folder)
    if not log.reaches(horizon):
        raise StateError(
            "LOG_TOO_SHORT",
            f"the log of {location} does not go back {older_than_hours:g} hours, what was removed since is not known",
            hint="remove files that are older only: give a shorter age, within which the log is complete",
        )
    old = [
        found
        for found in folder.files(without=LOG)
        if found.path not in needed and found.modified < horizon and not _HIDDEN.search(found.path)
    ]
    kept = log.removed_since(horizon) | _maybe_staged(log, [f for f in old if staged_name(f.path)])
    removed = sorted(found.path for found in old if found.path not in kept)
    removed += unneeded_log(folder, min(versions), horizon)
    if not dry_run:
        for path in removed:
            folder.remove(path)
    return removed


def _maybe_staged(log: Log, files: list[Found]) -> set[str]:
    """Staged files that no commit has named, and those of which that is not certain."""
    return {f.path for f in files} - log.ever_named(files)


def table_at(location: str, version: int | None) -> DeltaTable:
    """A version of a table, or the newest."""
    try:
        with Folder(location).asked():
            return DeltaTable(location, version=version)
    except (DeltaError, OSError) as error:
        if version is not None:
            raise version_gone(location, version, str(error)) from error
        raise SinkError(
            "TABLE_UNREADABLE",
            f"{location} cannot be read: {error}",
            hint="check that the storage is there and that the log's files are whole",
            retryable=True,
        ) from error


def version_gone(location: str, version: int | str, why: str) -> StateError:
    """The error for a version whose files are not all there."""
    return StateError(
        "VERSION_GONE",
        f"version {version} of {location} cannot be read any more: {why}",
        hint="read a newer cut; to keep cuts longer, raise the retention and vacuum with anabranch only",
    )


def _unsupported(location: str, why: str) -> SinkError:
    return SinkError(
        "TABLE_FEATURE_UNSUPPORTED",
        f"{location} cannot be read or cleaned here: {why}",
        hint="read it with Spark, or drop that feature from the table",
    )
