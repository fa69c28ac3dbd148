"""A channel under watch: how its query ended is never missed, whenever that was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from anabranch.core.events import ChannelFailed, Event
from anabranch.engine.supervise import Retries, Supervised


class EndsBetween:
    """A query that runs while it is waited for with a limit, and has ended when it is asked whether it runs."""

    isActive = False
    lastProgress = None

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def awaitTermination(self, seconds: float | None = None) -> None:
        if seconds is None and self._error:
            raise self._error


def supervised(error: Exception | None, told: list[Event]) -> Supervised:
    lease = SimpleNamespace(channel="orders")
    work = SimpleNamespace(lease=lease, failure=None, sinks={}, epochs=0, read=0)
    heartbeat = SimpleNamespace(error=None, lost=lambda: None)
    running: Any = SimpleNamespace(work=work, query=EndsBetween(error), heartbeat=heartbeat)

    @contextmanager
    def begin() -> Iterator[Any]:
        yield running

    return Supervised("orders", begin, Retries(most=0), told.append)


def test_a_query_that_fails_between_two_looks_has_not_ended_well() -> None:
    told: list[Event] = []
    channel = supervised(StreamingQueryException("[DIVIDE_BY_ZERO] Division by zero."), told)
    channel.start()
    channel.look()
    assert channel.over
    assert channel.error is not None
    assert "DIVIDE_BY_ZERO" in channel.error.message
    assert [e.channel for e in told if isinstance(e, ChannelFailed)] == ["orders"]


@pytest.mark.parametrize("looks", [1, 2])
def test_a_query_that_ends_well_between_two_looks_is_over(looks: int) -> None:
    told: list[Event] = []
    channel = supervised(None, told)
    channel.start()
    for _ in range(looks):
        channel.look()
    assert (channel.over, channel.error) == (True, None)
    assert not [e for e in told if isinstance(e, ChannelFailed)]
