"""How far and how fast a channel's query reads, from what Spark measures anyway; asked for outside its epochs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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

    def look(self, query: StreamingQuery, epochs: int, *, last: bool) -> None:
        """Tell if epochs were done since; `last` when the query is over. Spark is asked for nothing otherwise."""
        if epochs == self._epochs or (time.monotonic() < self._next and not last):
            return
        newest = query.lastProgress
        if newest is None or newest["batchId"] == self._batch:
            return  # an epoch is done a moment before Spark has measured it
        found = [newest]
        if newest["batchId"] - (-1 if self._batch is None else self._batch) > 1:
            found = [p for p in query.recentProgress if self._batch is None or p["batchId"] > self._batch]
        self._epochs, self._batch, self._next = epochs, newest["batchId"], time.monotonic() + _EVERY
        self.listener(progress_of(self.channel, found))


def progress_of(channel: str, measured: Iterable[Mapping[str, Any]]) -> ChannelProgress:
    """What Spark measured in one or several batches; rates and lag are those of the last one that read rows.

    >>> source = {"description": "KafkaV2[Subscribe[a]]", "numInputRows": 5}
    >>> source |= {"endOffset": '{"a":{"0":7}}', "latestOffset": '{"a":{"0":9}}'}
    >>> one = {"batchId": 3, "inputRowsPerSecond": 10.0, "processedRowsPerSecond": float("nan"), "sources": [source]}
    >>> found = progress_of("c", [one])
    >>> found.rows, found.input_rate, found.process_rate, found.behind
    (5, 10.0, None, {'offsets': 2})
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
    )


def _source(found: Mapping[str, Any]) -> SourceProgress:
    return SourceProgress(found["description"], found["numInputRows"], *_behind(found))


def _behind(found: Mapping[str, Any]) -> tuple[int | None, str]:
    """What a source holds beyond what was read: offsets of Kafka, files of a Delta table."""
    files = (found.get("metrics") or {}).get("numFilesOutstanding")
    if files is not None:
        return int(files), "files"
    latest, end = _offsets(found.get("latestOffset")), _offsets(found.get("endOffset"))
    if not latest:
        return None, ""
    return sum(max(0, offset - end.get(part, offset)) for part, offset in latest.items()), "offsets"


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
