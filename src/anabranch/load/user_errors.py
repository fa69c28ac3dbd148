"""What went wrong in a user's file, told with the place in that file."""

from __future__ import annotations

import builtins
import linecache
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from anabranch import pipelines
from anabranch.core.where import Where
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.standin import NeedsSpark, StandIn, is_standing_in
from anabranch.load.surroundings import Surroundings

NOTE = "CHECK_NEEDS_SPARK"


def problem_in(error: BaseException, around: Surroundings, file: Path) -> ProjectError:
    """The problem that stopped `file`; the error itself is kept as its cause."""
    if isinstance(error, ProjectError):
        return error
    problem = _told(error, around, _place(error, around, file))
    problem.__cause__ = error
    return problem


def needs_spark_note(error: BaseException, around: Surroundings, file: Path) -> ProjectError | None:
    """A note, if the file stopped only because Spark is not there."""
    if not any(_for_want_of_spark(each, around) for each in _chain(error)):
        return None
    where = _place(error, around, file)
    text = f"cannot be checked without Spark from here on: {error}"
    note = ProjectError(NOTE, text, where=where, hint="`anabranch dry-run` checks it")
    note.__cause__ = error
    return note


def _told(error: BaseException, around: Surroundings, where: Where) -> ProjectError:
    if isinstance(error, SyntaxError):
        return ProjectError(
            "PROJECT_PYTHON_SYNTAX", f"not valid Python: {error.msg}", where=where, hint="correct the line"
        )
    if isinstance(error, ImportError):
        return _import_problem(error, around, where)
    if isinstance(error, AttributeError) and _is_pipelines(error.obj):
        return _unknown_name(error.name, where)
    if isinstance(error, OSError) and not list(_frames(error.__traceback__, around)):
        text = f"cannot be read: {error.strerror}"
        return ProjectError("PROJECT_FILE_UNREADABLE", text, where=where, hint="check that the file may be read")
    if isinstance(error, NameError) and error.name:
        hint = did_you_mean(error.name, _names_at(error)) or f'define or import "{error.name}"'
        return ProjectError("PROJECT_FILE_FAILED", f'the name "{error.name}" is not defined', where=where, hint=hint)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return ProjectError("PROJECT_FILE_FAILED", text, where=where, hint="`--debug` shows the whole traceback")


def _import_problem(error: ImportError, around: Surroundings, where: Where) -> ProjectError:
    missing = error.name or ""
    if not isinstance(error, ModuleNotFoundError):
        module = sys.modules.get(missing)
        wanted = str(error).partition("'")[2].partition("'")[0]
        if _is_pipelines(module):
            return _unknown_name(wanted, where)
        hint = (did_you_mean(wanted, vars(module)) if module else None) or "check the name and the module's version"
        return ProjectError("PROJECT_IMPORT_FAILED", str(error), where=where, hint=hint)
    beside = (path.stem for folder in around.folders if folder.is_dir() for path in folder.iterdir())
    hint = did_you_mean(missing, beside) or (
        f"put {missing.partition('.')[0]}.py beside this file, or install the package that has it"
    )
    return ProjectError("PROJECT_IMPORT_FAILED", f'no module "{missing}"', where=where, hint=hint)


def _unknown_name(name: str | None, where: Where) -> ProjectError:
    hint = did_you_mean(name or "", pipelines.__all__) or f"known names: {', '.join(pipelines.__all__)}"
    return ProjectError("PROJECT_UNKNOWN_NAME", f'pipelines has no "{name}"', where=where, hint=hint)


def _is_pipelines(module: Any) -> bool:
    return isinstance(module, ModuleType) and module.__name__ in ("anabranch.pipelines", "pyspark.pipelines", "dlt")


def _place(error: BaseException, around: Surroundings, file: Path) -> Where:
    """The deepest place in the project's own files."""
    if isinstance(error, SyntaxError) and error.filename and around.is_ours(error.filename):
        return Where(error.filename, error.lineno or 0, max(error.offset or 0, 0))
    frames = list(_frames(error.__traceback__, around))
    return frames[-1] if frames else Where(str(file))


def _frames(trace: TracebackType | None, around: Surroundings) -> Iterator[Where]:
    for summary in traceback.extract_tb(trace):
        if around.is_ours(summary.filename):
            line = (summary.line and _whole_line(summary)) or b""
            column = len(line[: summary.colno].decode(errors="replace")) + 1 if summary.colno is not None else 0
            yield Where(summary.filename, summary.lineno or 0, column)


def _whole_line(summary: traceback.FrameSummary) -> bytes:
    """The line with its indentation, as bytes: Python counts columns in bytes."""
    linecache.checkcache(summary.filename)
    return linecache.getline(summary.filename, summary.lineno or 0).encode()


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it; `except SomeError` over a stand-in can put another error on top."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _for_want_of_spark(error: BaseException, around: Surroundings) -> bool:
    """A stand-in gave up, or something written in C or outside the project could not work with one."""
    if isinstance(error, NeedsSpark):
        return True
    if isinstance(error, SyntaxError | ImportError):
        return False
    if isinstance(error, TypeError | ValueError | AttributeError | LookupError) and StandIn.__name__ in str(error):
        return True
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if last is None or around.is_ours(last.tb_frame.f_code.co_filename):
        return False
    return any(is_standing_in(value) for value in last.tb_frame.f_globals.values())


def _names_at(error: NameError) -> list[str]:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return [*last.tb_frame.f_locals, *last.tb_frame.f_globals, *dir(builtins)] if last else []
