"""The rows of one task on their way into staged files: parted by output, judged by their rules, counted.

Runs in Spark's Python workers, and in the driver for small batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.connectors.contract import Staging
from anabranch.connectors.parquet_files import StagedWriter
from anabranch.core.declarations import Action
from anabranch.core.epoch import EpochKey, StagedFile
from anabranch.core.profile import Observed
from anabranch.core.quality import SAMPLES, FlowQuality, total
from anabranch.engine.observe import Observer, all_seen
from anabranch.engine.quality import Rule
from anabranch.engine.source_files_letters import Letters

_QUARANTINED = pa.schema(
    [
        ("reasons", pa.list_(pa.string())),
        ("payload", pa.string()),
        ("flow", pa.string()),
        ("generation", pa.int64()),
        ("epoch", pa.int64()),
    ]
)

#: Rows of all outputs that may wait in memory for a row group that is worth writing.
_WAITING_BYTES = 128 << 20

#: Files that are finished at the same time: each waits for the disk.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Judged:
    """The rules that a flow's rows are judged by; `payload` has a row as JSON that breaks one which must tell."""

    dataset: str
    flow: str
    rules: tuple[Rule, ...]
    payload: str | None
    quarantine: str | None  # the output for rows that are put aside


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """What one flow gives to one output: `columns` are (column of the wide frame, column of the output).

    A flow into a view that has rules gives nothing to an output; its rows are only judged. `stateful` tells that the
    rows come out of an operator that keeps state.
    """

    output: str | None
    mask: str | None
    columns: tuple[tuple[str, str], ...]
    judged: Judged | None = None
    stateful: bool = False
    epoch: str | None = None  # a column of the output that gets the number of the epoch


@dataclass(frozen=True, slots=True)
class NativeCount:
    """Records of a batch that the native pass computed, and those that it left to Spark.

    `read` are those that workers read from files, of which Spark does not know.
    """

    native: int
    by_spark: int
    read: int = 0

    @property
    def shares(self) -> dict[str, int]:
        """The counts by their names."""
        return {"native": self.native, "spark": self.by_spark}


@dataclass(frozen=True, slots=True)
class Staged:
    """What staging a batch gave: the files of each output, and what its rows were like."""

    files: Mapping[str, list[StagedFile]]
    quality: Sequence[FlowQuality] = ()
    observed: Observed = field(default_factory=Observed)
    native: NativeCount | None = None


