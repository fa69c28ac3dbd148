"""Errors of ours from Spark's Python workers.

Of what is raised there, Spark hands on the text of its trace and nothing else. So an error of ours carries a line with
itself as JSON, in a note, which ends up in that text; the driver makes the error again from it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any

from anabranch import errors
from anabranch.core.where import Where
from anabranch.errors import AnabranchError, disk_failure

_MARK = "anabranch error: "
_MARKED = re.compile(rf"^\s*{_MARK}(\{{.*\}})\s*$", flags=re.MULTILINE)


@contextmanager
def marked() -> Iterator[None]:
    """Around what runs in a worker: errors of ours, and of the disk, can be read back by `from_worker`.

    >>> import traceback
    >>> try:
    ...     with marked():
    ...         raise errors.DataError("ROWS_DO_NOT_FIT", "too large", hint="cast it", where=Where("a.py", 3))
    ... except AnabranchError:
    ...     text = traceback.format_exc()
    >>> again = from_worker(text)
    >>> type(again).__name__, again.code, again.message, again.hint, str(again.where)
    ('DataError', 'ROWS_DO_NOT_FIT', 'too large', 'cast it', 'a.py:3')
    """
    try:
        yield
    except AnabranchError as error:
        error.add_note(_MARK + _as_json(error))
        raise
    except OSError as error:
        failure = disk_failure(error)
        if failure is None:
            raise
        failure.add_note(_MARK + _as_json(failure))
        raise failure from error


def from_worker(text: str) -> AnabranchError | None:
    """The error of ours that a worker's trace tells of, if it does.

    >>> from_worker("Traceback (most recent call last):\\nValueError: no") is None
    True
    """
    found = _MARKED.findall(text)
    if not found:
        return None
    record: dict[str, Any] = json.loads(found[-1])
    family: type[AnabranchError] = getattr(errors, record["family"])
    return family(
        record["code"],
        record["message"],
        where=Where(*record["where"]) if record["where"] else None,
        hint=record["hint"],
        retryable=record["retryable"],
        details=record["details"],
    )


def _as_json(error: AnabranchError) -> str:
    record = {
        "family": type(error).__name__,
        "code": error.code,
        "message": error.message,
        "where": astuple(error.where) if error.where else None,
        "hint": error.hint,
        "retryable": error.retryable,
        "details": error.details,
    }
    return json.dumps(record, default=str)
