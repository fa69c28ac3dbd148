"""The tables a SQL query reads, found by its words: no parser, no Spark, and no exception whatever the text is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

#: Stands in a text for a part that is not known, such as a computed piece of an f-string.
HOLE = "\ufffc"

_TOKEN = re.compile(
    r"""
      (?P<space>\s+ | --[^\n]*)
    | (?P<comment>/\*)
    | (?P<raw>[rR](?:'[^']*'|"[^"]*"))
    | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>[\w\ufffc]+)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

_END_OF_FROM = frozenset(
    [
        *("where", "group", "order", "having", "limit", "offset", "union", "intersect", "except", "minus", "select"),
        *("window", "cluster", "distribute", "sort", "qualify", "pivot", "unpivot", "values", "set", "insert", "|>"),
        "lateral",
    ]
)
_AFTER_BARE_STREAM = _END_OF_FROM.union(
    ["as", "join", "left", "right", "inner", "full", "cross", "semi", "anti", "natural", "on", "using", "tablesample"]
)
#: Words that can follow a table and are not what it is called in the query.
NOT_AN_ALIAS = _AFTER_BARE_STREAM.union(["version", "timestamp", "for"])
_NO_TABLE = frozenset(["select", "values", "with", "from", "map", "reduce", "lateral", "where", "as", "on"])
_FUNCTIONS_WITH_FROM = frozenset(["extract", "trim", "substring", "substr", "overlay", "position"])
_BEFORE_TABLE_QUERY = frozenset(["(", ";", "union", "all", "distinct", "except", "intersect", "minus", "as"])
_FILE_FORMATS = frozenset(["delta", "parquet", "json", "csv", "orc", "text", "avro", "binaryfile", "iceberg"])


@dataclass(frozen=True, slots=True)
class SqlNames:
    """`names` as written, each once, without those of the query's own CTEs; `known` is False if some are computed."""

    names: tuple[str, ...]
    known: bool


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a name, a text or a sign, and where it stands."""

    text: str
    kind: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The keyword or sign in small letters; nothing for what cannot be one."""
        return self.text.lower() if self.kind in ("word", "sign") else ""


@dataclass(frozen=True, slots=True)
class Place:
    """A table's name as the tokens from `first` up to `end`."""

    name: str
    first: int
    end: int


@dataclass(slots=True)
class _Level:
    """What holds between two parentheses."""

    opened_by: str = ""  # the word before the opening one
    ctes: set[str] = field(default_factory=set)
    defines: str = ""  # the CTE whose body this is
    in_from: bool = False
    expects_relation: bool = False


def sql_names(text: str) -> SqlNames:
    """The tables that the query `text` reads.

    >>> sql_names("WITH late AS (SELECT * FROM orders) SELECT * FROM late JOIN STREAM(db.`items`) USING (id)")
    SqlNames(names=('orders', 'db.items'), known=True)
    >>> sql_names("SELECT extract(YEAR FROM at), 'FROM x' FROM a, b -- FROM c")
    SqlNames(names=('a', 'b'), known=True)
    """
    return _Reader(_tokens(text)).read()


def table_places(text: str) -> tuple[list[Token], list[Place]]:
    """The tokens of a query, and the tables among them, also those that are read again.

    >>> table_places("SELECT a.x FROM a JOIN db.`b`")[1]
    [Place(name='a', first=5, end=6), Place(name='db.b', first=7, end=10)]
    """
    reader = _Reader(_tokens(text))
    reader.read()
    return reader.tokens, reader.places


def _tokens(text: str) -> list[Token]:
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:  # cannot be: a sign is any character
            break
        start, at, kind = at, match.end(), match.lastgroup or ""
        if kind == "comment":
            at = _end_of_comment(text, at)
        elif kind == "sign" and match.group() == "|" and text[at : at + 1] == ">":
            at += 1
            tokens.append(Token("|>", "sign", start, at))
        elif kind != "space":
            tokens.append(Token(match.group(), kind, start, at))
    return tokens


def _end_of_comment(text: str, at: int) -> int:
    """Comments of this kind nest in Spark."""
    depth = 1
    while depth:
        edge = _COMMENT_EDGE.search(text, at)
        if edge is None:
            return len(text)
        at = edge.end()
        depth += 1 if edge.group() == "/*" else -1
    return at


