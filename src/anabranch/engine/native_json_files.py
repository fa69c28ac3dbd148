"""Files of JSON as Spark's own reader takes them, for the native pass: which can be read line by line, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from anabranch.engine.catalyst import Catalyst, Node, kind, source_options, type_of
from anabranch.native.parse import JsonShape, refused
from anabranch.native.tree import NotKnown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The raw record: a line of a file; and the column that it becomes.
LINE, DOCUMENT = "raw_line", "document"

_CORRUPT = "columnnameofcorruptrecord"

#: Options that say which files are read and when, not how.
_OF_FILES = frozenset(
    """
    path maxfilespertrigger maxbytespertrigger maxfileage maxcachedfiles discardcachedinputratio latestfirst
    filenameonly pathglobfilter recursivefilelookup modifiedbefore modifiedafter cleansource sourcearchivedir basepath
    anabranch.clean anabranch.archive
    """.split()  # noqa: SIM905  a list of a word per line is no easier to read
)
#: Options under which a record is not a line of UTF-8, or a file may be left out.
_NOT_LINES = ("multiline", "wholetext", "linesep", "encoding", "charset", "ignorecorruptfiles", "ignoremissingfiles")


@dataclass(frozen=True)
class JsonFiles:
    """How a line is parsed; the columns of the source that are needed, by their names."""

    shape: JsonShape
    columns: tuple[str, ...]
    stops: bool  # at a record that cannot be read, naming its file

    def read(self, lines: DataFrame, *others: str) -> DataFrame:
        """The rows of lines as Spark has them. It takes an array for one record, where a file of it has many."""
        schema = StructType.fromJson(json.loads(self.shape.schema))
        document = F.from_json(LINE, schema, dict(self.shape.options)).alias(DOCUMENT)
        parsed = lines.select(document, *others).where(F.col(DOCUMENT).isNotNull())
        return parsed.select(*(F.col(DOCUMENT).getField(name).alias(name) for name in self.columns), *others)

    def differs(self, lines: Sequence[str | None]) -> bool:
        """Whether `from_json` may give something else for one of the lines than the reader of files.

        In a field for text, that one gives whatever is no text as it stands there: `1e3`, where the other has `1000.0`.
        """
        schema = StructType.fromJson(json.loads(self.shape.schema))
        return any(line is not None and _has_other(line, schema) for line in lines)


def _has_other(line: str, schema: StructType) -> bool:
    try:
        found, _ = _DECODER.raw_decode(line.lstrip(" \t\r\n"))
    except RecursionError:
        return True
    except ValueError:
        return any(sign in line for sign in _LENIENT)
    return _other(found, schema)


class _Pairs(list[tuple[str, object]]):
    """An object of JSON, with every field however often its name comes."""


#: Whatever is no object is a value by itself; how a number is written does not matter here.
_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs)

#: What Spark reads and Python does not.
_LENIENT = ("'", "INF")


def _other(value: object, wanted: DataType) -> bool:
    """Whether a field for text has something else."""
    if isinstance(wanted, StringType):
        return value is not None and not isinstance(value, str)
    if isinstance(wanted, ArrayType) and not isinstance(value, _Pairs) and isinstance(value, list):
        return any(_other(each, wanted.elementType) for each in value)
    if isinstance(wanted, MapType) and isinstance(value, _Pairs):
        return any(_other(each, wanted.valueType) for _, each in value)
    if isinstance(wanted, StructType):
        if not isinstance(value, _Pairs):
            return isinstance(value, list)  # an array may stand for its first element
        types = {field.name: field.dataType for field in wanted.fields}
        return any(_other(each, types[name]) for name, each in value if name in types)
    return False


def is_json(base: Node) -> bool:
    """Whether a source is files of JSON, read by Spark's own reader."""
    return kind(base) == "StreamingRelation" and source_options(base)[0].lower() == "json"


def is_lines(base: Node) -> bool:
    """Whether a source is the lines of files."""
    if kind(base) != "StreamingRelation":
        return False
    name, options = source_options(base)
    return name.lower() == "text" and not _not_lines(options)


def _not_lines(options: Mapping[str, str]) -> list[str]:
    """The options under which records are not lines."""
    return [name for name in _NOT_LINES if options.get(name, "false").lower() != "false"]


def json_files(catalyst: Catalyst, base: Node, needed: Sequence[Node]) -> JsonFiles:
    """How the lines of a source are parsed, for the columns that flows need.

    Spark's reader does not look at others either: whether one of them has a value of the wrong type is not known.
    """
    name, options = source_options(base)
    assert name.lower() == "json"
    if odd := _not_lines(options):
        raise NotKnown(f"reads files of JSON with the option {odd[0]}")
    own = {key: value for key, value in options.items() if key not in _OF_FILES and key not in _NOT_LINES}
    mode = own.get("mode", "PERMISSIVE").upper()
    if mode == "DROPMALFORMED":
        raise NotKnown("drops malformed records of files of JSON")
    if not needed:
        raise NotKnown("reads no column of its files")
    schema = StructType()
    for attribute in needed:
        schema.add(attribute.name(), type_of(attribute))
    shape = json_shape(catalyst, schema.json(), own, catalyst.setting("spark.sql.session.timeZone"))
    return JsonFiles(shape, tuple(a.name() for a in needed), mode == "FAILFAST")


def json_shape(catalyst: Catalyst, schema: str, options: Mapping[str, str], zone: str) -> JsonShape:
    """What is parsed; raises if that cannot be done natively. The name for bad records may be a session's setting."""
    named = any(key.lower() == _CORRUPT for key in options)
    if not named and (name := catalyst.setting("spark.sql.columnNameOfCorruptRecord")) != "_corrupt_record":
        options = {**options, _CORRUPT: name}
    shape = JsonShape(schema, options, zone)
    if why := refused(shape):
        raise NotKnown(why)
    return shape
