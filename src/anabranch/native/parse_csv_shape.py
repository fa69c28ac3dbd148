"""Which files of CSV can be read here: schemas and options, and what they say of a line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.native.parse_schema import Node, Refused, corrupt_column, is_zone, options_of, read_schema

#: What may part the values of a line; Spark has more, and longer ones.
_SEPARATORS = {",": ",", ";": ";", "|": "|", "\t": "\t", "\\t": "\t", ":": ":", "^": "^", "~": "~", "#": "#"}

#: What else may have a meaning: it must not be a part of a number, a time or a word.
_SIGNS = set("\"'`\\/#!%&*=?@^|~$;")

_KINDS = {"boolean", "byte", "short", "integer", "long", "float", "double", "string", "date"}
_KINDS |= {"timestamp", "timestamp_ntz"}

#: Formats matter only to columns of the type.
_FORMATS = {"dateformat": "date", "timestampformat": "timestamp", "timestampntzformat": "timestamp_ntz"}

#: Options of which only lines that are doubted, inferring a schema or writing take notice; and those that must be off.
_HARMLESS = {"header", "columnpruning", "preferdate", "enabledatetimeparsingfallback", "inferschema"}
_HARMLESS |= {"escapequotes", "quoteall"}
_OFF = {"ignoreleadingwhitespace", "ignoretrailingwhitespace"}

#: Options whose values are looked at, and those that have a few: lines with quotes that are not escaped, and malformed
#: records, are doubted.
_READ = {"sep", "delimiter", "quote", "escape", "comment", "nullvalue", "emptyvalue", "columnnameofcorruptrecord"}
_VALUES = {
    "mode": ("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
    "unescapedquotehandling": (
        *("STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER"),
        *("SKIP_VALUE", "RAISE_ERROR"),
    ),
}

#: Spark's reader refuses lines of more columns.
_WIDEST = 20_000

#: A line of names is no longer than this.
_LONGEST_HEADING = 20_000

#: A name that is read as it is written.
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_ .-]*[A-Za-z0-9_])?")


@dataclass(frozen=True, slots=True)
class CsvShape:
    """Files of CSV as Spark's reader is asked for them.

    `schema` is Spark's JSON of all columns, `needed` the names of those that are read, `zone` the time zone of the
    session. If the setting `spark.sql.columnNameOfCorruptRecord` is not `_corrupt_record`, it has to be among the
    options; `spark.sql.legacy.timeParserPolicy` must not be LEGACY.
    """

    schema: str
    needed: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    zone: str = "UTC"


@dataclass(frozen=True, slots=True)
class CsvForm:
    """What a line consists of. No `quote` or `escape`: there is none.

    `hollow`: two quotes with nothing between are null, as nothing at all is. Of the `width` columns of a line those at
    `places` are read, as the children of `record`; `corrupt` is the one of these that is not in a line, if any.
    """

    separator: str
    quote: str
    escape: str
    comment: str
    null: str
    hollow: bool
    width: int
    places: tuple[int, ...]
    record: Node
    corrupt: str


def csv_refused(shape: CsvShape) -> str | None:
    """Why files of this shape cannot be read natively; None if they can.

    >>> csv_refused(CsvShape('{"type":"struct","fields":[]}', (), {"multiLine": "true"}))
    'option multiline of files of CSV is not known'
    """
    try:
        read_form(shape)
        heading_of(shape)
    except Refused as why:
        return str(why)
    return None


def read_form(shape: CsvShape) -> CsvForm:
    """What a line of the files consists of; `Refused` if something about it is not known here."""
    options = options_of(shape.options)
    separator = _SEPARATORS.get(options.get("sep", options.get("delimiter", ",")))
    if separator is None:
        raise Refused("values of CSV are parted by a sign that is not known")
    signs = {name: options.get(name, usual) for name, usual in (("quote", '"'), ("escape", "\\"), ("comment", ""))}
    for name, sign in signs.items():
        if sign and (sign not in _SIGNS or sign == separator):
            raise Refused(f"option {name} of files of CSV is not known")
    if signs["quote"] and not signs["escape"]:
        raise Refused("quotes of CSV cannot be escaped")  # what comes before a value then escapes its first quote
    if signs["comment"] and signs["comment"] in (signs["quote"], signs["escape"]):
        raise Refused("option comment of files of CSV is not known")
    corrupt = corrupt_column(options)
    declared = json.loads(shape.schema)["fields"]
    kinds = {f["type"] for f in declared if f["name"] in shape.needed and isinstance(f["type"], str)}
    for name, value in options.items():
        if not _is_known(name, value, options, kinds):
            raise Refused(f"option {name} of files of CSV is not known")
    in_line = [f["name"] for f in declared if f["name"] != corrupt]
    if len(in_line) > _WIDEST or len({name.lower() for name in in_line}) < len(in_line):
        raise Refused("there are too many columns, or two of one name")
    wanted = {"type": "struct", "fields": [f for f in declared if f["name"] in shape.needed]}
    record = read_schema(json.dumps(wanted), {"columnNameOfCorruptRecord": corrupt})
    for child in record.children:
        if child.kind not in _KINDS and not child.kind.startswith("decimal("):
            raise Refused(f"type {child.kind} of {child.name} is not read natively")
    places = tuple(in_line.index(child.name) for child in record.children if child.name != corrupt)
    null = options.get("nullvalue", "")
    hollow = null == "" and options.get("emptyvalue", "") == ""
    return CsvForm(
        separator, **signs, null=null, hollow=hollow, width=len(in_line), places=places, record=record, corrupt=corrupt
    )


def _is_known(name: str, value: str, options: Mapping[str, str], kinds: set[str]) -> bool:
    """Whether an option is none, or has none but a known effect on lines that are not doubted."""
    if name in _HARMLESS:
        return value.lower() in ("true", "false")
    if name in _OFF:
        return value.lower() == "false"
    if name == "enforceschema":
        return value.lower() in ("true", "false")  # if not, names are compared: see `heading_of`
    if name in _FORMATS:
        return _FORMATS[name] not in kinds
    if name == "timezone":
        return is_zone(value)
    return name in _READ or value.upper() in _VALUES.get(name, ())


def has_heading(options: Mapping[str, str]) -> bool:
    """Whether the first line of a file is no record but names."""
    return options_of(options).get("header", "false").lower() == "true"


@dataclass(frozen=True, slots=True)
class Heading:
    """The line of names that a file begins with. Where Spark compares them, it is one of `lines`; None: it does not.

    Before it Spark passes over lines that are blank or begin with `comment`, but only in its own part of the file.
    """

    comment: str = ""
    lines: tuple[bytes, ...] | None = None

    def is_first(self, line: bytes) -> bool:
        """Whether the first line of a file is certain to be the line of names.

        >>> [Heading().is_first(line) for line in (b"id,name", b" ")]
        [True, False]
        >>> Heading("#").is_first(b"# from the shop"), Heading("", (b"id,name",)).is_first(b"name,id")
        (False, False)
        """
        if self.lines is not None:
            return line in self.lines
        blank = not any(letter > ord(" ") for letter in line[:_LONGEST_HEADING])
        commented = bool(self.comment) and line.startswith(self.comment.encode())
        return not blank and not commented and len(line) < _LONGEST_HEADING


def heading_of(shape: CsvShape) -> Heading | None:
    """What files of this shape begin with; None if that is a record. `Refused` if it is not known."""
    options = options_of(shape.options)
    if not has_heading(options):
        return None
    if options.get("unescapedquotehandling", "").upper() == "RAISE_ERROR":
        raise Refused("quotes that are not escaped stop it, in the line of names too")
    comment = options.get("comment", "")
    if options.get("enforceschema", "true").lower() == "true":
        return Heading(comment)
    form = read_form(shape)
    names = [f["name"] for f in json.loads(shape.schema)["fields"] if f["name"] != form.corrupt]
    if not all(_NAME.fullmatch(name) and name != form.null for name in names):
        raise Refused("names are compared, with columns that have unusual ones")
    plain, quoted = (form.separator.join(f"{sign}{name}{sign}" for name in names) for sign in ("", form.quote))
    return Heading(comment, (plain.encode(), quoted.encode()))
