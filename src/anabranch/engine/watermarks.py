"""The one watermark of a channel: which flows wait for which others.

A streaming query has one watermark, the one that is furthest behind of all that its flows ask for. So the rows of a
flow that keeps state come out later than they would alone where another one waits longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.core.plan import ChannelPlan
from anabranch.engine.catalyst import keeps_state, watermarks
from anabranch.engine.catalyst_nodes import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a watermark looks at: a column, and the sources below.
Clock = tuple[str, ...]


def shared_watermark(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """A line for each way in which flows of a channel wait longer than they would alone."""
    outputs = {d.name for d in plan.channel.outputs}
    feeding = [s.flow.name for s in plan.flows if s.flow.target in outputs and s.flow.name in frames]
    # The watermark of a flow that works row by row says nothing, and is left out of the query.
    keeping = [name for name in feeding if keeps_state(analyzed(frames[name]))]
    clocks = {name: found for name in keeping if (found := watermarks(frames[name]))}
    return (*_of_delays(clocks), *_of_clocks(clocks))


def _of_delays(clocks: Mapping[str, Mapping[Clock, int]]) -> list[str]:
    """Of flows that look at the same column of the same source."""
    said = []
    for clock in dict.fromkeys(c for found in clocks.values() for c in found):
        delays = {name: found[clock] for name, found in clocks.items() if clock in found}
        longest = max(delays.values())
        slow = [name for name, delay in delays.items() if delay == longest]
        held = [name for name, delay in delays.items() if delay < longest]
        if held:
            named = _and(f"{name} ({_duration(delays[name])})" for name in (*held, *slow))
            said.append(
                f"flows {named} share one watermark, the one with the longest delay: rows of {_and(held)} come out "
                f"later than alone; put {_and(slow)} in a pipeline of its own to avoid it"
            )
    return said


def _of_clocks(clocks: Mapping[str, Mapping[Clock, int]]) -> list[str]:
    """Of flows that look at different columns or sources."""
    together = {clock for found in clocks.values() for clock in found}
    held = [name for name, found in clocks.items() if found.keys() != together]
    if not held:
        return []
    looked = _and(f"{name} ({', '.join(sorted({clock[0] for clock in found}))})" for name, found in clocks.items())
    late = _and(held)
    return [
        f"flows {looked} take the time from different columns or sources and share one watermark, the one that is "
        f"furthest behind: rows of {late} wait for it; put the flows in pipelines of their own to avoid it"
    ]


def _and(names: Iterable[str]) -> str:
    """Words in a row.

    >>> _and(["a", "b", "c"])
    'a, b and c'
    """
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _duration(milliseconds: int) -> str:
    """A delay in the largest unit that fits.

    >>> _duration(600_000), _duration(7_200_000), _duration(90_000), _duration(1)
    ('10 minutes', '2 hours', '90 seconds', '1 millisecond')
    """
    units = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1))
    unit, size = next((u, s) for u, s in units if milliseconds % s == 0 and (milliseconds or s == 1))
    count = milliseconds // size
    return f"{count} {unit}{'' if count == 1 else 's'}"
