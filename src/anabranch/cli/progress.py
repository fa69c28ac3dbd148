"""What a run shows while it works: lines where they are read later, a table that moves on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.cli.output import Output, TextOutput
from anabranch.cli.run_state import RunState
from anabranch.cli.show_errors import Line, plain_text
from anabranch.cli.summary import summary_lines
from anabranch.core.event_words import words as pieces_of
from anabranch.core.events import ChannelProgress, Event, Listener, RunFailed, RunFinished

#: How a terminal shows what a piece of an event means.
STYLES = {"name": "bold", "good": "green", "warn": "yellow", "bad": "bold red", "quiet": "dim", "": ""}


@contextmanager
def watching(out: Output) -> Iterator[Listener]:
    """The listener for a run, until the block ends; at its end a summary, also when it failed."""
    from anabranch.cli.live import can_draw, drawn

    if isinstance(out, TextOutput) and not out.quiet and can_draw(sys.stderr):
        with drawn(sys.stderr) as listener:
            yield listener
    else:
        yield progress(out)


def progress(out: Output) -> Listener:
    """A listener that prints every event as it comes, and at the end of a run what became of its rows."""
    state = RunState()

    def listen(event: Event) -> None:
        state.take(event)
        record = event.as_record()
        if isinstance(event, RunFinished):
            record |= {"dropped": state.dropped, "quarantined": state.quarantined}
        if not isinstance(out, TextOutput):
            out.event(record, words(event), event.level)
        elif isinstance(event, RunFailed):
            _print_all(out, summary_lines(state))  # the error itself is told by whoever ran the verb
        elif not isinstance(event, ChannelProgress):
            out.event(record, with_totals(event, state), event.level)
            if isinstance(event, RunFinished):
                _print_all(out, summary_lines(state))

    return listen


def _print_all(out: Output, lines: list[Line]) -> None:
    for line in lines:
        out.event({}, line)


def notes(out: Output) -> Listener:
    """A listener for verbs whose result is something else: what is said goes to stderr as notes."""

    def listen(event: Event) -> None:
        out.note("".join(text for text, _ in words(event)))

    return listen


def words(event: Event) -> Line:
    """One event as one line, harmless to a terminal.

    >>> from anabranch.core.events import EpochDiscarded
    >>> "".join(text for text, _ in words(EpochDiscarded("requests", 4, "no\\nroom")))
    'requests  epoch 4  discarded, nothing of it is visible: no\\\\nroom'
    """
    return [(plain_text(text), STYLES[tone]) for text, tone in pieces_of(event)]


def with_totals(event: Event, state: RunState) -> Line:
    """The line of an event; at the end of a run also what its rules kept out."""
    line = words(event)
    if isinstance(event, RunFinished) and (state.dropped or state.quarantined):
        line.append((f"  {state.dropped:,} dropped, {state.quarantined:,} quarantined", "yellow"))
    return line
