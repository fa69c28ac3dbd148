"""The first page: how the pipeline stands, its channels, its last runs and what went wrong lately."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from anabranch.core.epoch import OPEN
from anabranch.store.history import ProgressPoint, StoredRun
from anabranch.store.ledger import ChannelRecord, EpochRecord
from anabranch.store.process import Holder
from anabranch.ui.render import fragment, page, sight_of
from anabranch.ui.sight import Look, Standing, place_of, standing
from anabranch.ui.tables import letters_total
from anabranch.watch.incidents import Incident, incidents_of

#: Runs whose marks are shown.
RUNS = 5


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A channel as the page shows it."""

    name: str
    generation: int
    outputs: int
    holder: Holder | None
    newest: EpochRecord | None
    waiting: tuple[EpochRecord, ...]
    rate: float | None
    behind: dict[str, int]
    window: float | None
    kept_out: int


def overview(request: Request) -> Response:
    """The page, and its live part."""
    look = Look(sight_of(request))
    found = standing(look)
    runs: list[StoredRun] = []
    progress: dict[str, ProgressPoint] = {}
    warnings: list[Any] = []
    incidents: list[Incident] = []
    with look.forgiving():
        incidents = sorted(incidents_of(look.sight.project).open(), key=lambda i: i.severity != "error")
        runs = look.sight.history.runs(limit=RUNS)
        warnings = look.sight.history.events(level="warn", limit=5)[::-1]
        for channel in found.channels:
            if points := look.sight.history.progress_over_time(channel.channel, limit=1):
                progress[channel.channel] = points[0]
    rows = [_row(c, found, progress.get(c.channel)) for c in found.channels]
    return page(
        request,
        "overview.html",
        look,
        nav="overview",
        channels=rows,
        runs=runs,
        warnings=warnings,
        incidents=incidents,
        known=look.declared.by_name if incidents else {},
        state=state_of(found, runs),
        totals=_totals(rows),
        tables=len(found.cut.tables) if found.cut else 0,
    )


def state_of(found: Standing, runs: Sequence[StoredRun]) -> str:
    """One word for how the pipeline stands."""
    if found.holders or (runs and runs[0].outcome == "running"):
        return "running"
    return runs[0].outcome if runs else "done" if found.channels else "new"


def dead_letter_total(request: Request) -> Response:
    """How many dead letters all tables hold, for the tile of the overview; counted beside the page."""
    look = Look(sight_of(request))
    total, known = 0, False
    with look.forgiving(), look.ledger() as (ledger, pipeline):
        cut = ledger.cut(pipeline)
    if not look.problems and not look.nothing_run:
        names = quarantines(look, cut.tables)
        with look.forgiving():
            total = sum(letters_total(cut.tables[n], place_of(look.sight, cut.tables[n].location)) for n in names)
            known = True
    return fragment("letters_total.html", total=total if known else None, nothing=look.nothing_run)


def quarantines(look: Look, tables: Iterable[str]) -> list[str]:
    """The tables at the cut that hold dead letters; those that are not declared any more by their names."""
    known = look.declared.by_name
    asides = {node.quarantine for node in known.values()}
    return [name for name in tables if name in asides or (name not in known and name.endswith("_quarantine"))]


def _row(channel: ChannelRecord, found: Standing, progress: ProgressPoint | None) -> ChannelRow:
    recent = found.recent.get(channel.channel, ())
    published = [e for e in recent if e.published_at is not None]
    windows = [e.window for e in published]
    return ChannelRow(
        channel.channel,
        channel.generation,
        len(channel.outputs),
        found.holders.get(channel.channel),
        published[0] if published else None,
        tuple(e for e in recent if e.state in OPEN),
        _rate(progress, published),
        dict(progress.behind) if progress else {},
        max(windows) if windows else None,
        sum(q.dropped + q.quarantined for e in recent for q in e.quality),
    )


def _rate(progress: ProgressPoint | None, published: Sequence[EpochRecord]) -> float | None:
    """Rows a second: as the channel said it, or else what its newest epoch wrote in its time."""
    if progress and progress.process_rate is not None:
        return progress.process_rate
    if not published or not (seconds := sum(published[0].times.values())):
        return None
    return sum(r.rows for r in published[0].receipts.values()) / seconds


def _totals(rows: Sequence[ChannelRow]) -> dict[str, Any]:
    behind: dict[str, int] = {}
    for row in rows:
        for unit, count in row.behind.items():
            behind[unit] = behind.get(unit, 0) + count
    rates = [row.rate for row in rows if row.rate is not None]
    newest = [row.newest.published_at for row in rows if row.newest]
    return {
        "behind": behind,
        "rate": sum(rates) if rates else None,
        "published": max((at for at in newest if at is not None), default=None),
        "waiting": sum(len(row.waiting) for row in rows),
    }
