"""Files whose lines are documents, JSON or CSV, as Spark's own readers take them: which workers can read, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql.types import StringType, StructType

from anabranch.engine.catalyst import METADATA_COLUMN, Catalyst, source_options
from anabranch.engine.catalyst_nodes import Node, items, kind
from anabranch.native.parse import JsonShape, refused
from anabranch.native.parse_csv_shape import CsvShape, Heading, csv_refused, heading_of
from anabranch.native.parse_schema import corrupt_column
from anabranch.native.tree import NotKnown

#: The raw record: a line of a file; and the column that it becomes.
LINE, DOCUMENT = "raw_line", "document"

_CORRUPT = "columnnameofcorruptrecord"

#: Settings, as they are if nobody changed them, under which it is known what a value of the wrong type gives.
_PARTIAL = {"spark.sql.json.enablePartialResults": "true", "spark.sql.legacy.json.allowEmptyString.enabled": "false"}

#: Options that say which files are read and when, not how.
OF_FILES = frozenset(
    """
    path maxfilespertrigger maxbytespertrigger maxfileage maxcachedfiles discardcachedinputratio latestfirst
    filenameonly pathglobfilter recursivefilelookup modifiedbefore modifiedafter cleansource sourcearchivedir basepath
    anabranch.clean anabranch.archive
    """.split()  # noqa: SIM905  a list of a word per line is no easier to read
)
#: Options under which a record is not a line of UTF-8, or a file may be left out.
_NOT_LINES = ("multiline", "wholetext", "linesep", "encoding", "charset", "ignorecorruptfiles", "ignoremissingfiles")
#: Settings of Hadoop's under which a line may be left out, or files of more names are unpacked.
_OF_HADOOP = ("mapreduce.input.linerecordreader.line.maxlength", "io.compression.codecs")


@dataclass(frozen=True)
class Documents:
    """How a line becomes what the flows need of it; and how Spark reads a file of such lines.

    `schema` has all columns of the files, as Spark's JSON. `stops`: Spark does at a record that cannot be read, and
    names its file. `heading`: files begin with a line of names.
    """

    format: str
    shape: JsonShape | CsvShape
    schema: str
    options: Mapping[str, str]
    stops: bool
    heading: Heading | None = None

    @property
    def has_letters(self) -> bool:
        """Whether bad records become dead letters: these are looked for in whatever part of a file is told of them."""
        return corrupt_column(self.options).startswith("__anabranch_")


def is_documents(base: Node) -> bool:
    """Whether a source is files whose lines are documents, read by Spark's own reader."""
    return kind(base) == "StreamingRelation" and source_options(base)[0].lower() in ("json", "csv")


def is_lines(base: Node) -> bool:
    """Whether a source is the lines of files."""
    if kind(base) != "StreamingRelation":
        return False
    name, options = source_options(base)
    if name.lower() != "text" or options.keys() - OF_FILES - {*_NOT_LINES}:  # any other may be one of Hadoop's
        return False
    return not _not_lines(options) and not _hadoops(base)


def _not_lines(options: Mapping[str, str]) -> list[str]:
    """The options under which records are not lines."""
    return [name for name in _NOT_LINES if options.get(name, "false").lower() != "false"]


def _hadoops(base: Node) -> list[str]:
    """The settings under which Hadoop's reader has other lines."""
    settings = base.dataSource().sparkSession().sessionState().newHadoopConf()
    return [key for key in _OF_HADOOP if settings.get(key)]


def documents(catalyst: Catalyst, base: Node, needed: Sequence[Node]) -> Documents:
    """How the lines of a source are parsed, for the columns that flows need.

    Spark's readers do not look at others either: whether one of them has a value of the wrong type is not known.
    """
    name, options = source_options(base)
    name = name.lower()
    if odd := _not_lines(options):
        raise NotKnown(f"reads files of {name.upper()} with the option {odd[0]}")
    if odd := _hadoops(base):
        raise NotKnown(f"reads files of {name.upper()} with {odd[0]}")
    check_folders(base, options)
    own = {key: value for key, value in options.items() if key not in OF_FILES and key not in _NOT_LINES}
    if not needed:
        raise NotKnown("reads no column of its files")
    declared = base.dataSource().userSpecifiedSchema()
    if declared.isDefined() and any(each.lower() == METADATA_COLUMN for each in declared.get().fieldNames()):
        raise NotKnown(f"reads a column of its own that is called {METADATA_COLUMN}")
    columns = StructType.fromJson(json.loads(base.schema().json()))
    columns = StructType([field for field in columns.fields if field.name != METADATA_COLUMN])
    _check_corrupt_column(columns, _with_corrupt_column(catalyst, own))
    names = [attribute.name() for attribute in needed]
    stops = own.get("mode", "PERMISSIVE").upper() == "FAILFAST"
    zone = catalyst.setting("spark.sql.session.timeZone")
    if name == "csv":
        shape = CsvShape(columns.json(), tuple(names), _with_corrupt_column(catalyst, own), zone)
        if why := csv_refused(shape):
            raise NotKnown(why)
        return Documents(name, shape, columns.json(), {**own, "header": "false"}, stops, heading_of(shape))
    if own.get("mode", "").upper() == "DROPMALFORMED":
        raise NotKnown("drops malformed records of files of JSON")
    wanted = StructType([field for field in columns.fields if field.name in names])
    of_json = replace(json_shape(catalyst, wanted.json(), own, zone), filtered=True)
    return Documents(name, of_json, columns.json(), own, stops)


def check_folders(base: Node, options: Mapping[str, str]) -> None:
    """Refuse files in folders whose names are columns, `day=2026-01-02`: it is Spark that knows these."""
    source = base.dataSource()
    declared = source.userSpecifiedSchema()
    names = {attribute.name() for attribute in items(base.output())} - {METADATA_COLUMN}
    more = declared.isDefined() and names - set(declared.get().fieldNames())
    if more or source.partitionColumns().size() or items(source.sourceInfo().partitionColumns()):
        raise NotKnown("reads columns that are in the names of folders")
    if "=" in options.get("path", ""):
        raise NotKnown("reads a folder with = in its name, which may be a column")


def json_shape(catalyst: Catalyst, schema: str, options: Mapping[str, str], zone: str) -> JsonShape:
    """What is parsed; raises if that cannot be done natively."""
    partial = all(catalyst.setting(key) == value for key, value in _PARTIAL.items())
    shape = JsonShape(schema, _with_corrupt_column(catalyst, options), zone, partial)
    if why := refused(shape):
        raise NotKnown(why)
    return shape


def _with_corrupt_column(catalyst: Catalyst, options: Mapping[str, str]) -> Mapping[str, str]:
    """The name for bad records may be a session's setting."""
    named = any(key.lower() == _CORRUPT for key in options)
    if not named and (name := catalyst.setting("spark.sql.columnNameOfCorruptRecord")) != "_corrupt_record":
        return {**options, _CORRUPT: name}
    return options


def _check_corrupt_column(columns: StructType, options: Mapping[str, str]) -> None:
    """Refuse what Spark refuses, whether anybody needs the column or not."""
    name = corrupt_column(options)
    if name in columns.names and columns[name].dataType != StringType():
        raise NotKnown(f"reads bad records into {name}, which is no text")
