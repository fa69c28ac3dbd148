"""The rows that a streaming source has given so far, as rows at rest.

Spark's file source keeps a list of the files it has read, by batch: reading just these gives its rows up to an epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from anabranch.engine.archive import Cleaned, archived
from anabranch.engine.catalyst import METADATA_COLUMN, Catalyst, catalyst_of, describe, is_source, source_options
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, items, kind
from anabranch.engine.source_files_log import is_local, local_path, read_in, read_until
from anabranch.errors import DataError, StateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.engine.checkpoint import Checkpoint

#: Options of a stream that a read at rest does not have, or must not follow.
_OF_STREAMS = ("path", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "cleansource", "maxfileage")

#: Formats whose source is Spark's file source.
_FILES = ("json", "csv", "parquet", "text", "orc", "avro", "xml", "binaryfile")


def files_read(checkpoint: Checkpoint, until: int) -> dict[str, list[str]] | None:
    """For each source of a checkpoint the files it has read up to an epoch; None where a source has no such list."""
    if not all(checkpoint.log(place).is_dir() for place in range(len(checkpoint.sources()))):
        return None
    return _by_source(checkpoint, partial(read_until, checkpoint, epoch=until))


def each_file_once(
    batch: DataFrame, stream: DataFrame, checkpoint: Checkpoint, epoch: int, *, repeatable: bool
) -> DataFrame:
    """A batch of a stream, or its files read anew where Spark reads some of them twice.

    Where the name of one looks like a glob, Spark's file source reads all others of the batch once more for it.
    """
    lists = [[entry["path"] for entry in read_in(checkpoint, n, epoch)] for n in range(len(checkpoint.sources()))]
    odd = [path for paths in lists if len(paths) > 1 for path in paths if _looks_like_glob(path)]
    if not odd:
        return batch
    files = _by_source(checkpoint, partial(read_in, checkpoint, epoch=epoch))
    found = at_rest(batch.sparkSession, stream, files) if repeatable and files is not None else None
    if found is None:
        raise DataError(
            "SOURCE_NAMES_LIKE_GLOBS",
            f"{unquote(odd[0])} has a name that Spark takes for a pattern, and would read other files twice for",
            hint="rename it, without {}[]*? or backslash, and read all again: anabranch run --full-refresh-all; or let "
            "each epoch read one file: maxFilesPerTrigger of 1",
        )
    catalyst = catalyst_of(batch.sparkSession)
    return catalyst.frame(catalyst.at_time(analyzed(found), checkpoint.time(epoch)))


def _by_source(
    checkpoint: Checkpoint, read: Callable[[int], Sequence[Mapping[str, Any]]]
) -> dict[str, list[str]] | None:
    """The files of each source; None where two that are told by the same words have others: each has its own list."""
    found: dict[str, list[str]] = {}
    for place, source in enumerate(checkpoint.sources()):
        paths = sorted({entry["path"] for entry in read(place)})
        if found.setdefault(source, paths) != paths:
            return None
    return found


def at_rest(spark: SparkSession, frame: DataFrame, files: Mapping[str, list[str]] | None) -> DataFrame | None:
    """The frame with its streaming sources replaced by what they have read; None where that is not known.

    Without `files`, they are replaced by what they hold now.
    """
    catalyst = catalyst_of(spark)
    try:
        return catalyst.frame(_replaced(spark, catalyst, analyzed(frame), files))
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """A source whose rows cannot be read again."""


def _replaced(spark: SparkSession, catalyst: Catalyst, plan: Node, files: Mapping[str, list[str]] | None) -> Node:
    if is_source(plan):
        return _rows(spark, catalyst, plan, files)
    if kind(plan) == "EventTimeWatermark":
        return _replaced(spark, catalyst, plan.child(), files)  # rows at rest are never late
    children = [_replaced(spark, catalyst, child, files) for child in children_of(plan)]
    return catalyst.with_children(plan, children) if children else plan


def _rows(spark: SparkSession, catalyst: Catalyst, source: Node, files: Mapping[str, list[str]] | None) -> Node:
    name, options = source_options(source)
    form = name.rpartition(".")[2].lower()
    wanted = items(source.output())
    names = [a.name() for a in wanted]
    if len(set(names)) != len(names):
        raise _UnknownError
    schema = catalyst.frame(source).schema
    rows = analyzed(_now(spark, form, options, schema) if files is None else _past(spark, source, form, schema, files))
    by_name = {a.name(): a for a in items(rows.output())}
    return catalyst.project([catalyst.alias(by_name[a.name()], a.name(), like=a) for a in wanted], rows)


def _past(
    spark: SparkSession, source: Node, form: str, schema: StructType, files: Mapping[str, list[str]]
) -> DataFrame:
    paths = files.get(describe(source))
    if paths is None or form not in _FILES:
        raise _UnknownError
    _, options = source_options(source)
    return _read(spark, form, options, schema, paths) if paths else spark.createDataFrame([], schema)


def _now(spark: SparkSession, form: str, options: Mapping[str, str], schema: StructType) -> DataFrame:
    kept = {key: value for key, value in options.items() if key not in _OF_STREAMS}
    if form == "kafka":
        return spark.read.format(form).options(**kept).load()
    if form not in _FILES or "path" not in options:
        raise _UnknownError
    own = StructType([each for each in schema.fields if each.name != METADATA_COLUMN])
    hidden = [METADATA_COLUMN] if METADATA_COLUMN in schema.names else []
    return spark.read.format(form).options(**kept).schema(own).load(options["path"]).select("*", *hidden)


def _read(
    spark: SparkSession, form: str, options: Mapping[str, str], schema: StructType, paths: list[str]
) -> DataFrame:
    """The rows of these files, wherever they are by now; `_metadata` where the source has it."""
    kept = {key: value for key, value in options.items() if key not in _OF_STREAMS}
    own = StructType([each for each in schema.fields if each.name != METADATA_COLUMN])
    hidden = [METADATA_COLUMN] if METADATA_COLUMN in schema.names else []
    frames = []
    for base, some in _by_base(paths, options).items():
        reader = spark.read.format(form).options(**kept).option("__globPaths__", "false")  # names may look like globs
        if base and options.get("recursivefilelookup", "false").lower() != "true":
            reader = reader.option("basePath", base)  # columns that are names of folders begin below it
        frames += [reader.schema(own).load(each).select("*", *hidden) for each in _apart(some)]
    return reduce(DataFrame.unionByName, frames)


def _apart(paths: list[str]) -> list[list[str]]:
    """Those that look like globs by themselves: Spark reads all that are given with one, once more for each.

    >>> _apart(["a.json", "b [1].json", "c.json"])
    [['b [1].json'], ['a.json', 'c.json']]
    """
    odd = [path for path in paths if _looks_like_glob(path)]
    others = [path for path in paths if not _looks_like_glob(path)]
    return [*([path] for path in odd), *([others] if others else [])]


def _looks_like_glob(path: str) -> bool:
    """Whether Spark takes a path, or the URL of one, for a glob."""
    return bool(set("{}[]*?\\") & set(unquote(path)))


def _by_base(paths: list[str], options: Mapping[str, str]) -> dict[str | None, list[str]]:
    """The files by the folder of the source, or of its archive; files elsewhere have none."""
    place, found = Cleaned.of(options), dict[str | None, list[str]]()
    for url in paths:
        path: str | None = url
        if is_local({"path": url}):
            path = archived(local_path({"path": url}), options)
            if path is None:
                raise StateError(
                    "SOURCE_GONE",
                    f"{local_path({'path': url})}, which the source has read, is gone: the past cannot be computed",
                    hint="put it back where it was, or into the archive; or rebuild from the files that are there: "
                    "anabranch run --full-refresh",
                )
        bases = [base for base in (place.root, place.archive) if base and path and path.startswith(f"{base}/")]
        is_glob = place.root is not None and place.root != options.get("path", "").removeprefix("file:").rstrip("/")
        found.setdefault(bases[0] if bases and not is_glob else None, []).append(path or url)
    return found
