"""Files of a table written anew: the rows of some keys give way to others, all other rows stay."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from anabranch.connectors.changes import with_keys, without_keys
from anabranch.connectors.parquet_files import StagedWriter

if TYPE_CHECKING:
    from anabranch.connectors.contract import Staging
    from anabranch.core.changes import Merge
    from anabranch.core.epoch import StagedFile


def rewritten(
    staging: Staging, rows: ds.Dataset, merge: Merge, keys: pa.Table | None, new: pa.Table
) -> tuple[list[StagedFile], list[str]]:
    """Stage `new` rows, and what is left of files that hold one of the `keys`; None stands for every file.

    The staged files, and the paths of the table's files that are given up for them.
    """
    writer = StagedWriter(staging, "merge")
    try:
        given_up = _without_keys(writer, rows, merge, keys, staging.schema)
        for batch in new.cast(staging.schema).combine_chunks().to_batches():
            writer.write(batch)
        return writer.close(), given_up
    except BaseException:
        writer.abort()
        raise


def _without_keys(
    writer: StagedWriter, rows: ds.Dataset, merge: Merge, keys: pa.Table | None, schema: pa.Schema
) -> list[str]:
    given_up = []
    for fragment in _holding(rows, merge, keys):
        if keys is None:
            given_up.append(fragment.path)
            continue
        if not with_keys(merge, fragment.to_table(columns=list(merge.keys), schema=schema), keys).num_rows:
            continue
        given_up.append(fragment.path)
        for batch in fragment.to_batches(schema=schema):
            left = without_keys(merge, pa.Table.from_batches([batch]), keys)
            for part in left.combine_chunks().to_batches():
                writer.write(part)
    return given_up


def _holding(rows: ds.Dataset, merge: Merge, keys: pa.Table | None) -> Iterator[ds.Fragment]:
    """The files that may hold such a key, by what the table knows of their values."""
    if keys is None:
        yield from rows.get_fragments()
        return
    if not keys.num_rows:
        return
    possible = ds.scalar(True)
    for name in merge.keys:
        column = keys[name]
        kind = column.type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_temporal(kind)):
            continue
        if column.null_count:
            continue
        bounds = pc.min_max(column)
        possible = possible & (ds.field(name) >= bounds["min"]) & (ds.field(name) <= bounds["max"])
    yield from rows.get_fragments(filter=possible)
