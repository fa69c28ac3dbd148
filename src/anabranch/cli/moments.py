"""Points in time on the command line: as they are said."""

from __future__ import annotations

import time
from datetime import datetime

import typer


def said_since(text: str | None) -> float | None:
    """What `--since` asks for: how long ago, or a date and time; without a zone, in that of this machine.

    >>> said_since("1970-01-01T00:01:00+00:00"), said_since(None)
    (60.0, None)
    """
    from anabranch.load.durations import parse_duration

    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        pass  # then it is a duration
    try:
        return time.time() - parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(
            f'--since takes a duration such as "2 hours", or a time such as 2026-01-31T08:00: {error}'
        ) from error
