"""A folder of files as a streaming frame, read by Spark's own file source.

What Spark would do in silence is not done: records that cannot be read stop the epoch or become dead letters, files
that arrive late are read however old they are, names that tell of a file still being written are left alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from anabranch.engine.source_files_letters import DEAD_LETTER
from anabranch.engine.source_files_names import not_ending
from anabranch.engine.source_files_schema import current_pins, found_at, pinned
from anabranch.errors import UserCodeError, did_you_mean

#: Our names of formats, and Spark's.
FORMATS = {
    "json": "json",
    "csv": "csv",
    "parquet": "parquet",
    "avro": "avro",
    "orc": "orc",
    "text": "text",
    "binary": "binaryFile",
}
#: Formats with records that can be malformed one by one.
_OF_RECORDS = ("json", "csv")
#: The columns of formats that have the same ones, whatever the files hold.
_FIXED = {
    "text": "value STRING",
    "binary": "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY",
}
#: Endings of files that somebody is still writing.
UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".crdownload", ".filepart", ".inprogress", ".swp")
#: Options of ours on a source, read back by `archive`.
CLEAN, ARCHIVE = "anabranch.clean", "anabranch.archive"
META = "_meta"

#: Names that no column of a user has.
_CORRUPT, _AT, _ELEMENT, _ROW, _FILE = (f"__anabranch_{name}" for name in ("corrupt", "at", "element", "row", "file"))
#: Longer than there have been files: Spark leaves out what is older than this, measured by the newest file.
_EVER = "36500d"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a source was asked for, checked."""

    path: str
    kind: str
    envelope: str | None
    options: Mapping[str, str]  # for Spark's reader
    dead_letters: bool

    def said(self, name: str, usual: str | None = None) -> str | None:
        """An option, whatever the case of its name."""
        return next((value for key, value in self.options.items() if key.lower() == name.lower()), usual)


def files(
    path: str,
    kind: str,
    schema: StructType | str | None,
    envelope: str | None,
    options: Mapping[str, Any],
    *,
    dead_letters: bool,
    clean: str | None,
    archive: str | None,
    max_files: int | None,
    by_name: bool,
) -> DataFrame:
    """The frame of `sources.files`."""
    _check(path, kind, envelope, dead_letters=dead_letters, clean=clean, archive=archive)
    spark = SparkSession.active()
    said = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
    ours = _reading(spark, path, kind, envelope, said)
    ours |= {"maxFileAge": _EVER}
    ours |= {"maxFilesPerTrigger": str(max_files)} if max_files else {}
    ours |= {"fileNameOnly": "true"} if by_name else {}
    ours |= {CLEAN: clean} if clean else {}
    ours |= {ARCHIVE: archive} if archive else {}
    wanted = Wanted(path, kind, envelope, _over(ours, said), dead_letters)
    columns = _columns(spark, wanted, schema or _FIXED.get(kind))
    if envelope:
        return _unwrapped(spark, wanted, columns)
    if kind not in _OF_RECORDS:
        return _stream(spark, wanted, columns)
    if not dead_letters:
        return _stream(spark, wanted, columns, {"mode": "FAILFAST"})
    rows = _stream(spark, wanted, _with_corrupt(columns), {"columnNameOfCorruptRecord": _CORRUPT})
    names = [F.col(_quoted(name)) for name in rows.columns if name != _CORRUPT]
    bad = F.col(_CORRUPT).isNotNull()
    letter = F.when(bad, _letter(F.col("_metadata"), F.col(_CORRUPT), F.lit(None), _how(wanted, columns)))
    return rows.select(*names, letter.alias(DEAD_LETTER))


def _reading(
    spark: SparkSession, path: str, kind: str, envelope: str | None, said: Mapping[str, str]
) -> dict[str, str]:
    """How files are found and taken apart, for the stream and for looking at their schema."""
    there, partitions = found_at(spark, path)
    if not there:
        raise _fault(f"{path} is not there", "make the folder, or mend the path: it may be empty, but not missing")
    ours = {"pathGlobFilter": not_ending(UNFINISHED)}
    if not partitions:
        ours["recursiveFileLookup"] = "true"
    if envelope:
        ours["multiLine"] = "true"
    header = next((value for key, value in said.items() if key.lower() == "header"), "")
    if kind == "csv" and header.lower() == "true":
        ours["enforceSchema"] = "false"  # a file whose columns stand in another order is refused, not mixed up
    return ours


