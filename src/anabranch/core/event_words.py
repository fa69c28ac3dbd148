"""Events in words: one line each, in pieces that say what they mean, so that every reader shows them alike.

The text is as it came: whoever prints it on a terminal or a page makes it harmless there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from anabranch.core.events import (
    ChannelFailed,
    ChannelProgress,
    ChannelRetried,
    EpochDiscarded,
    EpochPublished,
    EpochRecovered,
    EpochRestaged,
    Event,
    EventsDropped,
    Notice,
    NotSent,
    RunFailed,
    RunFinished,
    RunStarted,
)
from anabranch.core.events_data import (
    Backfilled,
    ColumnsProfiled,
    Compacted,
    FilesKept,
    LeftoversRemoved,
    LineageChanged,
    OutputsRemoved,
    ProfileFailed,
    QueryChanged,
    SinkTold,
    SourceMaySkip,
    ViewKept,
    WatermarkShared,
)
from anabranch.core.quality import by_dataset

#: What a piece of text is: the name of what it is about, good or bad news, something on the side, or just text.
Tone = Literal["name", "good", "warn", "bad", "quiet", ""]
Piece = tuple[str, Tone]


def sentence(event: Event) -> str:
    """The event as plain text.

    >>> sentence(EpochDiscarded("requests", 4, "staging failed"))
    'requests  epoch 4  discarded, nothing of it is visible: staging failed'
    """
    return "".join(text for text, _ in words(event))


def words(event: Event) -> list[Piece]:
    """The event as one line, in pieces."""
    match event:
        case Notice(message):
            return [(message, "quiet")]
        case RunStarted() | RunFinished() | RunFailed():
            return _run(event)
        case EpochPublished():
            return _published(event)
        case EpochRecovered() | EpochRestaged() | EpochDiscarded() | Backfilled():
            return _epoch(event)
        case WatermarkShared() | SourceMaySkip() | OutputsRemoved() | FilesKept() | ChannelRetried() | ChannelFailed():
            return _channel(event)
        case ChannelProgress():
            return _progress(event)
        case ColumnsProfiled(_, _, epoch, dataset, profile):
            text = f"  epoch {epoch}  profiled {count(len(profile.columns), 'column')} of {count(profile.rows, 'row')}"
            return [(dataset, "name"), (text, "quiet")]
        case ProfileFailed(_, epoch, dataset, reason):
            text = f"  its rows were written, but not profiled: {reason}"
            return [(dataset, "name"), (f"  epoch {epoch}", ""), (text, "warn")]
        case QueryChanged(dataset, where):
            text = f"  its query changed ({where}): the rows it has are those of the old one; to rebuild them: "
            return [(dataset, "name"), (text, "warn"), (f"anabranch run --full-refresh {dataset}", "")]
        case ViewKept(view, reason):
            return [(view, "name"), (f"  left as it is: {reason}", "quiet")]
        case SinkTold(sink, message):
            return [(sink, "name"), (f"  {message}", "warn")]
        case Compacted(sink, files, seconds):
            return [(sink, "name"), (f"  put {count(files, 'small file')} together  {seconds:.2f} s", "quiet")]
        case LeftoversRemoved(sink, files, size):
            return [(sink, "name"), (f"  removed {count(files, 'leftover file')}, {shown_size(size)}", "quiet")]
        case NotSent(to, message):
            return [(to, "name"), (f"  {message}", "warn")]
        case LineageChanged(_, dataset, epoch, changed):
            what = f"column lineage changed: {', '.join(changed)}" if changed else "lineage changed"
            return [(dataset, "name"), (f"  {what}, from epoch {epoch} on", "quiet")]
        case EventsDropped(number):
            return [(f"{count(number, 'event')} came too fast to be written down", "warn")]
        case _:
            values = (f"{k}={v}" for k, v in event.as_record().items() if k not in ("event", "level"))
            return [(event.kind, "name"), ("  " + " ".join(values), "")]


def _run(event: RunStarted | RunFinished | RunFailed) -> list[Piece]:
    match event:
        case RunStarted(pipeline, channels):
            text = f"  running {count(len(channels), 'channel')}: {', '.join(channels)}"
            return [(pipeline, "name"), (text, "quiet")]
        case RunFinished(pipeline, epochs, rows, seconds):
            done = f"  done  {count(epochs, 'epoch')}  {count(rows, 'row')}  {seconds:.2f} s"
            return [(pipeline, "name"), (done, "good")]
        case RunFailed(pipeline, code, message, epochs, rows, seconds):
            done = f"  {count(epochs, 'epoch')}  {count(rows, 'row')}  {seconds:.2f} s: {message} ({code})"
            return [(pipeline, "name"), ("  failed", "bad"), (done, "")]


def _published(event: EpochPublished) -> list[Piece]:
    line: list[Piece] = [
        *_number(event.channel, event.epoch),
        ("published", "good"),
        (f"  {count(sum(event.rows.values()), 'row')} -> {_per_output(event.rows)}", ""),
    ]
    if event.times:
        line.append((f"  {sum(event.times.values()):.2f} s ({shown_steps(event.times)})", "quiet"))
    if len(event.rows) > 1 and event.window:
        line.append((f"  torn window for plain readers {event.window * 1000:,.0f} ms", "quiet"))
    if event.native_share is not None:
        # Rounded down: what is not all is not shown as all.
        line.append((f"  native {math.floor(event.native_share * 10_000) / 100:g} %", "quiet"))
    return [*line, *((f"  {q.in_words()}", "warn") for q in by_dataset(event.quality) if not q.is_good)]


def _epoch(event: EpochRecovered | EpochRestaged | EpochDiscarded | Backfilled) -> list[Piece]:
    head = _number(event.channel, event.epoch)
    match event:
        case EpochRecovered(_, _, sinks):
            left = f"finished in {', '.join(sinks)}" if sinks else "was in every output already"
            return [*head, ("recovered", "good"), (f"  {left}", "")]
        case EpochRestaged(_, _, sinks, reason):
            return [*head, ("restaged", "warn"), (f"  {', '.join(sinks)} staged again: {reason}", "")]
        case EpochDiscarded(_, _, reason):
            return [*head, ("discarded", "warn"), (f", nothing of it is visible: {reason}", "")]
        case Backfilled(_, _, rows, seconds):
            return [*head, ("backfilled", "good"), (f"  {_per_output(rows)}  {seconds:.2f} s", "")]


def _channel(
    event: WatermarkShared | SourceMaySkip | OutputsRemoved | FilesKept | ChannelRetried | ChannelFailed,
) -> list[Piece]:
    name: Piece = (event.channel, "name")
    match event:
        case WatermarkShared(_, message) | SourceMaySkip(_, message):
            return [name, (f"  {message}", "warn")]
        case OutputsRemoved(_, outputs):
            text = f"  no longer declared, left as they are: {', '.join(outputs)}; to remove: anabranch drop NAME"
            return [name, (text, "warn")]
        case FilesKept(_, files, reason):
            more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
            return [name, ("  files kept", "warn"), (f"  {files[0]}{more} {reason}" if files else f"  {reason}", "")]
        case ChannelRetried(_, code, message, attempt, seconds):
            text = f"  {message} ({code}); attempt {attempt + 1} in {seconds:g} s"
            return [name, ("  failed for now", "warn"), (text, "")]
        case ChannelFailed(_, code, message):
            return [name, ("  failed", "bad"), (f"  {message} ({code})", "")]


def _progress(event: ChannelProgress) -> list[Piece]:
    rates = [("in", event.input_rate), ("processed", event.process_rate)]
    parts = [f"{rate:,.0f} rows/s {word}" for word, rate in rates if rate is not None]
    parts += [f"{behind:,} {unit} behind" for unit, behind in event.behind.items()]
    read = f"  read {count(event.rows, 'row')}"
    return [(event.channel, "name"), (read, ""), ("".join(f"  {part}" for part in parts), "quiet")]


def _number(channel: str, epoch: int) -> list[Piece]:
    return [(channel, "name"), (f"  epoch {epoch}  ", "")]


def _per_output(rows: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {number:,}" for name, number in rows.items())


def shown_steps(times: Mapping[str, float]) -> str:
    """The seconds of each step.

    >>> shown_steps({"stage": 0.25, "apply": 0.061})
    'stage 0.25 apply 0.06'
    """
    return " ".join(f"{step} {seconds:.2f}" for step, seconds in times.items())


def count(number: int, noun: str) -> str:
    """A number with its noun.

    >>> count(1, "row"), count(3000, "row")
    ('1 row', '3,000 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown_size(size: float) -> str:
    """A number of bytes for people.

    >>> shown_size(1536)
    '1.5 KiB'
    """
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
