"""Dead letters: the rows that tables did not take, by reason, with each record."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from anabranch.ui.epochs import page_number
from anabranch.ui.overview import quarantines
from anabranch.ui.render import page, sight_of
from anabranch.ui.sight import Look, place_of, standing
from anabranch.ui.tables import LETTERS, Letters, letters, letters_total


def dead_letters(request: Request) -> Response:
    """The page. One table is shown at a time, and of it all reasons or one."""
    look = Look(sight_of(request))
    said = request.query_params
    found = standing(look, recent=0)
    tables = found.cut.tables if found.cut else {}
    names = quarantines(look, tables)
    totals: dict[str, int] = {}
    shown: Letters | None = None
    reason, number = said.get("reason") or None, page_number(said.get("page"))
    for name in names:
        with look.forgiving():
            totals[name] = letters_total(tables[name], place_of(look.sight, tables[name].location))
    chosen = said.get("table") if said.get("table") in names else next((n for n in names if totals.get(n)), None)
    if chosen:
        with look.forgiving():
            place = place_of(look.sight, tables[chosen].location)
            shown = letters(tables[chosen], place, reason, (number - 1) * LETTERS)
    return page(
        request,
        "dead_letters.html",
        look,
        nav="dead letters",
        totals=totals,
        chosen=chosen,
        of={node.quarantine: node.name for node in look.declared.nodes if node.quarantine},
        table=tables.get(chosen) if chosen else None,
        letters=shown,
        reason=reason,
        page=number,
        more=shown is not None and number * LETTERS < shown.matching,
        declares=any(node.quarantine for node in look.declared.nodes),
    )