@dataclass
class Rows:
    """Takes batches of the wide frame; `close` or `abort` ends it. Only outputs in `stagings` are written."""

    parts: Sequence[OutputColumns]
    stagings: Mapping[str, Staging]
    key: EpochKey
    task: str
    _writers: dict[str, StagedWriter] = field(default_factory=dict)
    _counted: list[FlowQuality] = field(default_factory=list)
    _observers: dict[str, Observer] = field(default_factory=dict)
    _letters: dict[str, Letters] = field(default_factory=dict)

    def take(self, batch: pa.RecordBatch) -> None:
        """Give every output its rows of a batch."""
        for part in self.parts:
            if part.judged:
                self.give(part, batch.filter(batch.column(part.mask)) if part.mask else batch)
            elif part.output:
                self._write(part.output, _numbered(take(batch, part), part.epoch, self.key.epoch))
        self._settle()

    def give(self, part: OutputColumns, batch: pa.RecordBatch) -> None:
        """Give an output rows that are all its own."""
        rows = take(self._judge(part.judged, batch) if part.judged else batch, part, masked=False)
        if part.output:
            self._write(part.output, _numbered(rows, part.epoch, self.key.epoch))
        self._settle()

    def _settle(self) -> None:
        """Bound what waits in memory."""
        self._counted = list(total(self._counted))
        while sum(writer.waiting_bytes for writer in self._writers.values()) > _WAITING_BYTES:
            max(self._writers.values(), key=lambda writer: writer.waiting_bytes).relieve()

    def close(self) -> Staged:
        """Make every file durable."""
        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="close") as pool:
            files = list(pool.map(StagedWriter.close, self._writers.values()))
        return Staged(dict(zip(self._writers, files, strict=True)), self._counted, all_seen(self._observers))

    def abort(self) -> None:
        """Remove every file that was begun."""
        for writer in self._writers.values():
            writer.abort()

    def _write(self, output: str, rows: pa.RecordBatch) -> None:
        if rows.num_rows == 0 or output not in self.stagings:
            return
        if output not in self._writers:
            self._writers[output] = StagedWriter(self.stagings[output], self.task)
            if (columns := self.stagings[output].observe) is not None:
                self._observers[output] = Observer(columns)
        self._writers[output].write(rows)
        if output in self._observers:
            self._observers[output].take(rows)

    def _judge(self, part: Judged, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Count what breaks a rule, put aside what is quarantined; the rows that remain."""
        if rows.num_rows == 0:
            return rows
        broken = {rule: pc.invert(rows.column(rule.column)) for rule in part.rules}
        drop = _any(rows, (b for rule, b in broken.items() if rule.action is Action.DROP))
        aside = _any(rows, (b for rule, b in broken.items() if rule.action is Action.QUARANTINE))
        only_dropped = pc.and_not(drop, aside)
        self._counted.append(
            FlowQuality(
                part.dataset,
                part.flow,
                rows.num_rows,
                {rule.name: _count(b) for rule, b in broken.items()},
                _count(only_dropped),
                _count(aside),
                _samples(part, rows, broken),
                _count(_any(rows, broken.values())),
            )
        )
        if part.quarantine and _count(aside):
            self._write(part.quarantine, self._quarantined(part, rows, broken, aside))
        return rows.filter(pc.invert(pc.or_(drop, aside)))

    def _quarantined(
        self, part: Judged, rows: pa.RecordBatch, broken: Mapping[Rule, pa.Array], aside: pa.Array
    ) -> pa.RecordBatch:
        assert part.payload is not None, "a flow with a rule that quarantines has its rows as JSON"
        payload = rows.column(part.payload).filter(aside)
        flags = {rule.name: b.filter(aside).to_pylist() for rule, b in broken.items()}
        reasons = [[name for name, found in flags.items() if found[i]] for i in range(len(payload))]
        count = len(payload)
        return pa.record_batch(
            [
                pa.array(reasons, _QUARANTINED.field("reasons").type),
                self._letters.setdefault(part.flow, Letters()).explained(payload.cast(pa.string())),
                pa.repeat(part.flow, count),
                pa.repeat(pa.scalar(self.key.generation, pa.int64()), count),
                pa.repeat(pa.scalar(self.key.epoch, pa.int64()), count),
            ],
            schema=_QUARANTINED,
        )


def _numbered(rows: pa.RecordBatch, column: str | None, epoch: int) -> pa.RecordBatch:
    """The rows with the number of their epoch in the column for it."""
    if column is None or column not in rows.schema.names:
        return rows
    place = rows.schema.get_field_index(column)
    return rows.set_column(place, rows.schema.field(place), pa.repeat(pa.scalar(epoch, pa.int64()), rows.num_rows))


def take(batch: pa.RecordBatch, part: OutputColumns, *, masked: bool = True) -> pa.RecordBatch:
    """The rows and columns of a wide batch that are for one output; without `masked` all its rows are."""
    chosen = batch.select([wide for wide, _ in part.columns]).rename_columns([name for _, name in part.columns])
    return chosen.filter(batch.column(part.mask)) if part.mask and masked else chosen


def _any(rows: pa.RecordBatch, flags: Iterable[pa.Array]) -> pa.Array:
    found = pa.repeat(pa.scalar(False), rows.num_rows)
    for flag in flags:
        found = pc.or_(found, flag)
    return found


def _count(flags: pa.Array) -> int:
    return int(pc.sum(flags).as_py() or 0)


def _samples(part: Judged, rows: pa.RecordBatch, broken: Mapping[Rule, pa.Array]) -> dict[str, tuple[str, ...]]:
    failing = {rule.name: b for rule, b in broken.items() if rule.action is Action.FAIL and _count(b)}
    if not failing or part.payload is None:
        return {}
    payload = rows.column(part.payload)
    return {name: tuple(payload.filter(b).slice(0, SAMPLES).to_pylist()) for name, b in failing.items()}
