"""How far and how fast a channel's query reads, from what Spark measures anyway; asked for outside its epochs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from anabranch.core.events import ChannelProgress, Listener, SourceProgress

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: It is told at most this often, in seconds.
_EVERY = 1.0


@dataclass
class ProgressTeller:
    """Tells of one query after its epochs."""

    channel: str
    listener: Listener
    _epochs: int = 0  # done when it was told
    _batch: int | None = None  # the last one told of
    _next: float = 0.0

    def look(self, query: StreamingQuery, epochs: int, read: Mapping[int, int], *, last: bool) -> None:
        """Tell if epochs were done since; `last` when the query is over. Spark is asked for nothing otherwise.

        `read` are records of epochs that workers read themselves: Spark takes them for none.
        """
        if epochs == self._epochs or (time.monotonic() < self._next and not last):
            return
        newest = query.lastProgress
        if newest is None or newest["batchId"] == self._batch:
            return  # an epoch is done a moment before Spark has measured it
        found = [newest]
        if newest["batchId"] - (-1 if self._batch is None else self._batch) > 1:
            found = [p for p in query.recentProgress if self._batch is None or p["batchId"] > self._batch]
        self._epochs, self._batch, self._next = epochs, newest["batchId"], time.monotonic() + _EVERY
        self.listener(progress_of(self.channel, [_counted(p, read.get(p["batchId"], 0)) for p in found]))


def _counted(measured: Mapping[str, Any], read: int) -> Mapping[str, Any]:
    """What Spark measured of a batch whose records it did not read itself."""
    if not read or len(measured["sources"]) != 1:
        return measured
    seconds = measured["durationMs"].get("triggerExecution", 0) / 1000
    source = {**measured["sources"][0], "numInputRows": read}
    rate = read / seconds if seconds else None
    return {**measured, "sources": [source], "inputRowsPerSecond": None, "processedRowsPerSecond": rate}


def progress_of(channel: str, measured: Iterable[Mapping[str, Any]]) -> ChannelProgress:
    """What Spark measured in one or several batches; rates and lag are those of the last one that read rows.

    >>> source = {"description": "KafkaV2[Subscribe[a]]", "numInputRows": 5}
    >>> source |= {"endOffset": '{"a":{"0":7}}', "latestOffset": '{"a":{"0":9}}'}
    >>> one = {"batchId": 3, "inputRowsPerSecond": 10.0, "processedRowsPerSecond": float("nan"), "sources": [source]}
    >>> found = progress_of("c", [one])
    >>> found.rows, found.input_rate, found.process_rate, found.behind
    (5, 10.0, None, {'offsets': 2})
    >>> found.sources[0].partitions, found.first, found.event_times
    ({'a 0': 2}, 3, {})
    """
    batches = list(measured)
    reading = [b for b in batches if any(s["numInputRows"] for s in b["sources"])]
    newest = batches[-1]
    rated = reading[-1] if reading else newest
    return ChannelProgress(
        channel,
        newest["batchId"],
        sum(s["numInputRows"] for b in batches for s in b["sources"]),
        _finite(rated["inputRowsPerSecond"]),
        _finite(rated["processedRowsPerSecond"]),
        tuple(_source(s) for s in newest["sources"]),
        batches[0]["batchId"],
        _event_times(rated),
    )


def _source(found: Mapping[str, Any]) -> SourceProgress:
    return SourceProgress(found["description"], found["numInputRows"], *_behind(found))


def _behind(found: Mapping[str, Any]) -> tuple[int | None, str, dict[str, int]]:
    """What a source holds beyond what was read: offsets of Kafka, of each partition as well; files of a Delta table."""
    files = (found.get("metrics") or {}).get("numFilesOutstanding")
    if files is not None:
        return int(files), "files", {}
    latest, end = _offsets(found.get("latestOffset")), _offsets(found.get("endOffset"))
    if not latest:
        return None, "", {}
    # A partition that appeared since has been read up to nowhere; before anything was read, nothing is known.
    parts = {part: max(0, offset - end.get(part, 0 if end else offset)) for part, offset in latest.items()}
    return sum(parts.values()), "offsets", {f"{topic} {number}": count for (topic, number), count in parts.items()}


#: Spark's words for the times of a batch's rows, which it measures where a watermark is declared.
_EVENT_TIMES = {"max": "newest", "min": "oldest", "avg": "mean"}


def _event_times(batch: Mapping[str, Any]) -> dict[str, float]:
    """When the newest and the oldest row of a batch came to be, and the mean, in seconds since 1970.

    >>> _event_times({"eventTime": {"max": "1970-01-01T00:01:00.000Z", "watermark": "1970-01-01T00:00:00.000Z"}})
    {'newest': 60.0}
    """
    said = batch.get("eventTime") or {}
    found = {ours: _moment(said[theirs]) for theirs, ours in _EVENT_TIMES.items() if theirs in said}
    return {name: moment for name, moment in found.items() if moment is not None}


def _moment(text: str) -> float | None:
    """A time of Spark's; None for one that no calendar has, as rows with a broken clock bring.

    >>> _moment("1970-01-01T00:00:01.000Z"), _moment("+166375-10-30T00:00:00.000Z")
    (1.0, None)
    """
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    """The offset of each partition of each topic; nothing for a source that has no such offsets."""
    try:
        said = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return {}
    if not isinstance(said, Mapping) or not all(isinstance(v, Mapping) for v in said.values()):
        return {}
    return {(t, p): n for t, parts in said.items() for p, n in parts.items() if isinstance(n, int)}


def _finite(rate: Any) -> float | None:
    # Spark divides by the time since the batch before, which the first one has not.
    return float(rate) if isinstance(rate, int | float) and 0 < rate < float("inf") else None
