"""Errors as people read them: the place, the message, the lines around it, the way out."""

from __future__ import annotations

import re
from pathlib import Path

from anabranch.core.where import Where, shown_place
from anabranch.errors import AnabranchError, ProjectErrors

#: One line of text in pieces, each with a style that only a terminal shows.
Line = list[tuple[str, str]]

LINES_BEFORE = 2
WIDEST = 120


class UsageProblem(AnabranchError):
    """The command line itself cannot be understood."""

    exit_code = 2


def error_lines(error: AnabranchError) -> list[Line]:
    """The error in lines, without line ends."""
    if isinstance(error, ProjectErrors):
        lines = [line for problem in error.problems for line in [*error_lines(problem), []]]
        return [*lines, [(error.message, "bold red")]]
    first, *more = [plain_text(line) for line in (_shortened(error.message).splitlines() or [""])]
    place = shown_place(error.where) if error.where else "error:"
    gap = "  " if error.where else " "
    lines = [[(place, "bold"), (gap, ""), (first, "red"), (f" ({error.code})", "dim")]]
    lines += [[("  " + line, "")] for line in more]
    if error.where:
        lines += _snippet(error.where)
    if error.hint:
        lines.append([("hint: ", "bold cyan"), (plain_text(_shortened(error.hint)), "")])
    lines.append([("help: ", "bold cyan"), (f"anabranch explain {error.code}", "")])
    return lines


def one_line(error: AnabranchError) -> str:
    """The error where it is only worth a line.

    >>> one_line(AnabranchError("SOME_CODE", "no room", where=Where("a.py", 3), hint="make some"))
    'a.py:3  no room (SOME_CODE); make some'
    """
    place = f"{shown_place(error.where)}  " if error.where else ""
    return plain_text(f"{place}{_shortened(error.message)} ({error.code}){f'; {error.hint}' if error.hint else ''}")


def _shortened(text: str) -> str:
    """Places inside a message, relative to the current folder like the place of the message itself."""
    return re.sub(rf"(?<![^\s\"'`(]){re.escape(str(Path.cwd()))}/(?=[^/\s])", "", text)


def plain_text(text: str) -> str:
    r"""The text with everything that could move a terminal's cursor written out.

    >>> plain_text("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _snippet(where: Where) -> list[Line]:
    """The line and a few before it, numbered, with a caret under the column."""
    try:
        source = Path(where.file).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # the place is named all the same
    if not 1 <= where.line <= len(source):
        return []
    target = source[where.line - 1]
    column = where.column - 1 if where.column else len(target) - len(target.lstrip())
    caret = len(target[:column].expandtabs(4))
    start = max(0, caret - WIDEST + 20)  # a very long line is cut so that the column stays in view
    width = len(str(where.line))
    lines: list[Line] = []
    for number in range(max(1, where.line - LINES_BEFORE), where.line + 1):
        text = plain_text(source[number - 1].expandtabs(4)[start : start + WIDEST]).rstrip()
        lines.append([(f"  {number:>{width}} |", "dim"), (f" {text}" if text else "", "")])
    return [*lines, [(f"  {'':>{width}} |", "dim"), (" " * (caret - start + 1) + "^", "bold red")]]
