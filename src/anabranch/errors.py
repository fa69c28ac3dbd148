"""The error families, each with a code, a place, a way out and an exit code.

Raise the family that says who can act: the author of the project, the author of a flow, whoever runs it.
Every code has a section in `error_codes.md`, which `anabranch explain CODE` prints.

    >>> error = ProjectError("PROJECT_UNKNOWN_INPUT", 'no dataset "reqests"', hint='did you mean "requests"?')
    >>> error.code, error.exit_code, error.retryable
    ('PROJECT_UNKNOWN_INPUT', 2, False)
"""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from anabranch.core.hidden import hidden, hide
from anabranch.core.where import Where


class AnabranchError(Exception):
    """What every error of ours has; `retryable` says whether trying the same again can help.

    Secrets are taken out when it is made, so that it can be shown, logged and stored by anybody.
    """

    exit_code: ClassVar[int] = 1
    retryable: bool = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        where: Where | None = None,
        hint: str | None = None,
        retryable: bool | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        message = hide(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.where = where
        self.hint = hide(hint) if hint else hint
        self.details: dict[str, Any] = hidden(details or {})
        if retryable is not None:
            self.retryable = retryable

    def as_record(self) -> dict[str, Any]:
        """The error as `--json` prints it."""
        return {
            "code": self.code,
            "message": self.message,
            "where": str(self.where) if self.where else None,
            "hint": self.hint,
            "retryable": self.retryable,
            "exit_code": self.exit_code,
            **({"details": self.details} if self.details else {}),
        }


class ProjectError(AnabranchError):
    """The project's files say something that cannot be run."""

    exit_code = 2


class ProjectErrors(AnabranchError):
    """Every problem found in a project, shown together."""

    exit_code = 2

    def __init__(self, problems: Sequence[AnabranchError]) -> None:
        count = len(problems)
        super().__init__("PROJECT_INVALID", f"{count} problem{'s' if count != 1 else ''} found")
        self.problems = tuple(sorted(problems, key=lambda p: (p.where or Where(""), p.code, p.message)))

    def as_record(self) -> dict[str, Any]:
        return {**super().as_record(), "problems": [p.as_record() for p in self.problems]}


class SetupError(AnabranchError):
    """Something the machine lacks: Java, a jar, room in the cache."""

    exit_code = 2


class UserCodeError(AnabranchError):
    """A flow's own code failed, when it was planned or while it ran."""


class DataError(AnabranchError):
    """The data broke a rule that stops the run."""

    exit_code = 4


class StateError(AnabranchError):
    """Ledger, checkpoint and tables do not belong together; going on could lose or repeat rows."""


class SinkError(AnabranchError):
    """An outside system refused or could not be reached."""


class CommitUnknown(SinkError):
    """A commit was sent and no answer came; looked up, it could not be told apart either."""

    exit_code = 5


class LockHeld(AnabranchError):
    """Another process runs this channel, or has taken it over."""

    exit_code = 6


class Interrupted(AnabranchError):
    """Stopped by a signal, with the epoch in hand finished or abandoned."""

    exit_code = 130


class InternalError(AnabranchError):
    """A fault of ours."""


def disk_failure(error: BaseException) -> SinkError | None:
    """What to say of an operating system's error that is nobody's code's fault: no room, a broken or read-only disk.

    >>> disk_failure(OSError(errno.ENOSPC, "No space left on device", "/lake/x")).code
    'DISK_FAILED'
    >>> disk_failure(FileNotFoundError(errno.ENOENT, "No such file", "/lake/x")) is None
    True
    """
    if not isinstance(error, OSError) or error.errno not in _DISK:
        return None
    return SinkError(
        "DISK_FAILED",
        str(error),
        hint="make room on the disk, or mend it, and run again: every epoch is whole or not there at all",
        retryable=True,
    )


_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """A hint naming the closest known word.

    >>> did_you_mean("reqests", ["requests", "errors"])
    'did you mean "requests"?'
    >>> did_you_mean("zzz", ["requests"]) is None
    True
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'did you mean "{close[0]}"?' if close else None
