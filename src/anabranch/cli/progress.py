"""Events as lines: what a run shows while it works."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.cli.output import Output
from anabranch.cli.show_errors import Line, plain_text
from anabranch.core.events import (
    Backfilled,
    ChannelFailed,
    ChannelRetried,
    EpochDiscarded,
    EpochPublished,
    EpochRecovered,
    EpochRestaged,
    Event,
    LeftoversRemoved,
    Listener,
    Notice,
    OutputsRemoved,
    QueryChanged,
    RunFinished,
    RunStarted,
    ViewKept,
    WatermarkShared,
)
from anabranch.core.quality import by_dataset


def progress(out: Output) -> Listener:
    """A listener that prints every event as it comes; at the end of a run also what its rules kept out."""
    dropped = quarantined = 0

    def listen(event: Event) -> None:
        nonlocal dropped, quarantined
        record, line = event.as_record(), words(event)
        if isinstance(event, EpochPublished):
            dropped += sum(q.dropped for q in event.quality)
            quarantined += sum(q.quarantined for q in event.quality)
        if isinstance(event, RunFinished):
            record |= {"dropped": dropped, "quarantined": quarantined}
            if dropped or quarantined:
                line = [*line, (f"  {dropped:,} dropped, {quarantined:,} quarantined", "yellow")]
        out.event(record, line, event.level)

    return listen


def notes(out: Output) -> Listener:
    """A listener for verbs whose result is something else: what is said goes to stderr as notes."""

    def listen(event: Event) -> None:
        out.note("".join(text for text, _ in words(event)))

    return listen


def words(event: Event) -> Line:
    """One event as one line.

    >>> "".join(text for text, _ in words(EpochDiscarded("requests", 4, "staging failed")))
    'requests  epoch 4  discarded, nothing of it is visible: staging failed'
    """
    match event:
        case Notice(message):
            return [(plain_text(message), "dim")]
        case RunStarted(pipeline, channels):
            return [(pipeline, "bold"), (f"  running {_count(len(channels), 'channel')}: {', '.join(channels)}", "dim")]
        case RunFinished(pipeline, epochs, rows, seconds):
            done = f"  done  {_count(epochs, 'epoch')}  {_count(rows, 'row')}  {seconds:.2f} s"
            return [(pipeline, "bold"), (done, "green")]
        case QueryChanged(dataset, where):
            text = f"  its query changed ({where}): the rows it has are those of the old one; to rebuild them: "
            return [(dataset, "bold"), (text, "yellow"), (f"anabranch run --full-refresh {dataset}", "")]
        case Backfilled(channel, epoch, rows, seconds):
            per_output = " · ".join(f"{name} {count:,}" for name, count in rows.items())
            return [*_epoch(channel, epoch), ("backfilled", "green"), (f"  {per_output}  {seconds:.2f} s", "")]
        case ViewKept(view, reason):
            return [(view, "bold"), (f"  left as it is: {plain_text(reason)}", "dim")]
        case EpochPublished():
            return _published(event)
        case EpochRecovered(channel, epoch, sinks):
            left = f"finished in {', '.join(sinks)}" if sinks else "was in every output already"
            return [*_epoch(channel, epoch), ("recovered", "green"), (f"  {left}", "")]
        case EpochRestaged(channel, epoch, sinks, reason):
            text = f"  {', '.join(sinks)} staged again: {plain_text(reason)}"
            return [*_epoch(channel, epoch), ("restaged", "yellow"), (text, "")]
        case EpochDiscarded(channel, epoch, reason):
            text = f", nothing of it is visible: {plain_text(reason)}"
            return [*_epoch(channel, epoch), ("discarded", "yellow"), (text, "")]
        case LeftoversRemoved(sink, files, size):
            return [(sink, "bold"), (f"  removed {_count(files, 'leftover file')}, {_size(size)}", "dim")]
        case WatermarkShared(channel, message):
            return [(channel, "bold"), (f"  {plain_text(message)}", "yellow")]
        case OutputsRemoved(channel, outputs):
            text = f"  no longer declared, left as they are: {', '.join(outputs)}; to remove: anabranch drop NAME"
            return [(channel, "bold"), (text, "yellow")]
        case ChannelRetried(channel, code, message, attempt, seconds):
            text = f"  {plain_text(message)} ({code}); attempt {attempt + 1} in {seconds:g} s"
            return [(channel, "bold"), ("  failed for now", "yellow"), (text, "")]
        case ChannelFailed(channel, code, message):
            return [(channel, "bold"), ("  failed", "bold red"), (f"  {plain_text(message)} ({code})", "")]
        case _:
            values = (f"{k}={v}" for k, v in event.as_record().items() if k not in ("event", "level"))
            return [(event.kind, "bold"), ("  " + plain_text(" ".join(values)), "")]


def _published(event: EpochPublished) -> Line:
    per_output = " · ".join(f"{name} {rows:,}" for name, rows in event.rows.items())
    line = [
        *_epoch(event.channel, event.epoch),
        ("published", "green"),
        (f"  {_count(sum(event.rows.values()), 'row')} -> {per_output}", ""),
    ]
    if event.times:
        line.append((f"  {sum(event.times.values()):.2f} s ({_steps(event.times)})", "dim"))
    if len(event.rows) > 1 and event.window:
        line.append((f"  torn window for plain readers {event.window * 1000:,.0f} ms", "dim"))
    line += [(f"  {plain_text(q.in_words())}", "yellow") for q in by_dataset(event.quality) if not q.is_good]
    return line


def _epoch(channel: str, epoch: int) -> Line:
    return [(channel, "bold"), (f"  epoch {epoch}  ", "")]


def _steps(times: Mapping[str, float]) -> str:
    return " ".join(f"{step} {seconds:.2f}" for step, seconds in times.items())


def _count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> _count(1, "row"), _count(3000, "row")
    ('1 row', '3,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _size(size: float) -> str:
    """A number of bytes for people.

    >>> _size(1536)
    '1.5 KiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
