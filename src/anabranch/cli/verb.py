"""What every verb has in common: the options that may stand before or after it, and how it is put into the command.

A verb is a function whose first parameter is the `Invocation`; its other parameters are typer's. `add_verb` gives it
`--json`, `--debug`, `-v`, `-q` and, unless it does without a project, `--project` and `--env`. Said twice, the later
one counts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from anabranch.cli.output import JsonOutput, Output, TextOutput
from anabranch.core.environment import environment


@dataclass
class Invocation:
    """What was said around the verb; filled while the command line is parsed."""

    project: Path = Path()
    env: str | None = None
    json: bool = False
    debug: bool = False
    verbose: bool = False
    quiet: bool = False

    @cached_property
    def out(self) -> Output:
        """What the verb prints with."""
        return JsonOutput(self.quiet) if self.json else TextOutput(self.quiet)

    def take(self, given: dict[str, Any]) -> None:
        """Remove the shared options from `given`, keeping those that were said."""
        for name in SHARED:
            if value := given.pop(name, None):
                setattr(self, name, value)


#: The options every verb takes, by the name of their field in `Invocation`.
SHARED: dict[str, Any] = {
    "project": Annotated[
        Path | None,
        typer.Option(
            "--project", "-p", "--spec", metavar="PATH", help="Project folder or its file. Default: here or above."
        ),
    ],
    "env": Annotated[
        str | None, typer.Option("--env", metavar="NAME", help="Environment whose values are used (ANABRANCH_ENV).")
    ],
    "json": Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")],
    "debug": Annotated[bool, typer.Option("--debug", help="Show tracebacks.")],
    "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Show more.")],
    "quiet": Annotated[bool, typer.Option("--quiet", "-q", help="Show results and errors only.")],
}


def add_verb(
    app: typer.Typer, function: Callable[..., None], *, name: str | None = None, needs_project: bool = True
) -> None:
    """Put a verb into the command, with the shared options after its own."""
    signature = inspect.signature(function, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = shared_parameters(without=() if needs_project else ("project", "env"))
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]

    def command(**given: Any) -> None:
        invocation = given.pop("context").find_root().obj
        invocation.take(given)
        with environment(invocation.env):
            function(invocation, **given)

    _declare(command, [context, *keywords, *shared])
    command.__doc__ = function.__doc__
    app.command(name or function.__name__.replace("_", "-"))(command)


def shared_parameters(without: tuple[str, ...] = ()) -> list[inspect.Parameter]:
    """The shared options as parameters of a function."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if name in ("project", "env") else False,
            annotation=annotation,
        )
        for name, annotation in SHARED.items()
        if name not in without
    ]


def add_shared(app: typer.Typer, extra: list[inspect.Parameter], help_text: str) -> None:
    """Let the shared options, and `extra` ones, stand before the verb as well."""

    def command(**given: Any) -> None:
        context = given.pop("context")
        for parameter in extra:
            given.pop(parameter.name)
        context.obj.take(given)

    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    _declare(command, [context, *shared_parameters(), *extra])
    app.callback(help=help_text)(command)


def _declare(command: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Give a function that takes `**given` the signature typer shall see."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
