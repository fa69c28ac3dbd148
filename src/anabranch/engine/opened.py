"""A project with its storage and its ledger open: what every verb that touches data begins with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.connectors.contract import SinkSpec
from anabranch.connectors.registry import open_sink
from anabranch.engine.handlers import handler_of
from anabranch.engine.storage import Storage, claim
from anabranch.errors import StateError
from anabranch.load.project import Project
from anabranch.store.ledger import ChannelRecord, Ledger, OutputRecord, PipelineRecord

if TYPE_CHECKING:
    from anabranch.connectors.contract import Sink
    from anabranch.core.changes import Merge
    from anabranch.core.declarations import Dataset


@dataclass(frozen=True, slots=True)
class Opened:
    """What belongs together, checked."""

    project: Project
    storage: Storage
    ledger: Ledger
    pipeline: PipelineRecord

    def channel(self, name: str) -> ChannelRecord | None:
        """What the ledger knows of a channel."""
        return next((c for c in self.ledger.channels(self.pipeline.pipeline_id) if c.channel == name), None)

    def channel_of_output(self) -> Mapping[str, str]:
        """To which channel each output belongs."""
        return {o.name: c.channel for c in self.ledger.channels(self.pipeline.pipeline_id) for o in c.outputs}

    def sinks(self, outputs: Iterable[OutputRecord], declared: Iterable[Dataset] = ()) -> dict[str, Sink]:
        """Sinks as the ledger remembers them: enough to finish and to clean up, whatever the project says by now.

        Those that are functions of the project, or need to be told how to reach another system, can take rows only if
        they are among the `declared`.
        """
        known = {d.name: d for d in declared}
        return {o.name: self._remembered(o, known.get(o.name)) for o in outputs}

    def _remembered(self, output: OutputRecord, dataset: Dataset | None) -> Sink:
        same = dataset if dataset and dataset.format == output.format else None
        return open_sink(
            output.format,
            SinkSpec(
                output.name,
                self.storage.absolute(output.location),
                self.pipeline.pipeline_id,
                str(self.storage.root),
                options=same.options if same else {},
                properties=same.properties if same else {},
                declared=same is not None,
                handler=handler_of(same) if same else None,
            ),
        )

    def declared_sinks(self, datasets: Iterable[Dataset], merges: Mapping[str, Merge]) -> dict[str, Sink]:
        """Sinks as the project declares them."""
        pipeline = self.pipeline.pipeline_id
        return {d.name: declared_sink(d, self.storage, merges.get(d.name), pipeline) for d in datasets}


def declared_sink(dataset: Dataset, storage: Storage, merge: Merge | None, pipeline: str | None = None) -> Sink:
    """The sink of a declared output."""
    return open_sink(
        dataset.format,
        SinkSpec(
            dataset.name,
            storage.absolute(storage.location(dataset)),
            pipeline,
            str(storage.root),
            options=dataset.options,
            partition_by=dataset.partition_by,
            properties=dataset.properties,
            comment=dataset.comment,
            merge=merge,
            unique=dataset.unique,
            handler=handler_of(dataset),
        ),
    )


def check_formats(before: Iterable[OutputRecord], declared: Iterable[Dataset]) -> None:
    """Refuse an output whose name stood for another kind of thing in the epochs before."""
    formats = {o.name: o.format for o in before}
    for dataset in declared:
        if formats.get(dataset.name, dataset.format) != dataset.format:
            raise StateError(
                "FORMAT_CHANGED",
                f'"{dataset.name}" was of format {formats[dataset.name]} and is now declared as {dataset.format}',
                where=dataset.where,
                hint="give it another name, or set its format back",
            )


@contextmanager
def open_project(project: Project, *, create: bool = False, moved: bool = False) -> Iterator[Opened]:
    """Open storage and ledger; a first run may `create` them, `moved` accepts them at a new place.

    A missing ledger is made only for a storage that never had one: anything else would start from nothing beside
    tables that already hold those rows.
    """
    storage = Storage.of(project.storage)
    fresh = not storage.identity.exists()
    if fresh and not create:
        raise StateError(
            "NOTHING_RUN_YET",
            f'"{project.name}" has not been run yet: {project.storage} holds nothing',
            hint="anabranch run --once",
        )
    if fresh and storage.has_tables:
        raise StateError(
            "STORAGE_UNKNOWN",
            f"{project.storage} holds tables, but {storage.own} is gone: which rows they have taken is not known",
            hint="put that folder back; to read everything again, remove the tables too",
        )
    with Ledger.open(project.ledger, create=fresh, moved=moved) as ledger:
        if moved:
            ledger.accept_location()
            ledger.move_storage(project.name, str(storage.root))
        yield Opened(project, storage, ledger, claim(storage, ledger, project.name))


def known_channels(project: Project) -> Mapping[str, str]:
    """To which channel each output belongs, as far as the project was run before."""
    if not Storage.of(project.storage).identity.exists():
        return {}
    with open_project(project) as opened:
        return opened.channel_of_output()
