"""What the columns of a dataset are like, for its page: the last profile, and how nulls moved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anabranch.store.history import History
from anabranch.store.profiles import nulls_over_time, profiles_of
from anabranch.ui.sight import Look

#: Columns of a plot: those with most nulls.
_LINES = 6


@dataclass(frozen=True)
class Shown:
    """A profile: of which epoch or job, when, over how many rows; the figures of its columns by name."""

    name: str
    at: float
    rows: int
    columns: dict[str, dict[str, Any]]
    by_epoch: bool


def last_profile(look: Look, dataset: str) -> Shown | None:
    """The newest profile of a dataset, if anybody has looked."""
    with look.forgiving():
        found = profiles_of(look.sight.history, dataset, limit=1)
        if found:
            one = found[-1]
            figures = {name: column.figures() for name, column in one.profile.columns.items()}
            return Shown(one.name, one.at, one.profile.rows, figures, one.origin == "epoch")
    return None


def null_series(history: History, dataset: str) -> dict[str, list[tuple[float, float]]]:
    """The share of nulls over time, of the columns that ever had most of them."""
    points = nulls_over_time(history, dataset)
    most: dict[str, float] = {}
    for _, shares in points:
        for name, share in shares.items():
            most[name] = max(share, most.get(name, 0.0))
    chosen = sorted((name for name in most if most[name]), key=lambda name: (-most[name], name))[:_LINES]
    return {name: [(at, shares[name]) for at, shares in points if name in shares] for name in chosen}
