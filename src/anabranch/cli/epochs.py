"""`anabranch epochs`: what the ledger knows of every epoch, without a JVM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import Table
from anabranch.cli.verb import Invocation
from anabranch.core.event_words import shown_steps
from anabranch.core.quality import by_dataset
from anabranch.store.status import moment

if TYPE_CHECKING:
    from anabranch.store.ledger import EpochRecord

_COLUMNS = ("channel", "generation", "epoch", "state", "published", "rows", "versions", "seconds", "window_ms")


def epochs(
    at: Invocation,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many, newest first.")] = 20,
    channel: Annotated[str | None, typer.Option("--channel", help="Of this channel only.")] = None,
) -> None:
    """List epochs, newest first, with rows and versions for each output, the time of each step and the torn window."""
    from anabranch.load.project import read_project
    from anabranch.read import open_ledger

    with open_ledger(read_project(at.project)) as (ledger, pipeline):
        found = ledger.epochs(pipeline.pipeline_id, channel=channel, limit=limit)
    rows = [_record(epoch) for epoch in found]
    said = ["; ".join(q.in_words() for q in by_dataset(e.quality) if not q.is_good) or None for e in found]
    shown = [{**row, "seconds": _seconds(e), "broken": text} for row, e, text in zip(rows, found, said, strict=True)]
    at.out.show(rows, Table(shown, (*_COLUMNS, "broken") if any(said) else _COLUMNS, empty="no epochs yet"))


def _record(epoch: EpochRecord) -> dict[str, Any]:
    return {
        "channel": epoch.key.channel,
        "generation": epoch.key.generation,
        "epoch": epoch.key.epoch,
        "state": str(epoch.state),
        "decided": moment(epoch.decided_at),
        "published": moment(epoch.published_at),
        "rows": {name: receipt.rows for name, receipt in epoch.receipts.items()},
        "versions": {name: applied.version for name, applied in epoch.applied.items()},
        "window_ms": round(epoch.window * 1000, 1),
        "times": {step: round(seconds, 3) for step, seconds in epoch.times.items()},
        "quality": quality_records([epoch]),
    }


def _seconds(epoch: EpochRecord) -> str | None:
    return f"{sum(epoch.times.values()):.2f}: {shown_steps(epoch.times)}" if epoch.times else None


def quality_records(epochs: Iterable[EpochRecord]) -> list[dict[str, Any]]:
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
