"""The end of a run in a few lines: what was read, written and rejected, and where to look when something failed."""

from __future__ import annotations

from anabranch.cli.run_state import ChannelState, DatasetState, RunState
from anabranch.cli.show_errors import Line, plain_text
from anabranch.core.event_words import count
from anabranch.core.events import RunFailed


def summary_lines(state: RunState) -> list[Line]:
    """The summary; empty for a run that did nothing and found nothing wrong."""
    lines: list[Line] = []
    if isinstance(state.end, RunFailed):
        done = f"  {count(state.end.epochs, 'epoch')}  {count(state.end.rows, 'row')}  {state.end.seconds:.2f} s"
        lines.append([(state.pipeline, "bold"), ("  failed", "bold red"), (done, "")])
    width = max((len(name) for name in (*state.channels, *state.datasets)), default=0)
    lines += [
        [("  read     ", "dim"), (f"{name:<{width}}  ", ""), (_read(of), "")]
        for name, of in state.channels.items()
        if of.read is not None
    ]
    lines += [
        [("  written  ", "dim"), (f"{name:<{width}}  ", ""), (f"{of.rows:>12,}", ""), (_rejected(of), "yellow")]
        for name, of in state.datasets.items()
        if of.is_output
    ]
    lines += [
        [("  judged   ", "dim"), (f"{name:<{width}}  ", ""), (f"{of.judged:>12,}", ""), (_rejected(of), "yellow")]
        for name, of in state.datasets.items()
        if not of.is_output
    ]
    worst = max((of.window for of in state.channels.values()), default=0.0)
    if worst:
        lines.append([(f"  torn window for plain readers at most {worst * 1000:,.0f} ms", "dim")])
    return [*lines, *_where_to_look(state)]


def _read(of: ChannelState) -> str:
    behind = "".join(f", {number:,} {unit} behind" for unit, number in of.behind.items() if number)
    return f"{of.read or 0:>12,} in {count(of.epochs, 'epoch')}{behind}"


def _rejected(of: DatasetState) -> str:
    parts = {"dropped": of.dropped, "quarantined": of.quarantined}
    said = [f"{number:,} {word}" for word, number in parts.items() if number]
    if of.broke:
        said.insert(0, f"{of.broke:,} of {of.judged:,} broke a rule")
    return f"  {', '.join(said)}" if said else ""


def _where_to_look(state: RunState) -> list[Line]:
    if not isinstance(state.end, RunFailed):
        return []
    lines: list[Line] = [
        [("  failed   ", "bold red"), (f"{name}  {plain_text(event.message)} ({event.code})", "")]
        for name, event in state.failed.items()
    ]
    codes = dict.fromkeys([*(event.code for event in state.failed.values()), state.end.code])
    said = [*(f"anabranch explain {code}" for code in codes), "anabranch events --level error"]
    return [*lines, *([("  see      ", "bold cyan"), (command, "")] for command in said)]
