"""SQL text as words that know where they stand, and as statements: enough to find clauses, no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.load.sql_names import sql_names

_WORD = re.compile(
    r"""
      (?P<space>\s+ | --[^\n]*)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>\w+)
    | (?P<sign>=> | .)
    """,
    re.VERBOSE | re.DOTALL,
)
_CELL = "-- COMMAND ---"  # what stands between the cells of a notebook, whose statements need no semicolon
_EDGE = re.compile(r"/\*|\*/")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


class SqlFault(Exception):
    """Something in a statement that cannot be taken; `at` counts characters from the start of the file."""

    def __init__(self, at: int, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.at, self.code, self.message, self.hint = at, code, message, hint


@dataclass(frozen=True, slots=True)
class Word:
    """A word, a quoted name, a text or a sign."""

    text: str
    kind: str
    start: int
    end: int

    @property
    def key(self) -> str:
        """The keyword or sign in small letters; nothing for what cannot be one."""
        return self.text.lower() if self.kind in ("word", "sign") else ""


def words_of(text: str) -> list[Word]:
    """The words of a file; SqlFault if a text, a name or a comment is not closed."""
    words, at = [], 0
    while at < len(text):
        match = _WORD.match(text, at)
        assert match is not None  # a sign is any character
        start, at, kind = at, match.end(), match.lastgroup or ""
        if kind == "comment":
            at = _end_of_comment(text, start, at)
        elif kind == "sign" and match.group() in "'\"`":
            name = "name" if match.group() == "`" else "text"
            raise SqlFault(start, "SQL_SYNTAX", f"the {name} that begins here is not closed", f"add {match.group()}")
        elif kind == "space" and match.group().startswith(_CELL):
            words.append(Word(";", "sign", start, at))
        elif kind != "space":
            words.append(Word(match.group(), "text" if kind == "raw" else kind, start, at))
    return words


def _end_of_comment(text: str, start: int, at: int) -> int:
    """Comments of this kind nest in Spark."""
    depth = 1
    while depth:
        edge = _EDGE.search(text, at)
        if edge is None:
            raise SqlFault(start, "SQL_SYNTAX", "the comment that begins here is not closed", "add */")
        at = edge.end()
        depth += 1 if edge.group() == "/*" else -1
    return at


def statements_of(words: list[Word]) -> Iterator[list[Word]]:
    """The words between semicolons, without empty statements."""
    one: list[Word] = []
    for word in words:
        if word.key != ";":
            one.append(word)
        elif one:
            yield one
            one = []
    if one:
        yield one


def unquoted(word: Word) -> str:
    r"""The value of a text, or a name without its backquotes.

    >>> [unquoted(word) for word in words_of(r"'it''s' 'a\tb' `x``y` plain")]
    ["it's", 'a\tb', 'x`y', 'plain']
    """
    text = word.text
    if word.kind == "quoted":
        return text[1:-1].replace("``", "`")
    if word.kind != "text":
        return text
    if text[0] in "rR":
        return text[2:-1]
    inside = text[1:-1].replace(text[0] * 2, text[0])
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inside, flags=re.DOTALL)


def without_live_names(query: str) -> str:
    """The query with `LIVE.` taken off the tables it reads; all else, also places in the text, stays as it is.

    >>> without_live_names("SELECT live.x FROM STREAM(LIVE.orders) JOIN live.items AS live")
    'SELECT live.x FROM STREAM(orders) JOIN items AS live'
    """
    if "live" not in query.lower():
        return query
    read = {name.split(".", 1)[1].lower() for name in sql_names(query).names if name.lower().startswith("live.")}
    words = words_of(query)
    found = [
        (word.start, after.start)
        for word, dot, after in zip(words, words[1:], words[2:], strict=False)
        if unquoted(word).lower() == "live" and dot.key == "." and unquoted(after).lower() in read
    ]
    for start, end in reversed(found):
        query = query[:start] + query[end:]
    return query
