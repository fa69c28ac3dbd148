"""`anabranch status` and `anabranch epochs`: what the ledger knows, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import Table
from anabranch.cli.verb import Invocation
from anabranch.core.quality import by_dataset

if TYPE_CHECKING:
    from anabranch.store.ledger import EpochRecord

#: How many of the newest epochs the window of plain readers is told from.
_RECENT = 20


def status(at: Invocation) -> None:
    """Show each channel's published epoch and state, and each table's version at the cut."""
    from anabranch.load.project import read_project
    from anabranch.read import open_ledger

    with open_ledger(read_project(at.project)) as (ledger, found):
        pipeline = found.pipeline_id
        holders = ledger.holders(pipeline)
        known = [c for c in ledger.channels(pipeline) if c.outputs]
        recent = {c.channel: ledger.epochs(pipeline, channel=c.channel, limit=_RECENT) for c in known}
        channels = [_channel(c.channel, c.generation, recent[c.channel], holders) for c in known]
        cut = ledger.cut(pipeline)
    tables = [
        {"table": t.name, "format": t.format, "version": t.version, "channel": t.channel, "epoch": t.epoch}
        for t in cut.tables.values()
    ]
    quality = [row for found in recent.values() for row in _quality(found)]
    document = {"channels": channels, "tables": tables, "quality": quality}
    rules = ("", f"rules, over the last {_RECENT} epochs of each channel", Table(quality)) if quality else ()
    empty = "nothing published yet"
    at.out.show(document, Table(channels, empty="no channels yet"), "", Table(tables, empty=empty), *rules)


def epochs(
    at: Invocation,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")] = 20,
    channel: Annotated[str | None, typer.Option("--channel", help="Of this channel only.")] = None,
) -> None:
    """List epochs, newest first, with rows and versions for each output."""
    from anabranch.load.project import read_project
    from anabranch.read import open_ledger

    with open_ledger(read_project(at.project)) as (ledger, pipeline):
        found = ledger.epochs(pipeline.pipeline_id, channel=channel, limit=limit)
    rows = [
        {
            "channel": e.key.channel,
            "generation": e.key.generation,
            "epoch": e.key.epoch,
            "state": str(e.state),
            "decided": _moment(e.decided_at),
            "published": _moment(e.published_at),
            "rows": {name: receipt.rows for name, receipt in e.receipts.items()},
            "versions": {name: applied.version for name, applied in e.applied.items()},
            "window_ms": round(e.window * 1000, 1),
            "times": {step: round(seconds, 3) for step, seconds in e.times.items()},
            "quality": _quality([e]),
        }
        for e in found
    ]
    columns = ("channel", "generation", "epoch", "state", "published", "rows", "window_ms")
    said = ["; ".join(q.in_words() for q in by_dataset(e.quality) if not q.is_good) or None for e in found]
    shown = [{**row, "broken": text} for row, text in zip(rows, said, strict=True)]
    at.out.show(rows, Table(shown, (*columns, "broken") if any(said) else columns, empty="no epochs yet"))


def _quality(epochs: Iterable[EpochRecord]) -> list[dict[str, Any]]:
    """What became of the rows of each dataset with rules."""
    return [
        {
            "dataset": q.dataset,
            "rows": q.rows,
            "broke_a_rule": q.breaking,
            "dropped": q.dropped,
            "quarantined": q.quarantined,
            "by_rule": {**q.broken, **q.repeated},
        }
        for q in by_dataset(one for e in epochs for one in e.quality)
    ]


def _channel(name: str, generation: int, recent: tuple[EpochRecord, ...], holders: dict[str, Any]) -> dict[str, Any]:
    published = [e for e in recent if e.published_at is not None]
    windows = [e.window * 1000 for e in published]
    holder = holders.get(name)
    waiting = [e for e in recent if e.published_at is None]
    return {
        "channel": name,
        "running": f"process {holder.pid} on {holder.host}" if holder else None,
        "generation": generation,
        "epoch": published[0].key.epoch if published else None,
        "published": _moment(published[0].published_at) if published else None,
        "open": ", ".join(f"epoch {e.key.epoch} {e.state}" for e in waiting) or None,
        "plain_reader_window_ms": round(median(windows), 1) if windows else None,
        "worst_window_ms": round(max(windows), 1) if windows else None,
    }


def _moment(seconds: float | None) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds") if seconds else None
