"""Sources that were told to go on without rows that are gone: allowed, and said at every start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from anabranch.core.plan import ChannelPlan
from anabranch.engine.catalyst_nodes import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OPTION = "failOnDataLoss"


def may_skip(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> tuple[str, ...]:
    """A line for each Kafka topic of a channel that is read with `failOnDataLoss=false`."""
    found: dict[str, None] = {}
    for step in plan.flows:
        if step.flow.name not in frames:
            continue
        leaves = analyzed(frames[step.flow.name]).collectLeaves()
        for leaf in (leaves.apply(i) for i in range(leaves.size())):
            if leaf.nodeName() != "StreamingRelationV2":
                continue
            options = leaf.extraOptions()
            if (options.get(_OPTION) or "").lower() == "false":
                topics = options.get("subscribe") or options.get("subscribePattern") or options.get("assign")
                found[
                    f"reads {topics} with {_OPTION}=false: rows that are gone before they were read are left out "
                    "without a word"
                ] = None
    return tuple(found)
