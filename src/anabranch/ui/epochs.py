"""Epochs: the list with the cut, and the page of one with every step, sink and receipt."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from starlette.requests import Request
from starlette.responses import Response

from anabranch.core.epoch import EpochKey, State
from anabranch.core.quality import DatasetQuality, by_dataset
from anabranch.store.ledger import EpochRecord
from anabranch.ui.render import page, sight_of
from anabranch.ui.sight import Look, standing
from anabranch.ui.tables import offsets_lines

#: Epochs on one page of the list.
PAGE = 50
#: Files of one receipt that are listed.
FILES = 100

#: The steps of an epoch in their order; the ledger keeps them by name.
ORDER = ("read", "flows", "stage", "decide", "apply", "publish")

STATES = ("decided", "applied", "published", "restage", "discarded")


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and most of something over some epochs, in seconds."""

    what: str
    least: float
    middle: float
    most: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A step of an epoch on its time line, in parts of a thousand."""

    step: str
    seconds: float
    start: float
    width: float


def epochs(request: Request) -> Response:
    """The list, newest first, with the cut above it."""
    look = Look(sight_of(request))
    said = request.query_params
    channel, state, number = said.get("channel") or None, said.get("state") or None, page_number(said.get("page"))
    state = state if state in STATES else None
    found = standing(look, recent=0)
    rows: tuple[EpochRecord, ...] = ()
    with look.forgiving(), look.ledger() as (ledger, pipeline):
        states = [State(state)] if state else None
        rows = ledger.epochs(
            pipeline, channel=channel, states=states, limit=PAGE + 1, skip=(number - 1) * PAGE
        )  # one more, to know whether there is another page
    return page(
        request,
        "epochs.html",
        look,
        nav="epochs",
        channels=[c.channel for c in found.channels],
        channel=channel,
        state=state,
        states=STATES,
        cut=found.cut,
        rows=[(row, _words(row)) for row in rows[:PAGE]],
        page=number,
        more=len(rows) > PAGE,
        spreads=spreads(rows[:PAGE]),
    )


def epoch(request: Request) -> Response:
    """One epoch."""
    look = Look(sight_of(request))
    where = request.path_params
    record = before = after = None
    with look.forgiving(), look.ledger() as (ledger, pipeline):
        key = EpochKey(pipeline, where["channel"], where["generation"], where["epoch"])
        record = ledger.epoch(key)
        before, after = (
            ledger.epoch(EpochKey(pipeline, key.channel, key.generation, key.epoch + n)) is not None for n in (-1, 1)
        )
    if record is None:
        what = f'epoch {where["epoch"]} of channel "{where["channel"]}" is not in the ledger'
        return page(request, "missing.html", look, status=404 if not look.problems else 200, nav="epochs", what=what)
    return page(
        request,
        "epoch.html",
        look,
        nav="epochs",
        epoch=record,
        before=before,
        after=after,
        bars=bars(record),
        quality=by_dataset(record.quality),
        offsets=offsets_lines(record.offsets),
        most_files=FILES,
    )


def page_number(text: str | None) -> int:
    """The page that is asked for.

    >>> page_number("3"), page_number("-1"), page_number("x"), page_number(None)
    (3, 1, 1, 1)
    """
    return max(1, int(text)) if text and text.isdecimal() and len(text) < 7 else 1


def spreads(rows: tuple[EpochRecord, ...]) -> list[Spread]:
    """How long the steps took, over these epochs."""
    by_step: dict[str, list[float]] = {}
    published = [row for row in rows if row.published_at is not None]
    for row in published:
        for step, seconds in row.times.items():
            by_step.setdefault(step, []).append(seconds)
    if published:
        by_step["torn for plain readers"] = [row.window for row in published]
    steps = sorted(by_step, key=step_place)
    return [Spread(step, min(by_step[step]), median(by_step[step]), max(by_step[step])) for step in steps]


def bars(record: EpochRecord) -> list[Bar]:
    """The steps one after the other; each is wide enough to be seen."""
    whole = sum(record.times.values()) or 1.0
    found, at = [], 0.0
    for step in sorted(record.times, key=step_place):
        seconds = record.times[step]
        width = max(4.0, 1000 * seconds / whole)
        found.append(Bar(step, seconds, at, width))
        at += width
    scale = 1000 / at if at else 1.0
    return [Bar(b.step, b.seconds, b.start * scale, b.width * scale) for b in found]


def step_place(step: str) -> int:
    """Which of the steps it is; one that is not known comes last."""
    return ORDER.index(step) if step in ORDER else len(ORDER)


def _words(row: EpochRecord) -> str:
    return "; ".join(_short(q) for q in by_dataset(row.quality) if not q.is_good)


def _short(found: DatasetQuality) -> str:
    if found.broken:
        return f"{found.dataset}: {found.breaking:,} of {found.rows:,} rows"
    return f"{found.dataset}: {max(found.repeated.values()):,} repeat a key"
