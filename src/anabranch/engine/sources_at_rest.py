"""The rows that a streaming source has given so far, as rows at rest.

Spark's file source keeps a list of the files it has read, by batch: reading just these gives its rows up to an epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.engine.catalyst import Catalyst, Node, analyzed, describe, is_source, items, kind, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.engine.checkpoint import Checkpoint

#: Options of a stream that a read at rest does not have, or must not follow.
_OF_STREAMS = ("path", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "cleansource", "maxfileage")

#: Formats whose source is Spark's file source.
_FILES = ("json", "csv", "parquet", "text", "orc", "avro", "xml", "binaryfile")


def files_read(checkpoint: Checkpoint, until: int) -> dict[str, list[str]] | None:
    """For each source of a checkpoint the files it has read up to an epoch; None where a source has no such list."""
    lists: dict[str, list[str]] = {}
    for number, source in enumerate(checkpoint.sources()):
        folder = checkpoint.folder / "sources" / str(number)
        if not folder.is_dir():
            return None
        lists[source] = sorted({entry["path"] for entry in _entries(folder) if entry["batchId"] <= until})
    return lists


def _entries(folder: Path) -> list[dict[str, Any]]:
    """The newest entry that lists everything before it, and the single ones after it."""
    whole = max((p for p in folder.glob("*.compact")), key=lambda p: int(p.stem), default=None)
    start = int(whole.stem) if whole else -1
    single = [p for p in folder.iterdir() if p.name.isdigit() and int(p.name) > start]
    lines = [line for path in ([whole] if whole else []) + single for line in path.read_text().splitlines()[1:]]
    return [json.loads(line) for line in lines]


def at_rest(spark: SparkSession, frame: DataFrame, files: Mapping[str, list[str]]) -> DataFrame | None:
    """The frame with its streaming sources replaced by what they have read; None where that is not known."""
    catalyst = Catalyst(spark)
    try:
        return catalyst.frame(_replaced(spark, catalyst, analyzed(frame), files))
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """A source whose rows cannot be read again."""


def _replaced(spark: SparkSession, catalyst: Catalyst, plan: Node, files: Mapping[str, list[str]]) -> Node:
    if is_source(plan):
        return _rows(spark, catalyst, plan, files)
    if kind(plan) == "EventTimeWatermark":
        return _replaced(spark, catalyst, plan.child(), files)  # rows at rest are never late
    children = [_replaced(spark, catalyst, child, files) for child in items(plan.children())]
    return catalyst.with_children(plan, children) if children else plan


def _rows(spark: SparkSession, catalyst: Catalyst, source: Node, files: Mapping[str, list[str]]) -> Node:
    name, options = source_options(source)
    form = name.rpartition(".")[2].lower()
    paths = files.get(describe(source))
    if paths is None or form not in _FILES:
        raise _UnknownError
    wanted = items(source.output())
    names = [a.name() for a in wanted]
    if len(set(names)) != len(names) or "_metadata" in names:
        raise _UnknownError
    schema = catalyst.frame(source).schema
    kept = {key: value for key, value in options.items() if key not in _OF_STREAMS}
    reader = spark.read.format(form).options(**kept).schema(schema)
    rows = analyzed(reader.load(paths) if paths else spark.createDataFrame([], schema))
    by_name = {a.name(): a for a in items(rows.output())}
    return catalyst.project([catalyst.alias(by_name[a.name()], a.name(), like=a) for a in wanted], rows)
