"""Remove an output that is no longer declared: from the ledger first, so that no reader is led to it, then its files.

1. the channel's lease is taken, and what it had decided is finished
2. the ledger forgets the output, and notes that its files are to go      dropping
3. the files are removed                                                  removing
4. the note goes
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from anabranch.connectors.folder import Folder
from anabranch.core import crash
from anabranch.core.quality import quarantine_of
from anabranch.engine.lease import lease
from anabranch.engine.recover import recover
from anabranch.errors import ProjectError, StateError, did_you_mean
from anabranch.store.ledger import OutputRecord

if TYPE_CHECKING:
    from anabranch.core.declarations import Dataset, Pipeline
    from anabranch.core.events import Listener
    from anabranch.engine.opened import Opened


@dataclass(frozen=True, slots=True)
class Droppable:
    """An output that may go, where it is, and the channel it belonged to, if that is still known."""

    output: OutputRecord
    place: str
    channel: str | None


def droppable(opened: Opened, pipeline: Pipeline, name: str) -> Droppable:
    """The output of this name; refuses one that is declared, and one whose folder another one uses."""
    declared = [*(d for d in pipeline.datasets if d.is_output), *filter(None, map(quarantine_of, pipeline.datasets))]
    if still := next((d for d in declared if d.name == name), None):
        raise ProjectError(
            "STILL_DECLARED",
            f'"{name}" is declared in the project, the next run would make it again',
            where=still.where,
            hint="take it out of the project first; to build it anew: anabranch run --full-refresh " + name,
        )
    known = opened.ledger.output(opened.pipeline.pipeline_id, name)
    output = known.output if known else OutputRecord(name, "delta", f"tables/{name}")
    place = opened.storage.absolute(output.location)
    if known is None and not Folder(f"{place}/_delta_log").exists(""):
        raise _unknown(opened, name, {d.name for d in declared})
    if user := _also_there(opened, declared, output, place):
        raise StateError(
            "TABLE_SHARED",
            f'the files of "{name}" are at {place}, which "{user}" uses as well',
            hint=f'leave them there: they are the files of "{user}" now',
        )
    return Droppable(output, place, known.channel if known else None)


def drop(opened: Opened, found: Droppable, listener: Listener, declared: Iterable[Dataset] = ()) -> None:
    """Remove it. Killed half way, it is finished by calling this again."""
    ledger, pipeline, name = opened.ledger, opened.pipeline.pipeline_id, found.output.name
    with ExitStack() as stack:
        if found.channel is not None:
            held, _ = stack.enter_context(lease(opened, found.channel))
            channel = opened.channel(found.channel)
            recover(ledger, held, opened.sinks(channel.outputs if channel else (), declared), listener)  # 1
            ledger.drop(held, name)  # 2
            crash.point("dropping", name)
        opened.sinks([found.output])[name].remove()  # 3
        crash.point("removing", name)
        ledger.dropped(pipeline, name)  # 4


def _also_there(opened: Opened, declared: Iterable[Dataset], output: OutputRecord, place: str) -> str | None:
    """Another output, declared or remembered, whose folder is this one, or is in it, or around it."""
    places = {d.name: opened.storage.location(d) for d in declared}
    for channel in opened.ledger.channels(opened.pipeline.pipeline_id):
        places |= {o.name: o.location for o in channel.outputs}
    mine = PurePath(place)
    for name, location in places.items():
        other = PurePath(opened.storage.absolute(location))
        if name != output.name and (mine.is_relative_to(other) or other.is_relative_to(mine)):
            return name
    return None


def _unknown(opened: Opened, name: str, declared: set[str]) -> ProjectError:
    channels = opened.ledger.channels(opened.pipeline.pipeline_id)
    names = sorted({o.name for c in channels for o in c.outputs} - declared)
    return ProjectError(
        "TABLE_UNKNOWN",
        f'no table "{name}": neither the ledger nor {opened.storage.root} has it',
        hint=did_you_mean(name, names) or f"no longer declared, and still there: {', '.join(names) or 'none'}",
    )
