"""Secrets in the options of Spark's readers: `.option("password", "${env:PW}")` is looked up when it is said."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from pyspark.sql import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from anabranch.core.secrets import reveal
from anabranch.engine.patched import patched


@contextmanager
def secret_options() -> Iterator[None]:
    """Inside, options of readers may refer to secrets."""
    with ExitStack() as stack:
        for reader in (DataStreamReader, DataFrameReader):
            stack.enter_context(patched(reader, {"option": _option, "options": _options}))
        yield


def _option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        return original(self, key, _revealed(value))

    return option


def _options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **given: Any) -> Any:
        return original(self, **{key: _revealed(value) for key, value in given.items()})

    return options


def _revealed(value: Any) -> Any:
    return reveal(value) if isinstance(value, str) else value
