"""Write docs/reference/cli.md from the command itself: `python tests/docs/cli_reference.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from anabranch.cli.main import app
from anabranch.cli.verb import SHARED

TARGET = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
HEAD = """# Command line

<!-- Written by tests/docs/cli_reference.py from the command itself. -->

`anabranch VERB [OPTIONS]`. Results go to stdout, progress and errors to stderr. [Exit codes](exit-codes.md) are the
same for all verbs. Every verb has `--help`.
"""
#: What typer adds to every verb.
_OWN = {"help"}


def commands() -> dict[str, Any]:
    """Every verb with typer's description of it; the command itself is under the empty name."""
    command: Any = get_command(app)
    return {"": command, **command.commands}


def options(command: Any) -> list[Any]:
    """The options of a verb, in the order of its help."""
    return [p for p in command.params if p.param_type_name == "option" and p.name not in _OWN]


def arguments(command: Any) -> list[Any]:
    """The arguments of a verb."""
    return [p for p in command.params if p.param_type_name == "argument"]


def render() -> str:
    """The whole page."""
    every = commands()
    whole = every.pop("")
    parts = [HEAD, "## Options of every verb\n", "They may stand before or after the verb.\n"]
    parts += [_table(o for o in options(whole) if o.name in SHARED)]
    parts += [
        "`init`, `import-check` and `explain` need no project and take no `--project`.\n",
        "## Options without a verb\n",
    ]
    parts += [_table(o for o in options(whole) if o.name not in SHARED)]
    for name, command in every.items():
        parts += list(_verb(name, command))
    return "\n".join(parts)


def _verb(name: str, command: Any) -> Iterator[str]:
    usage = " ".join(["anabranch", name, *(_shown(a) for a in arguments(command)), "[OPTIONS]"])
    yield f"## {name}\n\n`{usage}`\n\n{' '.join(command.help.split())}\n"
    rows = [*arguments(command), *(o for o in options(command) if o.name not in SHARED)]
    if rows:
        yield _table(rows)


def _shown(argument: Any) -> str:
    word = (argument.metavar or argument.name).upper()
    return word if argument.required else f"[{word}]"


def _table(parameters: Any) -> str:
    rows = ["| | |", "|---|---|"]
    for p in parameters:
        if p.param_type_name == "argument":
            names = f"`{_shown(p)}`"
        else:
            names = ", ".join(f"`{n}`" for n in [*p.opts, *p.secondary_opts])
            names += f" `{p.metavar}`" if p.metavar else ""
        rows.append(f"| {names} | {p.help or ''}{_default(p)} |")
    return "\n".join([*rows, ""])


def _default(parameter: Any) -> str:
    value = parameter.default
    shown = isinstance(value, int | str) and not isinstance(value, bool) and value != ""
    return f" Default: {value}." if shown else ""


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
