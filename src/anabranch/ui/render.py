"""Pages from templates. Everything that is put into one is escaped; a live part that has not changed is not sent."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from anabranch.ui import words
from anabranch.ui.sight import Look, Sight

STATIC = Path(__file__).parent / "static"


@lru_cache(maxsize=1)
def _templates() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        moment=words.moment,
        iso=words.iso,
        duration=words.duration,
        number=words.number,
        size=words.size,
        units=words.units,
        pretty=words.pretty,
        seen=words.seen,
        path=lambda text: quote(str(text), safe=""),
    )
    made.globals.update(share=words.share, query=query, version=version("anabranch"), stamp=_stamp())
    return made


def query(**given: Any) -> str:
    """A query string of what is not empty.

    >>> query(channel="a b", level="", page=None)
    '?channel=a+b'
    """
    said = {name: value for name, value in given.items() if value not in (None, "")}
    return f"?{urlencode(said)}" if said else ""


def sight_of(request: Request) -> Sight:
    """The project that the server shows."""
    found: Sight = request.app.state.sight
    return found


def page(request: Request, template: str, look: Look, *, status: int = 200, **given: Any) -> Response:
    """A whole page, or its live part alone where that is asked for: nothing, if it is what the browser has."""
    values = {"look": look, "project": look.sight.project, "sight": look.sight, "here": request.url.path, **given}
    found = _templates().get_template(template)
    digest = _digest(found, values) if "live" in found.blocks else ""
    if request.query_params.get("part") != "live":
        return HTMLResponse(found.render(values, seen_as=digest), status)
    if digest in ("", request.query_params.get("seen")):
        return Response(status_code=204)  # htmx leaves the page, and what has the focus, alone
    return HTMLResponse(_live(found, {**values, "seen_as": digest}))


def _live(template: Template, values: dict[str, Any]) -> str:
    return "".join(template.blocks["live"](template.new_context(values)))


def _digest(template: Template, values: dict[str, Any]) -> str:
    return hashlib.blake2b(_live(template, {**values, "seen_as": ""}).encode(), digest_size=8).hexdigest()


def fragment(template: str, **given: Any) -> Response:
    """A piece of a page."""
    return HTMLResponse(_templates().get_template(template).render(given))


def _stamp() -> str:
    """What is added to addresses of static files, so that browsers keep them until they change."""
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(STATIC.rglob("*")):
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()
