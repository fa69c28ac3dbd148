"""Where in the user's files something was said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Where:
    """A place in a user's file; `line` and `column` count from 1.

    >>> str(Where("pipeline.py", 14, 5)), str(Where("pipeline.py", 14)), str(Where("anabranch.yml"))
    ('pipeline.py:14:5', 'pipeline.py:14', 'anabranch.yml')
    """

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file, *(str(n) for n in (self.line, self.column) if n)]
        return ":".join(parts)
