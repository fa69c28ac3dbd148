"""Which query made the rows of a table: remembered, so that a changed one is told and not just used from now on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from anabranch.core.durable import write_whole
from anabranch.core.events import Listener
from anabranch.core.events_data import QueryChanged
from anabranch.core.plan import ChannelPlan
from anabranch.engine.catalyst import meaning
from anabranch.engine.storage import Storage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame


def tell_changes(
    storage: Storage,
    plan: ChannelPlan,
    frames: Mapping[str, DataFrame],
    generation: int,
    rebuilt: Collection[str],
    listener: Listener,
) -> None:
    """Say which outputs with a past have rows that their flows would not make today, and remember how they are made.

    Compared is what Spark would compute, so that other names, another order of steps or another file change nothing.
    """
    path = _path(storage, plan, generation)
    before: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    now: dict[str, dict[str, str]] = {}
    for step in plan.flows:
        if step.flow.name in frames and not step.flow.once:
            now.setdefault(step.flow.target, {})[step.flow.name] = meaning(frames[step.flow.name])
    for dataset in plan.outputs:
        was, made = before.get(dataset.name), now.get(dataset.name)
        if was and made and was != made and dataset.name not in rebuilt:
            listener(QueryChanged(dataset.name, str(dataset.where)))
    if now != before:
        write_whole(path, json.dumps(now, indent=1, sort_keys=True))


def _path(storage: Storage, plan: ChannelPlan, generation: int) -> Path:
    return storage.own / "queries" / f"{plan.channel.name}-{generation}.json"
