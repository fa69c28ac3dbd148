"""Who answers for a dataset that does not say so: what the project's `defaults` say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from anabranch.core.declarations import Dataset
from anabranch.load.zones_layers import Layers

if TYPE_CHECKING:
    from anabranch.load.zones_files import ZoneFiles


def with_default_owner(datasets: Iterable[Dataset], files: ZoneFiles | None) -> tuple[Dataset, ...]:
    """The datasets; those without an owner get that of `defaults`, and each the tags there that it does not have."""
    layers = Layers(files.defaults if files else ())
    owner, tags = layers.get("owner"), layers.together("tags")
    if owner is None and not tags:
        return tuple(datasets)
    return tuple(replace(d, owner=d.owner or owner, tags={**tags, **d.tags}) for d in datasets)
