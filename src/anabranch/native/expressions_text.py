"""Strings. Both have them in UTF-8, count code points and compare bytes; what depends on Unicode's tables differs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anabranch.native.expressions_patterns import LINE_ENDS, Pattern, pattern
from anabranch.native.expressions_sql import (
    Entry,
    Of,
    constant_text,
    either,
    plain,
    require,
    text,
    unknown,
    unless,
    when,
)
from anabranch.native.tree import Compiled, Expr, NotKnown

_STRING = ("string",)

#: As many bytes as code points.
_ASCII = unless("strlen({0}) = length({0})")

#: Letters beyond which Java, which matches repeated groups by recursion, may run out of stack.
_LONG = 1000


def _trim(function: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        require(expr, _STRING)
        letters = constant_text(expr.children[1], "letters to trim") if len(expr.children) > 1 else " "
        if not letters or not letters.isascii():
            raise unknown(expr)
        child = of(expr.children[0])
        # Without its second argument, DuckDB's trims every space of Unicode's.
        return Compiled(f"{function}({child.sql}, {text(letters)})", child.doubt)

    return entry


def _substring(expr: Expr, of: Of) -> Compiled:
    subject, position, length = expr.children
    if subject.type != "string" or position.type != "int" or length.type != "int":
        raise unknown(expr)
    given, at, taken = (of(child) for child in expr.children)
    # The first letter is 1 and 0; -1 is the last one. What begins before the string, and lengths below 0, are left.
    outside = f"({at.sql} < 0 AND length({given.sql}) < -CAST({at.sql} AS BIGINT))"
    fixed = position.kind == "Literal" and isinstance(position.value, int) and position.value >= 0
    doubt = either(given.doubt, at.doubt, taken.doubt, None if fixed else when(outside), when(f"{taken.sql} < 0"))
    start = f"(CASE WHEN {at.sql} = 0 THEN 1 ELSE {at.sql} END)"
    return Compiled(f"substring({given.sql}, {start}, {taken.sql})", doubt)


def _concat(expr: Expr, of: Of) -> Compiled:
    require(expr, _STRING)
    given = [of(child) for child in expr.children]
    if not given:
        raise unknown(expr)
    # The function `concat` would leave nulls out.
    return Compiled(f"({' || '.join(one.sql for one in given)})", either(*(one.doubt for one in given)))


def _concat_ws(expr: Expr, of: Of) -> Compiled:
    require(expr, _STRING)
    given = [of(child) for child in expr.children]
    # Of a null separator Spark's generated code may take that of a row before.
    if len(given) < 2 or expr.children[0].kind != "Literal" or expr.children[0].value is None:
        raise unknown(expr)
    return Compiled(f"concat_ws({', '.join(one.sql for one in given)})", either(*(one.doubt for one in given)))


def _like(expr: Expr, of: Of) -> Compiled:
    subject, right = expr.children
    if subject.type != "string":
        raise unknown(expr)
    escape, shown = expr.detail.get("escape", "\\"), constant_text(right, "a pattern")
    signs = re.findall(f"{re.escape(escape)}.|.", shown, re.DOTALL) if len(escape) == 1 else []
    letters = ""
    for sign in signs:
        if sign in ("%", "_"):
            letters += sign
        elif sign == escape or (len(sign) == 2 and sign[1] not in ("%", "_", escape)):
            raise NotKnown(f"has the pattern `{shown}`, of which Spark makes an error")
        else:
            letters += f"^{sign[-1]}" if sign[-1] in "%_^" else sign[-1]
    if shown and not signs:
        raise unknown(expr)
    child = of(subject)
    ending = " ESCAPE '^'" if "^" in letters else ""
    return Compiled(f"({child.sql} LIKE {text(letters)}{ending})", child.doubt)


def _doubt_of_match(found: Pattern, sql: str) -> str | None:
    return either(
        when(f"regexp_matches({sql}, '{LINE_ENDS}')") if found.at_end else None,
        # Without ASCII, RE2 takes the sign of Kelvin for a K.
        _ASCII.format(sql) if found.any_case else None,
        when(f"strlen({sql}) > {_LONG}") if found.repeats_groups else None,
    )


def _rlike(expr: Expr, of: Of) -> Compiled:
    subject, right = expr.children
    if subject.type != "string":
        raise unknown(expr)
    found = pattern(constant_text(right, "a regular expression"))
    child = of(subject)
    sql = f"regexp_matches({child.sql}, {text(found.sql)})"
    return Compiled(sql, either(child.doubt, _doubt_of_match(found, child.sql)))


def _regexp_replace(expr: Expr, of: Of) -> Compiled:
    subject, right, replacement, position = expr.children
    new = constant_text(replacement, "a replacement")
    found = pattern(constant_text(right, "a regular expression"))
    # Of a pattern that may match nothing, where it does differs; a dollar or a backslash in what replaces is a group.
    if subject.type != "string" or found.empty or set(new) & set("$\\") or position.value != 1:
        raise unknown(expr)
    child = of(subject)
    sql = f"regexp_replace({child.sql}, {text(found.sql)}, {text(new)}, 'g')"
    return Compiled(sql, either(child.doubt, _doubt_of_match(found, child.sql)))


def _regexp_extract(expr: Expr, of: Of) -> Compiled:
    subject, right, group = expr.children
    found = pattern(constant_text(right, "a regular expression"))
    number = group.value
    if subject.type != "string" or not isinstance(number, int) or not 0 <= number <= found.groups:
        raise unknown(expr)
    if found.empty or (number and found.repeats_groups):
        raise unknown(expr)
    child = of(subject)
    sql = f"regexp_extract({child.sql}, {text(found.sql)}, {number})"
    return Compiled(sql, either(child.doubt, _doubt_of_match(found, child.sql)))


def _split(expr: Expr, of: Of) -> Compiled:
    subject, right, limit = expr.children
    shown = constant_text(right, "a regular expression")
    found = re.fullmatch(r"(?:[A-Za-z0-9 _\-/:,;@#%=!<>~&]+|\\([.|*+?^$()\[\]{}\\/\-])|\[([.|*+?$(){},;:/ ])\])", shown)
    if subject.type != "string" or not found or limit.kind != "Literal" or limit.value != -1:
        raise NotKnown(f"splits by the regular expression `{shown}`, which is not known to be equal")
    child = of(subject)
    return Compiled(f"string_split({child.sql}, {text(found[1] or found[2] or shown)})", child.doubt)


def _digest(function: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        binary = expr.children[0]
        if binary.kind != "Cast" or binary.children[0].type != "string" or binary.type != "binary":
            raise unknown(expr)
        if expr.kind == "Sha2" and (expr.children[1].kind != "Literal" or expr.children[1].value not in (0, 256)):
            raise unknown(expr)
        child = of(binary.children[0])
        return Compiled(f"{function}({child.sql})", child.doubt)

    return entry


def _padded(function: str) -> Entry:
    def entry(expr: Expr, of: Of) -> Compiled:
        subject, length, letters = expr.children
        number, pad = length.value, constant_text(letters, "letters to pad with")
        if subject.type != "string" or length.kind != "Literal" or not isinstance(number, int) or not pad.isascii():
            raise unknown(expr)
        if not 0 < number <= _LONG or not pad:
            raise unknown(expr)
        child = of(subject)
        return Compiled(f"{function}({child.sql}, {number}, {text(pad)})", child.doubt)

    return entry


def _repeat(expr: Expr, of: Of) -> Compiled:
    subject, times = expr.children
    if subject.type != "string" or times.kind != "Literal" or not isinstance(times.value, int):
        raise unknown(expr)
    if not 0 <= times.value <= _LONG:
        raise unknown(expr)
    child = of(subject)
    return Compiled(f"repeat({child.sql}, {times.value})", child.doubt)


def _locate(expr: Expr, of: Of) -> Compiled:
    require(expr, ("string", "int"))
    if expr.children[2].kind != "Literal" or expr.children[2].value != 1:
        raise unknown(expr)
    part, subject = of(expr.children[0]), of(expr.children[1])
    return Compiled(f"CAST(instr({subject.sql}, {part.sql}) AS INTEGER)", either(part.doubt, subject.doubt))


def _substring_index(expr: Expr, of: Of) -> Compiled:
    """What stands before, or behind, so many of a sign. Of a longer text, matches of Spark's may overlap."""
    subject, sign, count = expr.children
    number, by = count.value, constant_text(sign, "a sign")
    if subject.type != "string" or count.kind != "Literal" or not isinstance(number, int) or not by.isascii():
        raise unknown(expr)
    if len(by) != 1 or not 0 < abs(number) <= _LONG:
        raise unknown(expr)
    child = of(subject)
    parts = f"string_split({child.sql}, {text(by)})"
    chosen = f"list_slice({parts}, 1, {number})" if number > 0 else f"list_slice({parts}, {number}, -1)"
    return Compiled(f"array_to_string({chosen}, {text(by)})", child.doubt)


