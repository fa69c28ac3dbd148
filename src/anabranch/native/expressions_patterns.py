r"""Regular expressions that mean the same to Java, which Spark asks, and to RE2, which DuckDB asks.

Only a part of the syntax: letters and digits, escaped signs, classes, `\d \w \s` and their opposites, `.`, groups,
alternatives, repetitions, `^` and `$`. What differs between the two is written out (`.` and `\s`) or left to a doubt
about the string (`$` before a line's end, case without ASCII).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from anabranch.native.tree import NotKnown

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_PLAIN = _LETTERS | frozenset(" _-/:,;@#%=!<>~\"'")
_ESCAPED = frozenset(".*+?()[]{}|^$\\/-")
_SPACES = r"\t\n\x0B\f\r "  # Java's \s; RE2's leaves the vertical tab out
_ENDS_OF_LINES = r"\n\r\x{85}\x{2028}\x{2029}"
_CLASSES = {
    "d": r"[0-9]",
    "D": r"[^0-9]",
    "w": r"[A-Za-z0-9_]",
    "W": r"[^A-Za-z0-9_]",
    "s": f"[{_SPACES}]",
    "S": f"[^{_SPACES}]",
}
_MOST = 1000


@dataclass(frozen=True, slots=True)
class Pattern:
    """A regular expression for RE2, and what has to be known of it."""

    sql: str
    groups: int
    empty: bool  # may match nothing at all
    at_end: bool  # has a `$`
    any_case: bool
    repeats_groups: bool


@dataclass(frozen=True, slots=True)
class _Part:
    sql: str
    empty: bool
    size: int


def pattern(java: str) -> Pattern:
    """A pattern of Java's as one of RE2's.

    >>> pattern(r"^a\\.\\s").sql
    '^a\\\\.[\\\\t\\\\n\\\\x0B\\\\f\\\\r ]'
    """
    reader = _Reader(java)
    whole = reader.alternatives()
    if reader.rest or not java:
        raise reader.refused()
    sql = f"(?i){whole.sql}" if reader.any_case else whole.sql
    return Pattern(sql, reader.groups, whole.empty, reader.at_end, reader.any_case, reader.repeats_groups)


#: Of a subject that ends so, Java's `$` matches before the end as well.
LINE_ENDS = rf"[{_ENDS_OF_LINES}]\z"


class _Reader:
    def __init__(self, java: str) -> None:
        self._java = java
        self.any_case = java.startswith("(?i)")
        self.rest = java[4:] if self.any_case else java
        self.groups = 0
        self.at_end = False
        self.repeats_groups = False
        if len(java) > 300:
            raise self.refused()

    def refused(self) -> NotKnown:
        return NotKnown(f"has the regular expression `{self._java}`, which is not known to be equal")

    def _take(self, text: str) -> bool:
        if self.rest.startswith(text):
            self.rest = self.rest[len(text) :]
            return True
        return False

    def alternatives(self) -> _Part:
        parts = [self._sequence()]
        while self._take("|"):
            parts.append(self._sequence())
        return _Part(
            "|".join(part.sql for part in parts), any(p.empty for p in parts), self._bounded(sum(p.size for p in parts))
        )

    def _bounded(self, size: int) -> int:
        if size > _MOST:
            raise self.refused()
        return size

    def _sequence(self) -> _Part:
        parts: list[_Part] = []
        while self.rest and self.rest[0] not in "|)":
            if self._take("^"):
                parts.append(_Part("^", True, 1))
            elif self._take("$"):
                self.at_end = True
                parts.append(_Part(r"\z", True, 1))
            else:
                parts.append(self._repeated())
        if not parts:  # an empty alternative
            raise self.refused()
        size = self._bounded(sum(part.size for part in parts))
        return _Part("".join(part.sql for part in parts), all(part.empty for part in parts), size)

    def _repeated(self) -> _Part:
        group = self.rest.startswith("(")
        part = self._one()
        found = re.match(r"(?:[*+?]|\{(\d{1,2})(?:(,)(\d{1,2})?)?\})\??", self.rest)
        if not found:
            if self.rest[:1] in ("{", "*", "+", "?"):
                raise self.refused()
            return part
        self.rest = self.rest[found.end() :]
        if self.rest[:1] in ("*", "+", "?", "{"):  # possessive, or a repetition repeated
            raise self.refused()
        sign = found[0][0]
        if group and sign != "?":
            self.repeats_groups = True
            if part.empty:  # what a group captures in a round without letters differs
                raise self.refused()
        least = {"*": 0, "+": 1, "?": 0}.get(sign, int(found[1] or 0))
        most = int(found[3] or least) if sign == "{" else 1
        if most < least or (sign == "{" and most == 0):
            raise self.refused()
        return _Part(part.sql + found[0], part.empty or least == 0, self._bounded(part.size * max(most, 1)))

    def _one(self) -> _Part:
        if self._take("("):
            kept = not self._take("?:")
            self.groups += kept
            inner = self.alternatives()
            if not self._take(")"):
                raise self.refused()
            return _Part(f"({'' if kept else '?:'}{inner.sql})", inner.empty, inner.size)
        if self._take("["):
            return _Part(self._class(), False, 1)
        if self._take("."):
            return _Part(f"[^{_ENDS_OF_LINES}]", False, 1)
        if self._take("\\"):
            letter, self.rest = self.rest[:1], self.rest[1:]
            if letter in _CLASSES:
                return _Part(_CLASSES[letter], False, 1)
            if letter in _ESCAPED and letter:
                return _Part(f"\\{letter}", False, 1)
            raise self.refused()
        letter, self.rest = self.rest[0], self.rest[1:]
        if letter not in _PLAIN:
            raise self.refused()
        return _Part(letter, False, 1)

    def _class(self) -> str:
        found = re.match(r"\^?((?:[^\]\[\\&]|\\.)+)\]", self.rest)
        if not found:
            raise self.refused()
        negated = self.rest.startswith("^")
        tokens = re.findall(r"\\.|.", found[1].removeprefix("^") if not negated else found[1], re.DOTALL)
        self.rest = self.rest[found.end() :]
        members = [self._member(token, i in (0, len(tokens) - 1)) for i, token in enumerate(tokens)]
        for i, token in enumerate(tokens[1:-1], 1):
            if token == "-" and not self._is_range(tokens[i - 1], tokens[i + 1]):
                raise self.refused()
        return f"[{'^' if negated else ''}{''.join(members)}]"

    def _is_range(self, low: str, high: str) -> bool:
        same = [s for s in ("az", "AZ", "09") if s[0] <= low <= s[1] and s[0] <= high <= s[1]]
        return low in _LETTERS and high in _LETTERS and low <= high and bool(same)

    def _member(self, token: str, at_edge: bool) -> str:
        if token == "-":
            return r"\-" if at_edge else "-"
        if len(token) == 1:
            if token in _PLAIN or token in ".*+?(){}|$":
                return token if token in _LETTERS or token in " _" else f"\\{token}"
            raise self.refused()
        if token[1] in "dws":
            return {"d": "0-9", "w": "A-Za-z0-9_", "s": _SPACES}[token[1]]
        if token[1] in _ESCAPED:
            return token
        raise self.refused()
