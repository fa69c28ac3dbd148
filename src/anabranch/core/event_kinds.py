"""Every kind of event, and what one is about. The modules that declare events are all imported here."""

from __future__ import annotations

from dataclasses import dataclass, fields

from anabranch.core.events import Event
from anabranch.core.events_data import ColumnsProfiled, LineageChanged


def is_silent(event: Event) -> bool:
    """Whether an event is for the history alone, and news to nobody: the lineage of a dataset, found the first time.

    Profiles come with every epoch; the history keeps them apart from events.
    """
    return (isinstance(event, LineageChanged) and event.first) or isinstance(event, ColumnsProfiled)


@dataclass(frozen=True, slots=True)
class Origin:
    """What an event is about, as far as it says so; `place` is `file:line`."""

    pipeline: str | None = None
    channel: str | None = None
    flow: str | None = None
    dataset: str | None = None
    epoch: int | None = None
    place: str | None = None


def origin(event: Event) -> Origin:
    """What an event is about.

    >>> from anabranch.core.events import EpochDiscarded
    >>> origin(EpochDiscarded("requests", 4, "why")).epoch
    4
    """
    said = {f.name: getattr(event, f.name) for f in fields(event)}
    dataset = said.get("dataset") or said.get("sink") or said.get("view")
    return Origin(
        said.get("pipeline"),
        said.get("channel") or said.get("view"),
        said.get("flow"),
        dataset,
        said.get("epoch"),
        said.get("where") or None,
    )


def vocabulary() -> dict[str, tuple[str, ...]]:
    """Every kind of event with its fields.

    >>> vocabulary()["epoch_discarded"]
    ('channel', 'epoch', 'reason')
    """
    return {c.kind: tuple(f.name for f in fields(c)) for c in Event.__subclasses__()}
