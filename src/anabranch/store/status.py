"""How the channels of a pipeline stand, as records for whoever shows them. No JVM is asked."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.store.ledger import EpochRecord, Ledger
    from anabranch.store.process import Holder

#: How many of the newest epochs the window of plain readers is told from.
RECENT = 20


def channel_records(ledger: Ledger, pipeline_id: str) -> list[dict[str, Any]]:
    """Each channel: its published epoch, what is open, who runs it."""
    holders = ledger.holders(pipeline_id)
    return [
        channel_record(c.channel, c.generation, ledger.epochs(pipeline_id, channel=c.channel, limit=RECENT), holders)
        for c in ledger.channels(pipeline_id)
        if c.outputs
    ]


def channel_record(
    name: str, generation: int, recent: tuple[EpochRecord, ...], holders: Mapping[str, Holder]
) -> dict[str, Any]:
    """One channel, from its newest epochs."""
    published = [e for e in recent if e.published_at is not None]
    windows = [e.window * 1000 for e in published]
    holder = holders.get(name)
    waiting = [e for e in recent if e.published_at is None]
    return {
        "channel": name,
        "running": f"process {holder.pid} on {holder.host}" if holder else None,
        "generation": generation,
        "epoch": published[0].key.epoch if published else None,
        "published": moment(published[0].published_at) if published else None,
        "open": ", ".join(f"epoch {e.key.epoch} {e.state}" for e in waiting) or None,
        "plain_reader_window_ms": round(median(windows), 1) if windows else None,
        "worst_window_ms": round(max(windows), 1) if windows else None,
    }


def moment(seconds: float | None) -> str | None:
    """A time since 1970 for people, in UTC.

    >>> moment(0.5), moment(None)
    ('1970-01-01 00:00:00+00:00', None)
    """
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
