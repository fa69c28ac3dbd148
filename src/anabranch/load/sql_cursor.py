"""Go through the words of one statement and say what was expected where."""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.errors import did_you_mean
from anabranch.load.sql_words import SqlFault, Word, unquoted


class Cursor:
    """A place among the words of a statement; `text` is the whole file."""

    def __init__(self, text: str, words: list[Word], start: int = 0, end: int | None = None) -> None:
        self.text, self.words = text, words
        self.at, self.end = start, len(words) if end is None else end

    @property
    def done(self) -> bool:
        return self.at >= self.end

    @property
    def place(self) -> int:
        """Where the next word stands, or where the last one ended."""
        return self.words[self.at].start if not self.done else self.words[self.end - 1].end

    def key(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.words[index].key if index < self.end else ""

    def sees(self, *keys: str) -> bool:
        return all(self.key(i) == key for i, key in enumerate(keys))

    def takes(self, *keys: str) -> bool:
        """Go past the given words if they are next."""
        if not self.sees(*keys):
            return False
        self.at += len(keys)
        return True

    def needs(self, *keys: str, hint: str) -> None:
        """Go past the given words, which must be next."""
        if not self.takes(*keys):
            raise self.fault(f"expected {' '.join(keys).upper()}", hint)

    def fault(self, message: str, hint: str, code: str = "SQL_SYNTAX") -> SqlFault:
        found = f'"{self.words[self.at].text}"' if not self.done else "the end of the statement"
        return SqlFault(self.place, code, f"{message}, found {found}", hint)

    def name(self, what: str) -> str:
        """A name of one or more parts."""
        parts = [self._part(what)]
        while self.takes("."):
            parts.append(self._part(what))
        return ".".join(parts)

    def _part(self, what: str) -> str:
        if self.done or self.words[self.at].kind not in ("word", "quoted"):
            raise self.fault(f"expected the name of {what}", f"write the name of {what} here")
        self.at += 1
        return unquoted(self.words[self.at - 1])

    def string(self, what: str) -> str:
        if self.done or self.words[self.at].kind != "text":
            raise self.fault(f"expected {what} in quotes", "write it as '...'")
        self.at += 1
        return unquoted(self.words[self.at - 1])

    def inside(self, what: str) -> Cursor:
        """What stands in the parentheses that are next; this cursor goes past them."""
        opened = self.place
        self.needs("(", hint=f"write {what} in parentheses")
        start, depth = self.at, 1
        while not self.done:
            depth += {"(": 1, ")": -1}.get(self.key(), 0)
            self.at += 1
            if depth == 0:
                return Cursor(self.text, self.words, start, self.at - 1)
        raise SqlFault(opened, "SQL_SYNTAX", "the parenthesis that opens here is not closed", "add )")

    def items(self) -> list[Cursor]:
        """The parts between commas, not counting commas in parentheses or in the brackets of a type."""
        found, start, depth = [], self.at, 0
        for index in range(self.at, self.end):
            key = self.words[index].key
            depth += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(key, 0)
            if key == "," and depth <= 0:
                found.append(Cursor(self.text, self.words, start, index))
                start = index + 1
        if start < self.end or found:
            found.append(Cursor(self.text, self.words, start, self.end))
        return found

    def names(self, what: str) -> list[str]:
        """The names in the parentheses that are next."""
        found = []
        for item in self.inside(what).items():
            found.append(item.name("a column"))
            if not item.done:
                raise item.fault("expected a comma", "name columns only; a computed one belongs in the query")
        return found

    def rest(self) -> str:
        """The text from here to the end."""
        start = self.place
        self.at = self.end
        return self.text[start : self.words[self.end - 1].end] if start < self.words[self.end - 1].end else ""

    def until(self, *starts: tuple[str, ...]) -> str:
        """The text up to the first of the given word sequences that stands outside of parentheses."""
        first, depth = self.at, 0
        while not self.done and not (depth == 0 and self.at > first and any(self.sees(*keys) for keys in starts)):
            depth += {"(": 1, ")": -1}.get(self.key(), 0)
            self.at += 1
        return self.text[self.words[first].start : self.words[self.at - 1].end] if self.at > first else ""

    def unknown(self, what: str, known: Iterable[str]) -> SqlFault:
        """The fault for a word that begins nothing known."""
        known = list(known)
        word = self.words[self.at].text if not self.done else ""
        return self.fault(f"expected {what}", did_you_mean(word.upper(), known) or f"known: {', '.join(known)}")