def _translate(expr: Expr, of: Of) -> Compiled:
    require(expr, _STRING)
    old, new = (constant_text(child, "letters to translate") for child in expr.children[1:])
    if not old.isascii() or not new.isascii() or len(set(old)) != len(old) or len(new) > len(old) or not old:
        raise unknown(expr)
    child = of(expr.children[0])
    return Compiled(f"translate({child.sql}, {text(old)}, {text(new)})", child.doubt)


TEXT: Mapping[str, Entry] = {
    "Upper": plain("upper({0})", _STRING, doubt=_ASCII),
    "Lower": plain("lower({0})", _STRING, doubt=_ASCII),
    "StringTrim": _trim("trim"),
    "StringTrimLeft": _trim("ltrim"),
    "StringTrimRight": _trim("rtrim"),
    "Length": plain("CAST(length({0}) AS INTEGER)", _STRING),
    "OctetLength": plain("CAST(strlen({0}) AS INTEGER)", _STRING),
    "Substring": _substring,
    "Concat": _concat,
    "ConcatWs": _concat_ws,
    "StartsWith": plain("starts_with({0}, {1})", _STRING),
    "EndsWith": plain("suffix({0}, {1})", _STRING),
    "Contains": plain("contains({0}, {1})", _STRING),
    "StringReplace": plain("replace({0}, {1}, {2})", _STRING),
    "StringInstr": plain("CAST(instr({0}, {1}) AS INTEGER)", _STRING),
    "Like": _like,
    "RLike": _rlike,
    "RegExpReplace": _regexp_replace,
    "RegExpExtract": _regexp_extract,
    "StringSplit": _split,
    "StringLPad": _padded("lpad"),
    "StringRPad": _padded("rpad"),
    "StringRepeat": _repeat,
    "StringLocate": _locate,
    "SubstringIndex": _substring_index,
    "StringTranslate": _translate,
    # What belongs to one letter for DuckDB may be several for Spark.
    "Reverse": plain("reverse({0})", _STRING, doubt=_ASCII),
    "Sha1": _digest("sha1"),
    "Sha2": _digest("sha256"),
    "Md5": _digest("md5"),
}
