"""`anabranch events`: what the runs of a project told, while they work and after."""

from __future__ import annotations

import time
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from anabranch.cli.moments import said_since
from anabranch.cli.show_errors import Line, plain_text
from anabranch.cli.verb import Invocation
from anabranch.store.status import moment

if TYPE_CHECKING:
    from anabranch.store.history import StoredEvent

#: How often to look for new events, in seconds: a database cannot wake anybody up.
_LOOK_AGAIN = 0.5

#: Events that are asked for at once.
_MOST = 1000

_STYLES = {"info": "dim", "warn": "yellow", "error": "bold red"}


class Level(StrEnum):
    """How bad it must be."""

    INFO = "info"
    WARN = "warn"
    ERROR = "error"


def events(
    at: Invocation,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on showing what comes, until Ctrl-C.")] = False,
    level: Annotated[Level, typer.Option("--level", help="The least bad to show.")] = Level.INFO,
    channel: Annotated[str | None, typer.Option("--channel", help="Of this channel only.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", help="About this table, view or sink only.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help='A duration such as "2 hours", or a time.')
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="How many, the newest.")] = 50,
) -> None:
    """Show what runs told, oldest first; with --json, a line of JSON for each."""
    from anabranch.load.project import read_project
    from anabranch.store.history import History

    history, asked = History.of(read_project(at.project).storage), said_since(since)
    last = history.newest()  # asked first, so that nothing falls between
    shown = history.events(level=level, channel=channel, dataset=dataset, since=asked, limit=limit)
    for event in shown:
        _show(at, event)
    if not follow:
        if not shown:
            at.out.note("no events")
        return
    last = max([last, *(event.sequence for event in shown)])
    try:
        while True:
            newest = history.newest()
            last = last if newest >= last else 0  # a damaged history was replaced by a new one
            found = history.events(after=last, level=level, channel=channel, dataset=dataset, limit=_MOST)
            for event in found:
                _show(at, event)
            if len(found) < _MOST:
                last = max(newest, *(event.sequence for event in found), last)
                time.sleep(_LOOK_AGAIN)
            else:
                last = found[-1].sequence
    except KeyboardInterrupt:
        return  # the way to end it


def _show(at: Invocation, event: StoredEvent) -> None:
    at.out.line({**asdict(event), "time": moment(event.at)}, _line(event))


def _line(event: StoredEvent) -> Line:
    style = "" if event.level == "info" else _STYLES[event.level]
    place = f"  {plain_text(event.place)}" if event.place else ""
    return [
        (f"{moment(event.at)}  "[:19] + "  ", "dim"),
        (f"{event.level:<5}  ", _STYLES[event.level]),
        (plain_text(event.message), style),
        (place, "dim"),
    ]
