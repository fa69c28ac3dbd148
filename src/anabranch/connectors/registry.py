"""Which connector speaks for a format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.errors import ProjectError, did_you_mean

if TYPE_CHECKING:
    from anabranch.connectors.contract import Sink
    from anabranch.connectors.foreach_batch import Handler
    from anabranch.core.changes import Merge
    from anabranch.core.declarations import Unique

#: Formats this version can write.
FORMATS = ("delta", "foreach_batch")

#: Those whose outputs can be read at a cut.
READABLE = ("delta",)


def open_sink(
    format_name: str,
    name: str,
    location: str,
    *,
    pipeline: str | None = None,
    partition_by: tuple[str, ...] = (),
    properties: Mapping[str, str] | None = None,
    comment: str | None = None,
    merge: Merge | None = None,
    unique: tuple[Unique, ...] = (),
    handler: Handler | None = None,
) -> Sink:
    """The sink of an output; nothing is touched yet.

    `pipeline` is the id under which it stages files, `merge` how changes by key are applied to it, and `unique` has the
    rules on all its rows. A table that has a log of changes is opened with it, whatever is declared by now: an epoch
    may wait to be finished. Such a table needs no rules: those that it may have are true by themselves. `handler` calls
    the function of a `foreach_batch` sink.
    """
    if format_name == "delta":
        from anabranch.connectors.delta import DeltaSink
        from anabranch.connectors.delta_changes import DeltaChanges, has_changes

        if merge or has_changes(location):
            return DeltaChanges(name, location, partition_by, properties, comment, pipeline=pipeline, merge=merge)
        return DeltaSink(name, location, partition_by, properties, comment, pipeline=pipeline, unique=unique)
    if format_name == "foreach_batch":
        from anabranch.connectors.foreach_batch import ForeachBatchSink

        return ForeachBatchSink(name, location, handler)
    raise ProjectError(
        "FORMAT_NOT_SUPPORTED",
        f'"{name}" has format "{format_name}", which this version does not write',
        hint=did_you_mean(format_name, FORMATS) or f"formats that can be written: {', '.join(FORMATS)}",
    )