def _over(ours: Mapping[str, str], said: Mapping[str, str]) -> dict[str, str]:
    known = {key.lower() for key in said}
    return {**{key: value for key, value in ours.items() if key.lower() not in known}, **said}


def _stream(
    spark: SparkSession, wanted: Wanted, columns: StructType, more: Mapping[str, str] | None = None
) -> DataFrame:
    reader = spark.readStream.format(FORMATS[wanted.kind]).options(**_over(more or {}, wanted.options))
    return reader.schema(columns).load(wanted.path)


def _columns(spark: SparkSession, wanted: Wanted, schema: StructType | str | None) -> StructType:
    """The columns of a record, and `_meta` of its envelope."""
    if isinstance(schema, str):
        try:
            parsed = StructType.fromDDL(schema)
        except PySparkException as error:
            raise _fault(
                f"the schema cannot be read: {schema}", "write it as in SQL: id BIGINT, name STRING"
            ) from error
        assert isinstance(parsed, StructType), "DDL of columns is nothing else"
        return parsed
    if schema is not None:
        return schema
    pins = current_pins()
    if pins is None:
        raise _fault(
            f"there is no place to keep the schema of {wanted.path}", "give it: schema='id BIGINT, name STRING'"
        )
    identity = [wanted.envelope, sorted(wanted.options.items())]
    return pinned(pins, wanted.kind, wanted.path, identity, lambda: _inferred(spark, wanted))


def _inferred(spark: SparkSession, wanted: Wanted) -> StructType:
    hint = "put a first file there, or give the schema: schema='id BIGINT, ...'"
    more = {"inferSchema": "true", "mode": "DROPMALFORMED"} if wanted.kind in _OF_RECORDS else {}
    reader = spark.read.format(FORMATS[wanted.kind]).options(**_over(more, wanted.options))
    try:
        found = reader.load(wanted.path).schema
    except PySparkException as error:
        raise _fault(f"no schema could be inferred from {wanted.path}: {error.getCondition()}", hint) from error
    if wanted.envelope:
        inside = {each.name: each.dataType for each in found.fields}
        rows = inside.get(wanted.envelope)
        if not isinstance(rows, ArrayType) or not isinstance(rows.elementType, StructType):
            raise _fault(f'the files in {wanted.path} have no array "{wanted.envelope}" of objects', hint)
        meta = [StructField(META, inside[META])] if META in inside else []
        found = StructType([*rows.elementType.fields, *meta])
    if not found.fields:
        raise _fault(f"no schema could be inferred from {wanted.path}: there are no rows", hint)
    return found


def _with_corrupt(columns: StructType) -> StructType:
    return StructType([*columns.fields, StructField(_CORRUPT, StringType())])


def _unwrapped(spark: SparkSession, wanted: Wanted, columns: StructType) -> DataFrame:
    """The records of documents with an array of them, each with the document's `_meta`.

    The array is read as texts, so that one record that does not fit is a dead letter and not the whole document.
    """
    assert wanted.envelope is not None
    rows = StructType([each for each in columns.fields if each.name != META])
    meta = next((each for each in columns.fields if each.name == META), StructField(META, StringType()))
    document = StructType([meta, StructField(wanted.envelope, ArrayType(StringType()))])
    how = _how(wanted, rows, meta)
    read = _stream(spark, wanted, _with_corrupt(document), {"columnNameOfCorruptRecord": _CORRUPT})
    array = F.col(_quoted(wanted.envelope))
    broken = F.col(_CORRUPT).isNotNull() | array.isNull()
    # In a projection of its own: what stands beside the generator is computed above it, from an array that would be
    # carried along with each of its elements.
    whole = read.select(
        META,
        F.col("_metadata").alias(_FILE),
        F.when(broken, F.coalesce(F.col(_CORRUPT), F.to_json(F.struct(META)))).alias(_CORRUPT),
        F.when(~broken, array).alias(_ROW),
    )
    opened = whole.select(META, _FILE, _CORRUPT, F.posexplode_outer(_ROW).alias(_AT, _ELEMENT))
    parsed = opened.withColumn(
        _ROW,
        F.from_json(F.col(_ELEMENT), _with_corrupt(rows), {"columnNameOfCorruptRecord": _CORRUPT}),
    )
    bad_row = F.col(_AT).isNotNull() & (F.col(_ROW).isNull() | F.col(f"{_ROW}.{_CORRUPT}").isNotNull())
    bad = F.col(_CORRUPT).isNotNull() | bad_row
    letter = F.when(bad, _letter(F.col(_FILE), F.coalesce(_CORRUPT, _ELEMENT), F.col(_AT), how))
    names = [F.col(f"{_ROW}.{_quoted(each.name)}").alias(each.name) for each in rows.fields]
    if wanted.dead_letters:
        some = F.col(_CORRUPT).isNotNull() | F.col(_AT).isNotNull()  # a document with no records is no row
        return parsed.where(some).select(*names, META, letter.alias(DEAD_LETTER))
    stop = F.raise_error(F.concat(F.lit(MALFORMED), F.col(f"{_FILE}.file_path")))
    return parsed.where(F.when(bad, stop.cast("boolean")).otherwise(F.col(_AT).isNotNull())).select(*names, META)


