"""The border around the user's code: what goes wrong inside is told as their function and line, not as a JVM trace."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

import anabranch
from anabranch.core.secrets import reveal
from anabranch.core.where import Where
from anabranch.engine.worker_errors import from_worker
from anabranch.errors import AnabranchError, UserCodeError, did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = str(Path(anabranch.__file__).parent)
_PYTHON = str(Path(traceback.__file__).parent)


@contextmanager
def user_code(what: str, where: Where) -> Iterator[None]:
    """Turn whatever the user's code raises into a `UserCodeError` that names the line in their file."""
    try:
        yield
    except AnabranchError:
        raise
    except Exception as error:
        raise told(error, what, where) from error


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Inside, the session has these settings; afterwards those that it had before."""
    before: dict[str, str | None] = {}
    try:
        for key, value in settings.items():
            had = spark.conf.get(key, None)
            spark.conf.set(key, reveal(value))
            before[key] = had
        yield
    finally:
        for key, had in before.items():
            if had is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, had)


def told(error: Exception, what: str, where: Where | None) -> AnabranchError:
    """The error as the author of the flow wants to read it; one of ours that came out of a worker as itself."""
    if isinstance(error, PySparkException) and (ours := from_worker(str(error))):
        return ours
    place = _line_in(error, where)
    if isinstance(error, PySparkException):
        condition = error.getCondition() or type(error).__name__
        return UserCodeError(
            "FLOW_FAILED",
            f"{what}: {spark_message(error)}",
            where=place,
            hint=_suggestion(error),
            details={"condition": condition},
        )
    return UserCodeError(
        "FLOW_FAILED",
        f"{what}: {type(error).__name__}: {error}",
        where=place,
        hint="fix the flow's code; --debug shows the whole trace",
    )


def spark_message(error: BaseException) -> str:
    """The cause in Spark's own words: the first paragraph, without the plan and the JVM's trace."""
    text = (error.getMessage() if isinstance(error, PySparkException) else "") or str(error)
    python = re.findall(r"^(\w+(?:\.\w+)*(?:Error|Exception)[^\n]*)$", text, flags=re.MULTILINE)
    if "PythonException" in type(error).__name__ and python:
        return str(python[-1])
    paragraph = re.split(r"\n\s*\n|;\n'|\n\s+at |\nJVM stacktrace", text.strip())[0]
    return " ".join(line.strip() for line in paragraph.splitlines())


def _suggestion(error: PySparkException) -> str:
    parameters = error.getMessageParameters() or {}
    proposal = parameters.get("proposal", "").replace("`", "")
    wanted = parameters.get("objectName", "").replace("`", "")
    if proposal:
        names = [name.strip() for name in proposal.split(",")]
        return did_you_mean(wanted, names) or f"columns there: {', '.join(names)}"
    return "the message is Spark's; --debug shows its whole trace"


def _line_in(error: Exception, where: Where | None) -> Where | None:
    """The deepest frame in the user's own file: of this trace, or of the worker's that Spark put in the message."""
    frames = [(f.filename, f.lineno or 0) for f in traceback.extract_tb(error.__traceback__)]
    frames += [(file, int(line)) for file, line in re.findall(r'File "([^"]+\.py)", line (\d+)', str(error))]
    theirs = [Where(file, line) for file, line in frames if file.endswith(".py") and not _installed(file)]
    own = [place for place in theirs if where and place.file == where.file]
    return own[-1] if own else theirs[-1] if theirs else where


def _installed(file: str) -> bool:
    return file.startswith(_OURS) or "site-packages" in file or "/pyspark" in file or file.startswith(_PYTHON)
