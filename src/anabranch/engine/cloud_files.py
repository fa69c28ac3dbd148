"""`format("cloudFiles")`, the Auto Loader of Databricks, read by Spark's own file source.

A schema that is not given is inferred once and pinned, as `source_files_schema` does it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import StringType, StructField, StructType

from anabranch.engine.patched import patched
from anabranch.engine.source_files_schema import Pins, found_at, pinned, pinning
from anabranch.errors import UserCodeError

FORMAT = "cloudfiles"
_PREFIX = "cloudfiles."
#: Options with a counterpart of the same meaning.
_SAME = {
    "maxfilespertrigger": "maxFilesPerTrigger",
    "maxbytespertrigger": "maxBytesPerTrigger",
    "maxfileage": "maxFileAge",
    "cleansource": "cleanSource",
    "cleansource.movedestination": "sourceArchiveDir",
}
#: Formats whose columns are text unless types are asked for.
_WITHOUT_TYPES = ("json", "csv")
#: Formats with columns of their own, whatever the files hold.
_FIXED = ("text", "binaryfile")


@dataclass(slots=True)
class _Asked:
    """What has been said to one reader so far."""

    is_cloud: bool = False
    has_schema: bool = False
    cloud: dict[str, str] = field(default_factory=dict)  # by the name after the prefix, in small letters
    plain: dict[str, Any] = field(default_factory=dict)


@contextmanager
def cloud_files(pins: Path, *, pin: bool) -> Iterator[None]:
    """Inside, readers take `format("cloudFiles")`; schemas are looked for in `pins`, and written there with `pin`."""
    methods: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
        "format": _format,
        "option": _option,
        "options": _options,
        "schema": _schema,
        "load": functools.partial(_load, pins=Pins(pins, pin)),
    }
    with pinning(Pins(pins, pin)), patched(DataStreamReader, methods):
        yield


def _asked(reader: Any) -> _Asked:
    found: _Asked = vars(reader).setdefault("_anabranch_asked", _Asked())
    return found


def _format(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def format(self: Any, source: str) -> Any:  # noqa: A001 Spark's name
        asked = _asked(self)
        asked.is_cloud = isinstance(source, str) and source.lower() == FORMAT
        return self if asked.is_cloud else original(self, source)

    return format


def _option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        lower = key.lower()
        if lower.startswith(_PREFIX):
            _asked(self).cloud[lower.removeprefix(_PREFIX)] = str(value)
            return self
        _asked(self).plain[key] = value
        return original(self, key, value)

    return option


def _options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **given: Any) -> Any:
        for key, value in given.items():
            self.option(key, value)
        return self

    return options


def _schema(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def schema(self: Any, schema: Any) -> Any:
        _asked(self).has_schema = True
        return original(self, schema)

    return schema


def _load(original: Callable[..., Any], *, pins: Pins) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(self: Any, path: str | None = None, format: str | None = None, schema: Any = None, **options: Any) -> Any:  # noqa: A002
        if format is not None:
            self.format(format)
        if not _asked(self).is_cloud:
            return original(self, path, None, schema, **options)
        self.options(**options)
        if schema is not None:
            self.schema(schema)
        return _load_cloud(self, original, path, pins)

    return load


def _load_cloud(reader: Any, load: Callable[..., Any], path: str | None, pins: Pins) -> DataFrame:
    asked, spark = _asked(reader), reader._spark  # noqa: SLF001
    kind = asked.cloud.get("format")
    folder = path or asked.plain.get("path")
    if not kind or not folder:
        missing = "cloudFiles.format" if not kind else "the path"
        raise _fault(f"cloudFiles: {missing} is missing", 'write .option("cloudFiles.format", "json").load("...")')
    if asked.cloud.get("includeexistingfiles", "true").lower() == "false":
        raise _fault(
            "cloudFiles.includeExistingFiles=false is not supported: Spark's file source reads what is there",
            "leave it out, and filter older rows by _metadata.file_modification_time",
        )
    asked.is_cloud = False
    reader.format(kind)
    for name, ours in _SAME.items():
        if name in asked.cloud:
            reader.option(ours, asked.cloud[name])
    if "recursiveFileLookup" not in asked.plain and not found_at(spark, folder)[1]:
        reader.option("recursiveFileLookup", "true")  # as Auto Loader does; partitions need the tree of folders
    if not asked.has_schema and kind.lower() not in _FIXED:
        typed = asked.cloud.get("infercolumntypes", "false").lower() == "true"
        infer = functools.partial(_inferred, spark, kind, folder, asked, typed=typed)
        reader.schema(_hinted(pinned(pins, kind, folder, typed, infer), asked))
    elif "schemahints" in asked.cloud:
        raise _fault("cloudFiles.schemaHints has no effect beside a schema", "leave one of them out")
    answer: DataFrame = load(reader, folder)
    return answer


def _inferred(spark: SparkSession, kind: str, folder: str, asked: _Asked, *, typed: bool) -> StructType:
    hint = "put a first file there, or give the schema: .schema('id BIGINT, ...')"
    try:
        schema = spark.read.format(kind).options(**asked.plain).load(folder).schema
    except PySparkException as error:
        raise _fault(f"cloudFiles: no schema could be inferred from {folder}: {error.getCondition()}", hint) from error
    if not schema.fields:
        raise _fault(f"cloudFiles: no schema could be inferred from {folder}: there are no rows", hint)
    if typed or kind.lower() not in _WITHOUT_TYPES:
        return schema
    return StructType([StructField(each.name, StringType()) for each in schema.fields])


def _hinted(schema: StructType, asked: _Asked) -> StructType:
    """The schema with the columns of `cloudFiles.schemaHints` in place of those of the same name."""
    text = asked.cloud.get("schemahints")
    if not text:
        return schema
    try:
        parsed = StructType.fromDDL(text)
    except PySparkException as error:
        raise _fault(
            f"cloudFiles.schemaHints cannot be read: {text}", "name columns, not fields inside them"
        ) from error
    assert isinstance(parsed, StructType)  # DDL of columns is nothing else
    hints = {each.name.lower(): each for each in parsed.fields}
    known = [hints.pop(each.name.lower(), each) for each in schema.fields]
    return StructType([*known, *hints.values()])


def _fault(message: str, hint: str) -> UserCodeError:
    return UserCodeError("CLOUD_FILES", message, hint=hint)