#: How the error of a malformed record in an envelope begins; `source_files_errors` looks for it.
MALFORMED = "malformed record in "


def _letter(file: Column, record: Column, at: Column, how: str) -> Column:
    return F.struct(
        record.alias("record"),
        at.cast("int").alias("element"),
        file["file_path"].alias("file"),
        file["file_block_start"].alias("start"),
        file["file_block_length"].alias("length"),
        F.lit(how).alias("how"),
    )


def _how(wanted: Wanted, columns: StructType, meta: StructField | None = None) -> str:
    """What is needed to say why a record could not be read, and where it stands."""
    header = wanted.kind == "csv" and (wanted.said("header") or "").lower() == "true"
    told = {
        "format": wanted.kind,
        "schema": columns.jsonValue(),
        "meta": meta.dataType.jsonValue() if meta else None,
        "envelope": wanted.envelope,
        "whole": (wanted.said("multiLine") or "").lower() == "true" and wanted.kind == "json",
        "header": header,
        "sep": wanted.said("sep") or wanted.said("delimiter", ","),
        "quote": wanted.said("quote", '"'),
        "null": wanted.said("nullValue", ""),
        "encoding": wanted.said("encoding") or wanted.said("charset", "utf-8"),
        "lineSep": wanted.said("lineSep"),
    }
    return json.dumps(told)


def how_of_json(columns: StructType) -> str:
    """What dead letters of JSON records say about how these are read, wherever they come from."""
    return _how(Wanted("", "json", None, {}, dead_letters=True), columns)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _check(
    path: str, kind: str, envelope: str | None, *, dead_letters: bool, clean: str | None, archive: str | None
) -> None:
    if kind not in FORMATS:
        raise _fault(f'there is no format "{kind}"', did_you_mean(kind, FORMATS) or f"formats: {', '.join(FORMATS)}")
    if envelope and kind != "json":
        raise _fault(f"an envelope is read from JSON, not from {kind}", 'write format="json"')
    if dead_letters and kind not in _OF_RECORDS:
        raise _fault(f"{kind} has no records that could be malformed one by one", "leave dead_letters out")
    if clean not in (None, "archive", "delete"):
        raise _fault(f'clean="{clean}" is not known', 'write clean="archive" or clean="delete"')
    if (clean == "archive") != bool(archive):
        raise _fault('clean="archive" and archive="FOLDER" go together', "give both, or none of them")
    if clean and _scheme(path):
        raise _fault("clean works on local files", "use Spark's own options cleanSource and sourceArchiveDir")
    if archive and (_scheme(archive) or _is_below(archive, local_root(path))):
        raise _fault(
            f"the archive {archive} must be a local folder outside of {path}", "files in there would be read again"
        )


def local_root(path: str) -> str:
    """The folder below which a path or glob finds its files.

    >>> local_root("/in/2024-*/x"), local_root("file:/in/a")
    ('/in', '/in/a')
    """
    plain = path.removeprefix("file://").removeprefix("file:")
    parts = plain.split("/")
    first = next((i for i, part in enumerate(parts) if any(sign in part for sign in "*?[{")), len(parts))
    root = "/".join(parts[:first]) or "/"
    return os.path.abspath(root)


def _scheme(path: str) -> bool:
    return ":" in path.partition("/")[0] and not path.startswith("file:")


def _is_below(path: str, root: str) -> bool:
    own = local_root(path)
    return own == root or own.startswith(root.rstrip("/") + "/")


def _fault(message: str, hint: str) -> UserCodeError:
    return UserCodeError("FILES_SOURCE", f"sources.files: {message}", hint=hint)
