"""The rows that versions of a Delta table added, read without Spark: of each commit the files that changed data."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds

from anabranch.connectors.delta_log import actions, commit_path
from anabranch.connectors.delta_schema import arrow_schema
from anabranch.connectors.delta_versions import check_readable, parquet_form, table_at
from anabranch.connectors.folder import Folder
from anabranch.errors import StateError


@dataclass(frozen=True, slots=True)
class Added:
    """A file that a commit added rows with."""

    version: int
    path: str
    partition: Mapping[str, str | None]


def added_dataset(table: str, location: str, first: int, last: int) -> ds.Dataset:
    """The rows that versions `first` to `last` added, both with them, whether or not they are still in the table.

    Files that were only put together differently do not count. `table` is the name that errors use.
    """
    at_last = table_at(location, last)
    check_readable(location, at_last)
    folder = Folder(location)
    files = list(_added(table, folder, first, last))
    gone = folder.missing({file.path for file in files})
    if gone:
        raise rows_gone(table, first, last, f"{len(gone)} of their files are gone", _reaches_back(files, gone, last))
    schema, form = arrow_schema(at_last.schema()), parquet_form()
    fragments = [
        form.make_fragment(
            folder.full(f.path), folder.system, functools.reduce(operator.and_, _true_of(f, schema), ds.scalar(True))
        )
        for f in files
    ]
    return ds.FileSystemDataset(fragments, schema, form, folder.system)


def rows_gone(table: str, first: int, last: int, why: str, from_version: int | None) -> StateError:
    """The error for rows that were removed from the storage before they were looked at."""
    way_out = f" --from {from_version}" if from_version is not None else ""
    what = f"from version {from_version} on they are there" if from_version is not None else "or the table as it is"
    return StateError(
        "PROFILE_ROWS_GONE",
        f'the rows that versions {first} to {last} of "{table}" added cannot be read any more: {why}',
        hint=f"{what}: anabranch profile {table}{way_out}; profile more often than vacuum removes files",
        details={"table": table, "first": first, "last": last, "from": from_version},
    )


def _added(table: str, folder: Folder, first: int, last: int) -> Iterator[Added]:
    """In the order of their commits; a file that several name, once."""
    seen = set()
    for version in range(first, last + 1):
        raw = folder.read(commit_path(version))
        if raw is None:
            newer = next((v for v in range(version + 1, last + 1) if folder.read(commit_path(v)) is not None), None)
            raise rows_gone(table, first, last, f"the log has no commit {version}", newer)
        for action in actions(raw, "add"):
            path = unquote(action["path"])
            if action.get("dataChange", True) and path not in seen:
                seen.add(path)
                yield Added(version, path, action.get("partitionValues") or {})


def _reaches_back(files: Sequence[Added], gone: Sequence[str], last: int) -> int | None:
    """The first version from which on all files are there; None if that is after the last."""
    first = 1 + max(file.version for file in files if file.path in set(gone))
    return first if first <= last else None


def _true_of(file: Added, schema: pa.Schema) -> Iterator[Any]:
    for name, text in file.partition.items():
        column = ds.field(name)
        # An empty text stands for null, as the protocol has it.
        yield column.is_null() if text in (None, "") else column == pa.scalar(text).cast(schema.field(name).type)
