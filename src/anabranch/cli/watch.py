"""`anabranch watch`: judge detectors from outside the runs, and alert."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.output import Table, TextOutput
from anabranch.cli.show_errors import Line, one_line, plain_text
from anabranch.cli.verb import Invocation
from anabranch.errors import AnabranchError
from anabranch.store.status import moment

if TYPE_CHECKING:
    from anabranch.watch.detect import Outcome, Watched

#: What `watch --once` ends with when incidents are open.
OPEN = 7

_STYLES = {"warn": "yellow", "error": "bold red"}


def watch(
    at: Invocation,
    once: Annotated[bool, typer.Option("--once", help="Look once; exit code 7 if incidents are open.")] = False,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="How long to wait between looks.")] = "30s",
) -> None:
    """Judge the detectors of the project from outside its runs: alert when an incident begins, and when it ends."""
    from anabranch.load.project import read_project
    from anabranch.watch.detect import look_once, watched

    seconds = _seconds(every)
    found = watched(read_project(at.project))
    for note in found.notes:
        at.out.note(f"warning: detectors in it are not watched: {one_line(note)}")
    if once:
        outcome = look_once(found, lambda alert: _once_shown(at, alert))
        _show(at, found, outcome)
        if outcome.going_on:
            raise typer.Exit(OPEN)
        return
    _follow(at, found, seconds)


def _seconds(text: str) -> float:
    from anabranch.load.durations import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"--every: {error}") from error
    if seconds <= 0:
        raise typer.BadParameter("--every must be longer than nothing")
    return seconds


def _follow(at: Invocation, found: Watched, seconds: float) -> None:
    from anabranch.watch.detect import look_once

    at.out.note(f"watching {len(found.pipeline.detectors)} detectors, every {seconds:g} seconds; Ctrl-C ends it")
    for incident in found.incidents.open():
        at.out.note(f"open since {moment(incident.opened)}: {plain_text(incident.message)}")
    told: set[str] = set()
    try:
        while True:
            now: set[str] = set()
            try:
                outcome = look_once(found, lambda alert: at.out.line(alert, _line(alert)))
            except AnabranchError as error:  # a ledger that is away may be back at the next look
                now.add(f"this look failed: {error.message} ({error.code})")
            else:
                now |= {f"{name}: {reason}" for name, reason in outcome.unknown.items()}
                now |= {f"{r.reason}; it is tried again" for r in outcome.refused}
            for text in sorted(now - told):  # once, and again when it had been well meanwhile
                at.out.note(text)
            told = now
            time.sleep(seconds)
    except KeyboardInterrupt:
        return  # the way to end it


def _once_shown(at: Invocation, alert: dict[str, Any]) -> None:
    """With --json the document at the end has it all, and must be the only thing on stdout."""
    if isinstance(at.out, TextOutput):
        at.out.line(alert, _line(alert))


def _line(alert: dict[str, Any]) -> Line:
    if alert["alert"] == "closed":
        return [
            (f"{alert['closed']}  ", "dim"),
            ("closed  ", "green"),
            (plain_text(alert["detector"]), "bold"),
            (f"  {plain_text(alert['ending'])}, after: {plain_text(alert['message'])}", ""),
        ]
    return [
        (f"{alert['opened']}  ", "dim"),
        ("opened  ", _STYLES[alert["severity"]]),
        (plain_text(alert["detector"]), "bold"),
        (f"  {plain_text(alert['message'])}", ""),
    ]


def _show(at: Invocation, found: Watched, outcome: Outcome) -> None:
    from anabranch.watch.alerts import incident_record

    going_on = [incident_record(i) for i in outcome.going_on]
    document = {
        "detectors": len(found.pipeline.detectors),
        "opened": [incident_record(i) for i in outcome.opened],
        "closed": [incident_record(i) for i in outcome.closed],
        "open": going_on,
        "unknown": dict(outcome.unknown),
        "not_told": [asdict(r) for r in outcome.refused],
    }
    for name, reason in outcome.unknown.items():
        at.out.note(f"{name}: {reason}")
    for refused in outcome.refused:
        at.out.note(f"{refused.reason}; it is tried again at the next look")
    at.out.show(document, Table([open_record(i) for i in going_on], empty="no incidents are open"))


def open_record(incident: dict[str, Any]) -> dict[str, Any]:
    """An incident as a row of a table."""
    return {name: incident[name] for name in ("opened", "severity", "detector", "message")}
