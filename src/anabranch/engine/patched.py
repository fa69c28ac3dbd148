"""Methods of Spark's classes that are ours for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(owner: type, methods: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]]) -> Iterator[None]:
    """Inside, each named method of `owner` is what its function makes of the original one."""
    originals = {name: getattr(owner, name) for name in methods}
    for name, make in methods.items():
        setattr(owner, name, make(originals[name]))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)
