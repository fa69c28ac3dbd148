"""Where in the user's files something was said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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


def shown_place(where: Where, cwd: Path | None = None) -> str:
    """`file:line:column`, the file relative to the current folder when it is below it.

    >>> shown_place(Where("/home/me/p/a.py", 3), Path("/home/me/p")), shown_place(Where("/etc/a.yml"), Path("/home"))
    ('a.py:3', '/etc/a.yml')
    """
    path, here = Path(where.file), cwd or Path.cwd()
    shown = path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path
    return str(Where(str(shown), where.line, where.column))
