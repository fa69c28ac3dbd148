"""What the entries of the table of expressions are written with: types, literals, doubts, templates."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from decimal import Decimal

from anabranch.native.tree import Compiled, Expr, NotKnown

#: Compiles an expression within another one.
Of = Callable[[Expr], Compiled]

#: How an expression of a kind is compiled.
Entry = Callable[[Expr, Of], Compiled]

INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
FLOATS = ("float", "double")
#: Types whose values Spark and DuckDB order in the same way. Of floats too: NaN is equal to itself and the largest.
ORDERED = (*INTEGERS, *FLOATS, "string", "boolean", "date", "timestamp", "timestamp_ntz")

#: Session zones in which a timestamp and its text have the same fields.
UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")

_PLAIN = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP",  # microseconds in UTC, without a zone: no setting of DuckDB's can then change a result
    "timestamp_ntz": "TIMESTAMP",
}


def sql_type(catalog_string: str) -> str:
    """The type of DuckDB for one of Spark's, which is given as its catalog string.

    >>> sql_type("array<struct<a:int,b:decimal(10,2)>>")
    'STRUCT("a" INTEGER, "b" DECIMAL(10,2))[]'
    """
    found, rest = _type(catalog_string)
    if rest:
        raise NotKnown(f"has the type `{catalog_string}`, which is not known to be equal")
    return found


def known_type(catalog_string: str) -> bool:
    """Whether DuckDB has values of a type just as Spark has them.

    >>> known_type("string collate UNICODE_CI")
    False
    """
    try:
        sql_type(catalog_string)
    except NotKnown:
        return False
    return True


def _type(text: str) -> tuple[str, str]:
    """The type that a text begins with, and what is left of the text."""
    if text.startswith("array<"):
        element, rest = _type(text[len("array<") :])
        if rest.startswith(">"):
            return f"{element}[]", rest[1:]
    elif text.startswith("struct<"):
        return _struct(text)
    elif found := re.match(r"decimal\((\d+),(\d+)\)", text):
        if int(found[2]) <= int(found[1]):
            return found[0].upper(), text[found.end() :]
    else:
        word = re.match(r"\w*", text)
        if word and word[0] in _PLAIN:
            return _PLAIN[word[0]], text[word.end() :]
    raise NotKnown(f"has the type `{text}`, which is not known to be equal")


def _struct(text: str) -> tuple[str, str]:
    fields, rest = [], text[len("struct<") :]
    while found := re.match(r"([^:,<>]+):", rest):
        inner, rest = _type(rest[found.end() :])
        fields.append((found[1], inner))
        if not rest.startswith(","):
            break
        rest = rest[1:]
    # DuckDB looks fields up without regard to case.
    if not rest.startswith(">") or len({name.casefold() for name, _ in fields}) != len(fields) or not fields:
        raise NotKnown(f"has the type `{text}`, which is not known to be equal")
    return "STRUCT(" + ", ".join(f"{identifier(name)} {inner}" for name, inner in fields) + ")", rest[1:]


def without_zone(catalog_string: str, sql: str) -> str:
    """What is read from a column, as a `TIMESTAMP` if it is a timestamp. Of one this is no work."""
    return f"TRY_CAST({sql} AS TIMESTAMP)" if catalog_string == "timestamp" else sql


def decimal_of(catalog_string: str) -> tuple[int, int] | None:
    """The precision and the scale of a decimal type."""
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", catalog_string)
    return (int(found[1]), int(found[2])) if found else None


def identifier(name: str) -> str:
    """A name in SQL."""
    if "\0" in name:
        raise NotKnown("has a name that SQL has no way to write")
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A string in SQL."""
    if "\0" in value or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise NotKnown("has a string that SQL has no way to write")
    return "'" + value.replace("'", "''") + "'"


