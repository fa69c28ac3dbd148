"""Files of JSON as Spark's own reader takes them, for the native pass: which can be read line by line, and how."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

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


def is_json(base: Node) -> bool:
    """Whether a source is files of JSON, read by Spark's own reader."""
    return kind(base) == "StreamingRelation" and source_options(base)[0].lower() == "json"


def is_lines(base: Node) -> bool:
    """Whether a source is the lines of files."""
    if kind(base) != "StreamingRelation" or source_options(base)[0].lower() != "text":
        return False
    return not any(source_options(base)[1].get(name, "false").lower() != "false" for name in _NOT_LINES)


def json_files(catalyst: Catalyst, base: Node, needed: Sequence[Node]) -> JsonFiles:
    """How the lines of a source are parsed, for the columns that flows need.

    Spark's reader does not look at others either: whether one of them has a value of the wrong type is not known.
    """
    name, options = source_options(base)
    assert name.lower() == "json"
    odd = [key for key in _NOT_LINES if options.get(key, "false").lower() != "false"]
    if odd:
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
