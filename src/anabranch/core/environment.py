"""The environment that a project is read for, such as `dev` or `production`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: The variable that names the environment where no option does.
VARIABLE = "ANABRANCH_ENV"

_chosen: ContextVar[str | None] = ContextVar("anabranch_environment", default=None)


@contextmanager
def environment(name: str | None) -> Iterator[None]:
    """Inside, projects are read with the values of this environment; None leaves it to the variable.

    >>> with environment("staging"):
    ...     chosen_environment()
    'staging'
    """
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def chosen_environment() -> str | None:
    """The environment that was asked for."""
    return _chosen.get() or os.environ.get(VARIABLE) or None