def literal(expr: Expr, of: Of) -> Compiled:
    """A constant: dates are days, timestamps microseconds since 1970."""
    value, kind = expr.value, expr.type
    if kind == "void":
        return Compiled("NULL")
    sql = sql_type(kind)
    if "value" in expr.detail:
        raise NotKnown(f"has a constant of the type `{kind}`, which is not known to be equal")
    if value is None:
        return Compiled(f"CAST(NULL AS {sql})")
    if isinstance(value, bool):
        return Compiled("TRUE" if value else "FALSE")
    if isinstance(value, str) and kind == "string":
        return Compiled(text(value))
    if isinstance(value, int) and kind in INTEGERS:
        return Compiled(f"CAST({value} AS {sql})")
    if isinstance(value, float) and kind in FLOATS:
        if value == 0 and math.copysign(1, value) < 0:
            raise NotKnown("has the constant -0.0, which Spark's optimizer takes for 0.0")
        shown = repr(value) if math.isfinite(value) else str(value)
        return Compiled(f"CAST('{shown}' AS {sql})")
    if isinstance(value, Decimal):
        return Compiled(f"CAST('{value:f}' AS {sql})")
    if isinstance(value, int) and kind == "date" and -719_162 <= value <= 2_932_896:
        return Compiled(f"(DATE '1970-01-01' + CAST({value} AS INTEGER))")
    if isinstance(value, int) and kind in ("timestamp", "timestamp_ntz") and abs(value) < 6 * 10**16:
        return Compiled(f"make_timestamp(CAST({value} AS BIGINT))")
    raise NotKnown(f"has a constant of the type `{kind}`, which is not known to be equal")


def constant_text(expr: Expr, what: str) -> str:
    """The string that an expression always is; `what` names it for the error."""
    if expr.kind in ("Lower", "Upper") and expr.children:  # what becomes of the pattern of ILIKE
        inner = constant_text(expr.children[0], what)
        if inner.isascii():
            return inner.lower() if expr.kind == "Lower" else inner.upper()
    if expr.kind != "Literal" or expr.type != "string" or not isinstance(expr.value, str):
        raise NotKnown(f"has {what} that is not a constant")
    return expr.value


def either(*doubts: str | None) -> str | None:
    """Doubt where one of these doubts."""
    some = list(dict.fromkeys(doubt for doubt in doubts if doubt))
    return f"({' OR '.join(some)})" if len(some) > 1 else some[0] if some else None


def unless(condition: str) -> str:
    """Doubt where a condition is false; null stands for null arguments, of which the result is null in both."""
    return f"(NOT COALESCE({condition}, TRUE))"


def when(condition: str) -> str:
    """Doubt where a condition is true."""
    return f"COALESCE({condition}, FALSE)"


def guarded(condition: str, doubt: str | None) -> str | None:
    """A doubt that only counts where a condition, which is never null, is true."""
    return f"({condition} AND {doubt})" if doubt else None


def require(expr: Expr, types: Collection[str], *, same: bool = False) -> None:
    """Refuse arguments of other types, or of different ones where they have to be the same."""
    for child in expr.children:
        if child.type not in types and not (decimal_of(child.type) and "decimal" in types):
            raise unknown(expr)
    if same and len({child.type for child in expr.children}) > 1:
        raise unknown(expr)


def unknown(expr: Expr) -> NotKnown:
    """What is raised of a call that is in no table, or not with these arguments."""
    of = ", ".join(child.type if len(child.type) < 40 else child.type.partition("<")[0] for child in expr.children)
    return NotKnown(f"calls `{expr.kind}` of ({of}), which is not known to be equal")


def plain(sql: str, types: Collection[str], *, doubt: str = "", same: bool = False) -> Entry:
    """An entry made of templates: {0} is the SQL of the first argument, and so on; {type} that of the result."""

    def entry(expr: Expr, of: Of) -> Compiled:
        require(expr, types, same=same)
        given = [of(child) for child in expr.children]
        words = [one.sql for one in given]
        own = doubt.format(*words) if doubt else None
        value = sql.format(*words, type=sql_type(expr.type))
        return Compiled(value, either(*(one.doubt for one in given), own))

    return entry


def walk(expr: Expr) -> Iterator[Expr]:
    """An expression and all within it."""
    yield expr
    for child in expr.children:
        yield from walk(child)
