"""What the page can see of a project: ledger, history and declarations, each of which may be missing or broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from anabranch.core.epoch import CutRecord
from anabranch.core.hidden import hide
from anabranch.errors import AnabranchError
from anabranch.load.project import Project
from anabranch.read import open_ledger
from anabranch.store.history import History
from anabranch.store.ledger import ChannelRecord, EpochRecord, Ledger
from anabranch.store.process import Holder
from anabranch.ui.declared import Declarations, Declared, Problem
from anabranch.ui.examine import problem_records

#: What an empty project answers; that is no problem, only nothing to show yet.
_NOTHING_YET = "NOTHING_RUN_YET"


@dataclass(frozen=True)
class Sight:
    """One project. Nothing is kept open between two requests; may be used from any thread."""

    project: Project

    @cached_property
    def history(self) -> History:
        """The history; it may not be there yet."""
        return History.of(self.project.storage)

    @cached_property
    def declarations(self) -> Declarations:
        """What the files say."""
        return Declarations(self.project)

    @property
    def places(self) -> dict[str, str]:
        """Where things are, as the project file would say it; without passwords."""
        inside = f"{self.project.root}/"
        said = {"project": self.project.spec_file.name, "storage": self.project.storage, "ledger": self.project.ledger}
        return {what: hide(place.removeprefix(inside)) for what, place in said.items()}


@dataclass
class Look:
    """One look at a project, for one answer; `problems` are what could not be seen, in words."""

    sight: Sight
    problems: list[Problem] = field(default_factory=list)
    nothing_run: bool = False

    @cached_property
    def declared(self) -> Declared:
        """What the files say; problems of theirs are told on every page that shows them."""
        return self.sight.declarations.now()

    @contextmanager
    def ledger(self) -> Iterator[tuple[Ledger, str]]:
        """The open ledger and the pipeline's id in it."""
        with open_ledger(self.sight.project) as (ledger, pipeline):
            yield ledger, pipeline.pipeline_id

    @contextmanager
    def forgiving(self) -> Iterator[None]:
        """Turn an error of ours into words on the page, and show the rest."""
        try:
            yield
        except AnabranchError as error:
            if error.code == _NOTHING_YET:
                self.nothing_run = True
                return
            found = [Problem(**record) for record in problem_records(error, self.sight.project.root)]
            self.problems += [problem for problem in found if problem not in self.problems]


@dataclass
class Standing:
    """What the ledger says of all channels; empty when it says nothing."""

    channels: tuple[ChannelRecord, ...] = ()
    holders: dict[str, Holder] = field(default_factory=dict)
    recent: dict[str, tuple[EpochRecord, ...]] = field(default_factory=dict)
    cut: CutRecord | None = None


def standing(look: Look, recent: int = 20) -> Standing:
    """The channels, who works on them, their newest epochs and the cut."""
    found = Standing()
    with look.forgiving(), look.ledger() as (ledger, pipeline):
        found.channels = tuple(c for c in ledger.channels(pipeline) if c.outputs)
        found.holders = ledger.holders(pipeline)
        if recent:
            found.recent = {c.channel: ledger.epochs(pipeline, channel=c.channel, limit=recent) for c in found.channels}
        found.cut = ledger.cut(pipeline)
    return found


def place_of(sight: Sight, location: str) -> str:
    """Where a table is, absolute."""
    return location if "://" in location else str(Path(sight.project.storage) / location)
