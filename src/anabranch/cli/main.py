"""The command `anabranch`: its verbs, and what becomes of errors.

A new verb is a function in a file of this folder, like `check`, and one line below. It imports what it works with
inside the function, so that `--help` and the light verbs start at once.

Exit codes: 0 done, 1 failed, 2 usage, set-up or project, 3 the plan has changes (only where asked for), 4 stopped by
the data, 5 a commit's state is unknown, 6 another run holds the channel, 7 incidents are open (`watch --once`), 130
interrupted.
"""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.main import get_command

import anabranch
from anabranch.cli.check import check
from anabranch.cli.doctor import doctor
from anabranch.cli.epochs import epochs
from anabranch.cli.events import events
from anabranch.cli.explain import explain
from anabranch.cli.gen import gen
from anabranch.cli.graph import graph
from anabranch.cli.history import history
from anabranch.cli.import_check import import_check
from anabranch.cli.init import init
from anabranch.cli.lineage import lineage
from anabranch.cli.metrics import metrics
from anabranch.cli.plan import dry_run, plan
from anabranch.cli.profile import profile
from anabranch.cli.run import run
from anabranch.cli.schema import schema
from anabranch.cli.show import show, sql
from anabranch.cli.show_errors import UsageProblem
from anabranch.cli.status import status
from anabranch.cli.ui import ui
from anabranch.cli.upkeep import drop, recover, reset, vacuum
from anabranch.cli.verb import Invocation, add_shared, add_verb
from anabranch.cli.watch import watch
from anabranch.core.hidden import hide
from anabranch.errors import AnabranchError, InternalError, Interrupted, disk_failure

app = typer.Typer(name="anabranch", rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"anabranch {anabranch.__version__}")
        raise typer.Exit


add_shared(
    app,
    [
        inspect.Parameter(
            "version",
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[
                bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
            ],
        )
    ],
    help_text="Read each source once, feed any number of tables, commit them all together or not at all.",
)
add_verb(app, init, needs_project=False)
add_verb(app, gen)
add_verb(app, schema, needs_project=False)
add_verb(app, check)
add_verb(app, plan)
add_verb(app, dry_run)
add_verb(app, run)
add_verb(app, status)
add_verb(app, watch)
add_verb(app, history)
add_verb(app, epochs)
add_verb(app, events)
add_verb(app, graph)
add_verb(app, lineage)
add_verb(app, metrics)
add_verb(app, ui)
add_verb(app, show)
add_verb(app, profile)
add_verb(app, sql)
add_verb(app, recover)
add_verb(app, reset)
add_verb(app, vacuum)
add_verb(app, drop)
add_verb(app, import_check, needs_project=False)
add_verb(app, doctor)
add_verb(app, explain, needs_project=False)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 must not turn text into an error
    # Known before parsing, so that an error in the command line itself is shown as it was asked for.
    invocation = Invocation(json="--json" in arguments, debug="--debug" in arguments)
    try:
        try:
            code = _run(arguments, invocation)
        except (BrokenPipeError, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - the last boundary before the user
            code = _report(error, invocation)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has gone. Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    return code


def _run(arguments: list[str], invocation: Invocation) -> int:
    # Without standalone mode typer raises usage errors to us and returns the code of `typer.Exit`.
    answer: Any = get_command(app).main(arguments, prog_name="anabranch", standalone_mode=False, obj=invocation)
    if answer == Interrupted.exit_code:
        raise KeyboardInterrupt
    return answer if isinstance(answer, int) else 0


def _report(error: BaseException, invocation: Invocation) -> int:
    if invocation.debug and not isinstance(error, typer.TyperException | typer.Abort):
        sys.stderr.write(hide("".join(traceback.format_exception(error))))
    known = _as_known(error)
    invocation.out.error(known)
    session = sys.modules.get("anabranch.engine.session")  # only there if the verb got as far as Spark
    if session and (log := session.log_file()):
        invocation.out.note(f"Spark's log: {log}")
    return known.exit_code


def _as_known(error: BaseException) -> AnabranchError:
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("INTERRUPTED", "interrupted", hint="run the same command again to go on")
    if isinstance(error, typer.Abort):
        hint = "answer yes, or say --yes where nobody can be asked"
        return AnabranchError("NOT_CONFIRMED", "not confirmed; nothing was done", hint=hint)
    if isinstance(error, typer.TyperException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "anabranch"
        return UsageProblem("USAGE", error.format_message(), hint=f"see `{path} --help`")
    if failure := disk_failure(error):
        return failure
    return InternalError(
        "INTERNAL",
        f"{type(error).__name__}: {error}",
        hint="this is a fault of anabranch; run again with --debug to see where, and report it",
    )


if __name__ == "__main__":
    sys.exit(main())
