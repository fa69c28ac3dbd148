"""Whoever watches the runs of a project, put beside one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from anabranch.core.column_lineage import DatasetColumns
from anabranch.core.events import Event, Listener
from anabranch.errors import AnabranchError, SetupError
from anabranch.load.project import Project
from anabranch.load.watch_spec import LineageTarget, SpanTarget
from anabranch.watch.beside import MAKING, PATIENCE, Beside, Complain, Watcher
from anabranch.watch.counting import Counting


@contextmanager
def attached(project: Project, listener: Listener) -> Iterator[Listener]:
    """A listener that hands events on to the project's watchers as well, until the block ends.

    How the block ends is how the run ended.
    """
    watchers = [Beside(name, make, listener) for name, make in watchers_of(project).items()]
    until = time.monotonic() + MAKING
    for watcher in watchers:
        watcher.wait_until_made(until)

    def listen(event: Event) -> None:
        listener(event)
        for watcher in watchers:
            watcher.put(event)

    def end(error: BaseException | None) -> None:
        until = time.monotonic() + PATIENCE
        for watcher in watchers:
            watcher.end(error, until)
        for watcher in watchers:
            watcher.wait(until)

    try:
        yield listen
    except BaseException as error:
        end(error)
        raise
    end(None)


def watchers_of(project: Project) -> dict[str, Callable[[Complain], Watcher]]:
    """Those who watch, by the name they are told of by; each is made in its own thread."""
    found: dict[str, Callable[[Complain], Watcher]] = {"metrics": lambda _: Counting(project)}
    if lineage := project.open_lineage:
        found["open_lineage"] = partial(_open_lineage, project, lineage)
    if spans := project.spans:
        found["spans"] = partial(_spans, project, spans)
    return found


def _open_lineage(project: Project, target: LineageTarget, complain: Complain) -> Watcher:
    from anabranch.store.history import History
    from anabranch.store.lineage_versions import newest_lineage
    from anabranch.watch.open_lineage import EpochFinder, OpenLineage
    from anabranch.watch.open_lineage_transport import transport_of

    columns: dict[str, DatasetColumns] = {}
    try:
        columns = {name: one.lineage for name, one in newest_lineage(History.of(project.storage)).items()}
    except AnabranchError as error:  # the lineage of tables is better than none
        complain(f"of columns that this run does not look at: {error.message}")
    transport = transport_of(target, complain)
    return OpenLineage(project.name, target.namespace, transport, EpochFinder(project), columns)


def _spans(project: Project, target: SpanTarget, complain: Complain) -> Watcher:
    try:
        from anabranch.watch.spans import Spans, exporter_to

        return Spans(project.name, target.service, exporter_to(target), complain, target.endpoint)
    except ImportError as error:
        text = f"spans need a package that is not installed: {error.name}; pip install 'anabranch[spans]'"
        raise SetupError("EXTRA_MISSING", text, hint="pip install 'anabranch[spans]'") from error
