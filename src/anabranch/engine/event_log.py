"""The events of a run, on their way to whoever listens and into the history: what happened, after the fact."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.core.event_kinds import is_silent
from anabranch.core.events import Event, Listener, Notice, RunFailed
from anabranch.errors import AnabranchError, Interrupted
from anabranch.store.history_writer import HistoryWriter


@contextmanager
def recorded(
    listener: Listener, path: Path, pipeline: str, *, keep_seconds: float, selection: str | None = None
) -> Iterator[Listener]:
    """A listener that hands the events of one run on and writes them down, until the block ends.

    How the block ends is how the run ended. A disk that refuses is told once, as a notice, and stops no run.
    """
    began = time.monotonic()
    history = HistoryWriter(
        path, pipeline, keep_seconds=keep_seconds, selection=selection, tell=lambda why: listener(Notice(why))
    )

    def listen(event: Event) -> None:
        history.put(event)
        if not is_silent(event):
            listener(event)

    try:
        yield listen
    except BaseException as error:
        if isinstance(error, Interrupted | KeyboardInterrupt | SystemExit | GeneratorExit):
            history.close("stopped")
            raise
        failed = _failed(error, pipeline, history, time.monotonic() - began)
        history.put(failed)
        history.close("failed", failed.code, failed.message)
        listener(failed)
        raise
    history.close("done")


def _failed(error: BaseException, pipeline: str, history: HistoryWriter, seconds: float) -> RunFailed:
    done = history.epochs, history.rows, seconds
    if isinstance(error, AnabranchError):
        where = str(error.where) if error.where else ""
        return RunFailed(pipeline, error.code, error.message, *done, where, error.hint or "")
    return RunFailed(pipeline, "INTERNAL", f"{type(error).__name__}: {error}", *done)