class _Reader:
    """Goes through the words once, keeping what each open parenthesis means."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.levels = [_Level()]
        self.names: dict[str, None] = {}
        self.places: list[Place] = []
        self.known = not any(HOLE in token.text for token in tokens if token.kind not in ("text", "raw"))

    def read(self) -> SqlNames:
        while self.at < len(self.tokens):
            if self.levels[-1].expects_relation:
                self._relation()
            else:
                self._step()
        return SqlNames(tuple(self.names), self.known)

    def _word(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].word if 0 <= index < len(self.tokens) else ""

    def _step(self) -> None:
        word, level = self._word(), self.levels[-1]
        if word == "(":
            self._open()
        elif word == ")":
            self._close()
        elif word == ";":
            self.levels = [_Level()]
        elif word == "with":
            self._cte(1)
            return
        elif word == "join" or (word == "from" and self._is_clause(level)):
            level.in_from = level.expects_relation = True
        elif word == "," and level.in_from:
            level.expects_relation = True
        elif word == "," and level.ctes:
            self._cte(1)
            return
        elif word == "table" and self._starts_query():
            level.expects_relation = True
        elif word in _END_OF_FROM:
            level.in_from = False
        self.at += 1

    def _is_clause(self, level: _Level) -> bool:
        """Whether FROM is neither that of `extract(YEAR FROM at)` nor that of `IS DISTINCT FROM`."""
        return level.opened_by not in _FUNCTIONS_WITH_FROM and self._word(-1) != "distinct"

    def _starts_query(self) -> bool:
        return self.at == 0 or self._word(-1) in _BEFORE_TABLE_QUERY

    def _open(self, relation: bool = False) -> None:
        self.levels.append(_Level(opened_by=self._word(-1), in_from=relation, expects_relation=relation))

    def _close(self) -> None:
        if len(self.levels) > 1:
            closed = self.levels.pop()
            if closed.defines:
                self.levels[-1].ctes.add(closed.defines)

    def _cte(self, skip: int) -> None:
        """`name [(columns)] AS [NOT] [MATERIALIZED] (`: opens the body; what it defines is known once it is closed."""
        at = skip
        recursive = self._word(at) == "recursive" and self._word(at + 1) not in ("as", "(")
        at += recursive
        index = self.at + at
        if index >= len(self.tokens) or self.tokens[index].kind not in ("word", "quoted"):
            self.at += skip
            return
        name = _unquoted(self.tokens[index].text).lower()
        at += 1
        if self._word(at) == "(":
            while self._word(at) != ")" and self.at + at < len(self.tokens):
                at += 1
            at += 1
        if self._word(at) != "as" or self._word(at + 1) != "(":
            self.at += skip
            return
        self.at += at + 2
        if recursive:
            self.levels[-1].ctes.add(name)
        self.levels.append(_Level(opened_by="as", defines=name))

    def _relation(self) -> None:
        """What stands after FROM, JOIN or a comma between tables."""
        level, word = self.levels[-1], self._word()
        level.expects_relation = False
        if word == "(":
            self._open(relation=True)
            self.at += 1
        elif word == "lateral":
            level.expects_relation = True
            self.at += 1
        elif word == "stream" and self._word(1) == "(":
            self.at += 1
            self._open(relation=True)
            self.at += 1
        elif self._streams_a_name(word):
            level.expects_relation = True
            self.at += 1
        elif word == "identifier" and self._word(1) == "(":
            self._identifier()
        elif word not in _NO_TABLE and self.tokens[self.at].kind in ("word", "quoted"):
            self._table()

    def _streams_a_name(self, word: str) -> bool:
        """`STREAM orders`, and not a table called stream."""
        after = self.tokens[self.at + 1 : self.at + 2]
        if word != "stream" or not after:
            return False
        return after[0].kind == "quoted" or (after[0].kind == "word" and after[0].word not in _AFTER_BARE_STREAM)

    def _identifier(self) -> None:
        """`IDENTIFIER('name')`; anything but one literal is computed."""
        inside = self.tokens[self.at + 2 : self.at + 4]
        if len(inside) == 2 and inside[0].kind == "text" and inside[1].text == ")" and HOLE not in inside[0].text:
            self._found(inside[0].text[1:-1], self.at, self.at + 4)
            self.at += 4
        else:
            self.known = False
            self.at += 1

    def _table(self) -> None:
        first, parts = self.at, [self.tokens[self.at].text]
        self.at += 1
        while (
            self._word() == "."
            and self.at + 1 < len(self.tokens)
            and self.tokens[self.at + 1].kind in ("word", "quoted")
        ):
            parts.append(self.tokens[self.at + 1].text)
            self.at += 2
        name = ".".join(part if part.startswith("`") and "." in part else _unquoted(part) for part in parts)
        is_function = self._word() == "("
        is_file = len(parts) == 2 and parts[0].lower() in _FILE_FORMATS and ("/" in parts[1] or ":" in parts[1])
        is_cte = len(parts) == 1 and any(name.lower() in level.ctes for level in self.levels)
        if not (is_function or is_file or is_cte or not name or HOLE in name):
            self._found(name, first, self.at)

    def _found(self, name: str, first: int, end: int) -> None:
        self.names[name] = None
        self.places.append(Place(name, first, end))


def _unquoted(part: str) -> str:
    return part[1:-1].replace("``", "`") if len(part) > 1 and part[0] == part[-1] == "`" else part
