"""`anabranch explain CODE`: the long text of an error."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Annotated

import typer

from anabranch.cli.output import Table
from anabranch.cli.show_errors import UsageProblem
from anabranch.cli.verb import Invocation
from anabranch.errors import did_you_mean


def explain(
    at: Invocation,
    code: Annotated[
        str,
        typer.Argument(
            metavar="CODE", help="Code of an error.", show_default=False, autocompletion=lambda: sorted(all_texts())
        ),
    ] = "",
    list_codes: Annotated[bool, typer.Option("--list", help="List every code.")] = False,
) -> None:
    """Print what an error code means and what to do about it."""
    texts = all_texts()
    if list_codes:
        rows = [{"code": c, "summary": _summary(text)} for c, text in sorted(texts.items())]
        at.out.show(rows, Table(rows))
        return
    wanted = code.upper().replace("-", "_")
    if not wanted:
        raise UsageProblem("USAGE", "explain needs a code", hint="`anabranch explain --list` shows all of them")
    if wanted not in texts:
        hint = did_you_mean(wanted, texts) or "`anabranch explain --list` shows all of them"
        raise UsageProblem("UNKNOWN_CODE", f'there is no error code "{code}"', hint=hint)
    at.out.show({"code": wanted, "text": texts[wanted]}, f"{wanted}\n\n{texts[wanted]}")


def all_texts() -> dict[str, str]:
    """The text of every code in `error_codes.md`."""
    return sections(files("anabranch").joinpath("error_codes.md").read_text(encoding="utf-8"))


def sections(markdown: str) -> dict[str, str]:
    """The text below each `## CODE`.

    >>> sections("# Codes" + chr(10) + "## A_B" + chr(10) + "Text." + chr(10) + "## C" + chr(10) + "More.")
    {'A_B': 'Text.', 'C': 'More.'}
    """
    _, *rest = re.split(r"^## +`?([A-Z][A-Z0-9_]*)`?[ \t]*$", markdown, flags=re.MULTILINE)
    return {code: text.strip() for code, text in zip(rest[::2], rest[1::2], strict=True)}


def _summary(text: str) -> str:
    """The first sentence."""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.:;])\s", paragraph, maxsplit=1)[0].rstrip(":;")
