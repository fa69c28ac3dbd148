"""`anabranch status`: what the ledger and the history know, without a JVM."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anabranch.cli.epochs import quality_records
from anabranch.cli.history import run_record
from anabranch.cli.output import Facts, Part, Table, TextOutput, console
from anabranch.cli.verb import Invocation
from anabranch.cli.watch import open_record
from anabranch.errors import StateError
from anabranch.store.status import RECENT, channel_record, moment

if TYPE_CHECKING:
    from anabranch.load.project import Project
    from anabranch.store.history import History

#: How often `--watch` looks again, in seconds.
_LOOK_AGAIN = 2.0


def status(
    at: Invocation,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every 2 seconds, until Ctrl-C.")] = False,
) -> None:
    """Show each channel's published epoch and state, each table's version at the cut, and how the last run ended."""
    from anabranch.load.project import read_project

    project = read_project(at.project)
    if watch:
        _watch(at, project)
        return
    document, parts = _look(at, project)
    at.out.show(document, *parts)


def _watch(at: Invocation, project: Project) -> None:
    """On a terminal in place; else the whole status again whenever something in it has changed."""
    on = console(sys.stdout) if isinstance(at.out, TextOutput) and sys.stdout.isatty() else None
    before = None
    try:
        while True:
            document, parts = _look(at, project)
            if on:
                on.clear()
                at.out.show(document, *parts, "", f"{moment(time.time())}  Ctrl-C ends it")
            elif (now := _without_clocks(document)) != before:
                before = now
                if isinstance(at.out, TextOutput):
                    at.out.show(document, *parts, "")
                else:
                    at.out.line(document, [])
            time.sleep(_LOOK_AGAIN)
    except KeyboardInterrupt:
        return  # the way to end it


def _look(at: Invocation, project: Project) -> tuple[dict[str, Any], list[Part]]:
    from anabranch.read import open_ledger
    from anabranch.store.history import History
    from anabranch.store.lineage_versions import newest_lineage
    from anabranch.watch.alerts import incident_record
    from anabranch.watch.incidents import incidents_of

    history = History.of(project.storage)
    with open_ledger(project) as (ledger, found):
        pipeline = found.pipeline_id
        holders = ledger.holders(pipeline)
        known = [c for c in ledger.channels(pipeline) if c.outputs]
        recent = {c.channel: ledger.epochs(pipeline, channel=c.channel, limit=RECENT) for c in known}
        channels = [channel_record(c.channel, c.generation, recent[c.channel], holders) for c in known]
        cut = ledger.cut(pipeline)
    last_run, incidents, owners = None, [], dict[str, str | None]()
    try:  # what it adds is worth having, and no reason to show nothing
        last_run = next((run_record(run) for run in history.runs(limit=1)), None)
        channels = [{**row, **_reading(history, row["channel"])} for row in channels]
        owners = {name: one.lineage.owner for name, one in newest_lineage(history).items()}
        incidents = [incident_record(incident) for incident in incidents_of(project).open()]
    except StateError as error:
        at.out.note(f"{error.message} ({error.code})")
    tables = [
        {"table": t.name, "format": t.format, "version": t.version, "channel": t.channel, "epoch": t.epoch}
        for t in cut.tables.values()
    ]
    quality = [row for found in recent.values() for row in quality_records(found)]
    document = {"last_run": last_run, "channels": channels, "tables": tables, "quality": quality}
    document["incidents"] = incidents
    document["tables"] = [{**row, "owner": owners.get(str(row["table"]))} for row in tables]
    parts: list[Part] = [Facts({"last run": _in_words(last_run)}), ""] if last_run else []
    if incidents:
        parts += ["open incidents", Table([open_record(each) for each in incidents]), ""]
    parts += [Table(channels, empty="no channels yet"), "", Table(tables, empty="nothing published yet")]
    if quality:
        parts += ["", f"rules, over the last {RECENT} epochs of each channel", Table(quality)]
    return document, parts


def _without_clocks(document: dict[str, Any]) -> dict[str, Any]:
    """What is worth showing again when it differs; that a run still goes on is not."""
    run = {k: v for k, v in (document["last_run"] or {}).items() if k not in ("seconds", "seen")}
    incidents = [each["incident"] for each in document["incidents"]]
    return {**document, "last_run": run, "incidents": incidents}


def _in_words(run: dict[str, Any]) -> str:
    why = f": {run['message']} ({run['code']})" if run["code"] else ""
    done = f"{run['epochs']:,} epochs, {run['rows']:,} rows, {run['seconds']:.2f} s"
    return f"{run['outcome']}, started {run['started']}, {done}{why}"


def _reading(history: History, channel: str) -> dict[str, Any]:
    """How fast it read when it last did, and how far its sources were ahead."""
    newest = next(iter(history.progress_over_time(channel, limit=1)), None)
    rate = newest.process_rate if newest else None
    return {
        "rows_per_second": round(rate) if rate is not None else None,
        "lag": ", ".join(f"{number:,} {unit}" for unit, number in newest.behind.items()) or None if newest else None,
    }
