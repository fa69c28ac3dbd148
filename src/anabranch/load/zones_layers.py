"""A field of an entity may be said by itself, by its source, for its zone, or under `defaults`: the nearest counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.core.where import Where
from anabranch.load.zones_files import Said


@dataclass(frozen=True, slots=True)
class Layers:
    """Who may say something, the nearest first."""

    said: Sequence[Said[Any]]

    def get(self, name: str, usual: Any = None) -> Any:
        """What the nearest says, or `usual` if nobody says anything."""
        found = self._who(name)
        return usual if found is None else getattr(found.spec, name)

    def where(self, name: str) -> Where:
        """The place where it is said; of the nearest, if nobody does."""
        return (self._who(name) or self.said[0]).where(name)

    def together(self, name: str) -> dict[str, Any]:
        """What all say, each key by its nearest."""
        found: dict[str, Any] = {}
        for each in self.said:
            if each.says(name):
                found = {**(getattr(each.spec, name) or {}), **found}
        return found

    def _who(self, name: str) -> Said[Any] | None:
        return next((each for each in self.said if each.says(name) and getattr(each.spec, name) is not None), None)
