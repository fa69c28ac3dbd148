"""A run on a terminal: a table of its channels and outputs that moves, warnings above it, a summary in its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from anabranch.cli.output import console
from anabranch.cli.progress import with_totals, words
from anabranch.cli.run_state import ChannelState, DatasetState, RunState
from anabranch.cli.show_errors import Line, plain_text
from anabranch.cli.summary import summary_lines
from anabranch.core.event_words import shown_steps
from anabranch.core.events import Event, Listener, RunFailed, RunFinished
from anabranch.core.hidden import hide

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

#: How often it is drawn again, in a second.
_TIMES = 4

_GOOD = {"published": "green", "waiting": "dim", "left as it is": "dim"}


def can_draw(stream: TextIO) -> bool:
    """Whether the stream is a terminal on which lines can be drawn again."""
    return stream.isatty() and not console(stream).is_dumb_terminal


@contextmanager
def drawn(stream: TextIO) -> Iterator[Listener]:
    """A listener that draws, until the block ends; then the table gives way to the summary."""
    import sys

    from rich.live import Live

    state, lock, on = RunState(), threading.Lock(), console(stream)

    def picture() -> Group:
        with lock:
            return _picture(state)

    def listen(event: Event) -> None:
        with lock:
            state.take(event)
        if event.level != "info" and not isinstance(event, RunFailed):
            on.print(_text(words(event)), soft_wrap=True)

    # Prints of the user's own code appear above the table; those that go elsewhere than the terminal still go there.
    live = Live(
        get_renderable=picture,
        console=on,
        refresh_per_second=_TIMES,
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=True,
    )
    try:
        with live:
            on.show_cursor(True)  # rich hides it, and a process that is killed could not show it again
            yield listen
    finally:
        if isinstance(state.end, RunFinished):
            on.print(_text(with_totals(state.end, state)), soft_wrap=True)
        for line in summary_lines(state):
            on.print(_text(line), soft_wrap=True)


def _text(line: Line) -> Text:
    from rich.text import Text

    return Text.assemble(*((hide(text), style) for text, style in line))


def _picture(state: RunState) -> Group:
    from rich.console import Group

    minutes, seconds = divmod(int(time.monotonic() - state.began), 60)
    note = plain_text(state.notice) if state.notice else "running"
    head: Line = [(state.pipeline or "anabranch", "bold"), (f"  {note}  {minutes}:{seconds:02}", "dim")]
    parts = [_table_of_channels(state.channels)] if state.channels else []
    parts += [_table_of_datasets(state.datasets)] if state.datasets else []
    return Group(_text(head), *parts)


def _table_of_channels(channels: dict[str, ChannelState]) -> Table:
    table = _table("channel", "epoch>", "rows>", "rows/s>", "lag>", "last epoch", "")
    for name, of in channels.items():
        lag = ", ".join(f"{number:,} {unit}" for unit, number in of.behind.items())
        table.add_row(
            _text([(plain_text(name), "bold")]),
            "-" if of.epoch is None else str(of.epoch),
            f"{of.rows:,}",
            "-" if of.rate is None else f"{of.rate:,.0f}",
            lag or "-",
            f"{sum(of.times.values()):.2f} s: {shown_steps(of.times)}" if of.times else "-",
            _text([(of.state, _GOOD.get(of.state, "bold red" if of.state.startswith("failed (") else "yellow"))]),
        )
    return table


def _table_of_datasets(datasets: dict[str, DatasetState]) -> Table:
    table = _table("table", "rows>", "broke a rule>", "dropped>", "quarantined>")
    for name, of in datasets.items():
        kept_out = (of.broke, of.dropped, of.quarantined)
        cells = [_text([(f"{n:,}" if of.judged else "-", "yellow" if n else "")]) for n in kept_out]
        table.add_row(_text([(plain_text(name), "bold")]), f"{of.rows:,}", *cells)
    return table


def _table(*columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left")
    return table
