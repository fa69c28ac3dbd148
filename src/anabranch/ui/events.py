"""Events with filters and a live tail, and the list of runs."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from anabranch.core.event_kinds import vocabulary
from anabranch.store.history import LEVELS, History, StoredEvent, StoredRun
from anabranch.ui.render import fragment, page, sight_of
from anabranch.ui.sight import Look, standing

#: How many events a page begins with, and may be asked for.
LIMITS = (100, 500, 2000)
#: Events that one look of the tail brings.
_TAIL = 200
_RUNS = 100


@dataclass(frozen=True, slots=True)
class Filters:
    """What is asked for; an empty text asks for nothing."""

    level: str = "info"
    kind: str = ""
    channel: str = ""
    dataset: str = ""
    run: str = ""

    def find(self, history: History, *, after: int | None = None, limit: int) -> list[StoredEvent]:
        """The events, in the order they came."""
        return history.events(
            after=after,
            level=self.level,
            kinds=[self.kind] if self.kind else (),
            channel=self.channel or None,
            dataset=self.dataset or None,
            run=self.run or None,
            limit=limit,
        )


def events(request: Request) -> Response:
    """The page, newest first."""
    look = Look(sight_of(request))
    filters = _filters(request)
    asked = request.query_params.get("limit", "")
    limit = int(asked) if asked in map(str, LIMITS) else LIMITS[0]
    found: list[StoredEvent] = []
    newest = 0
    with look.forgiving():
        newest = look.sight.history.newest()  # asked first, so that nothing falls between
        found = filters.find(look.sight.history, limit=limit)[::-1]
    known = standing(look, recent=0)
    more = next((n for n in LIMITS if n > limit), None) if len(found) == limit else None
    return page(
        request,
        "events.html",
        look,
        nav="events",
        filters=filters,
        kinds=sorted(vocabulary()),
        levels=tuple(LEVELS),
        channels=[c.channel for c in known.channels],
        datasets=sorted({o.name for c in known.channels for o in c.outputs}),
        events=found,
        last=max([newest, *(e.sequence for e in found[:1])]),
        more=more,
        limit=limit,
    )


def tail(request: Request) -> Response:
    """What came since; no answer at all when nothing did."""
    look = Look(sight_of(request))
    filters, said = _filters(request), request.query_params.get("after", "")
    after = int(said) if said.isdecimal() and len(said) < 18 else 0
    found: list[StoredEvent] = []
    with look.forgiving():
        if look.sight.history.newest() < after:
            after = 0  # a damaged history was replaced by a new one
        found = filters.find(look.sight.history, after=after, limit=_TAIL)
    if not found:
        return Response(status_code=204)
    return fragment("tail.html", events=found[::-1], filters=filters, last=found[-1].sequence)


def runs(request: Request) -> Response:
    """The runs, newest first."""
    look = Look(sight_of(request))
    found: list[StoredRun] = []
    with look.forgiving():
        found = look.sight.history.runs(limit=_RUNS)
    return page(request, "runs.html", look, nav="runs", runs=found, most=_RUNS)


def _filters(request: Request) -> Filters:
    said = request.query_params
    level = said.get("level", "info")
    kind = said.get("kind", "")
    return Filters(
        level if level in LEVELS else "info",
        kind if kind in vocabulary() else "",
        said.get("channel", ""),
        said.get("dataset", ""),
        said.get("run", ""),
    )
