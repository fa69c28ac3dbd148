"""One channel at work: the body of its streaming query, which takes a micro-batch through the life of an epoch.

1. read      Spark has fixed the offsets of the batch                read
2. flows     computed by the same pass that stages them
3. stage     every output's rows durable and invisible               staging, staged
4. decide    see `commit`                                            deciding, decided
5. apply                                                             applying, committed, applied
6. publish                                                           publishing, published

A batch that Spark hands in again is recognised in the ledger: a published one is skipped, a decided one is finished,
one with damaged files is staged again for the sinks that still need it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from anabranch.connectors.contract import Sink, Staging
from anabranch.core import crash
from anabranch.core.epoch import EpochKey, Receipt, State
from anabranch.core.events import EpochDiscarded, EpochPublished, Listener
from anabranch.core.events_data import ColumnsProfiled, ProfileFailed
from anabranch.core.profile import Observed
from anabranch.core.quality import FlowQuality, check
from anabranch.engine.commit import apply, decide, publish, tell
from anabranch.engine.rows import NativeCount, Staged
from anabranch.engine.unique import repeated
from anabranch.errors import Interrupted, StateError
from anabranch.store.ledger import EpochRecord, Lease, Ledger


class Offsets(Protocol):
    """What an epoch needs of a checkpoint; see `checkpoint.Checkpoint`."""

    def offsets(self, epoch: int) -> str | None:
        """Where each source stands at the end of an epoch."""

    def input_bytes(self, epoch: int) -> int | None:
        """How much an epoch reads, if that is known before it is read."""

    def settle(self, epoch: int) -> None:
        """Make the offsets of an epoch durable."""

    def same_offsets(self, record: EpochRecord) -> None:
        """Refuse an epoch that was decided for other offsets."""


#: A batch that reads no more than this is staged by the driver, if its flows keep no state.
SMALL_BYTES = 4 << 20


#: Epochs whose progress may still be asked for.
_REMEMBERED = 1000


class Stager(Protocol):
    """Writes the rows of a batch for the outputs that are named; in a run this is `stage.stage` over a Spark frame."""

    def __call__(self, frame: Any, stagings: Mapping[str, Staging], key: EpochKey, *, small: bool) -> Staged:
        """What was staged; `small` tells that the batch reads little.

        With no output named, nothing is written, but flows that keep state take the batch in.
        """


@dataclass
class ChannelRun:
    """What the epochs of one channel share while a process runs it."""

    ledger: Ledger
    lease: Lease
    generation: int
    sinks: Mapping[str, Sink]
    stage: Stager
    checkpoint: Offsets
    listener: Listener
    observe: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # columns to profile, by output; () for all
    replaces: bool = False  # every epoch takes the place of what the sinks hold
    after: tuple[Callable[[int], None], ...] = ()  # called with the number of an epoch once it is published
    failure: BaseException | None = None
    epochs: int = 0
    rows: int = 0
    read: dict[int, int] = field(default_factory=dict)  # records that workers read from files, by epoch
    _native: NativeCount | None = None  # of the epoch in hand
    _busy: threading.Lock = field(default_factory=threading.Lock)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def batch(self, frame: Any, number: int) -> None:
        """What Spark calls for every micro-batch."""
        with self._busy:
            try:
                if self._stopping.is_set():
                    raise Interrupted("INTERRUPTED", "stopped before the epoch began")
                self._epoch(frame, number)
            except BaseException as error:
                # Spark would wrap it into a text of its own; whoever waits for the query asks here first.
                self.failure = error
                raise

    def stop(self) -> None:
        """Let the epoch in hand finish; begin no other."""
        self._stopping.set()
        with self._busy:
            pass

    def _epoch(self, frame: Any, number: int) -> None:
        key = EpochKey(self.lease.pipeline_id, self.lease.channel, self.generation, number)
        self._native = None
        record = self.ledger.epoch(key)
        if record is None:
            record = self._new(frame, key)
        else:
            self.ledger.renew(self.lease)  # whoever was taken over must not go on with a record that is no longer his
            self.checkpoint.same_offsets(record)
            if record.state is State.RESTAGE:
                record = self._again(frame, record)
            else:
                # Rows are not needed, but state may be: Spark asks that a batch it hands in be computed to the end.
                self.stage(frame, {}, key, small=False)
            if record.state is State.PUBLISHED:
                return
        committed = apply(self.ledger, self.lease, record, self.sinks)  # 5
        tell(committed, self.listener)
        times = {**record.times, "apply": committed.seconds}
        applied = time.monotonic()
        publish(self.ledger, self.lease, key, window=committed.window, times=times)  # 6
        times["publish"] = time.monotonic() - applied
        rows = {name: receipt.rows for name, receipt in record.receipts.items()}
        self.epochs, self.rows = self.epochs + 1, self.rows + sum(rows.values())
        self.listener(
            EpochPublished(
                key.channel,
                key.generation,
                number,
                rows,
                times,
                committed.window,
                record.quality,
                committed.moments,
                self._native.shares if self._native else {},
            )
        )
        for call in self.after:
            call(number)

    def _new(self, frame: Any, key: EpochKey) -> EpochRecord:
        """Steps 1 to 4."""
        started = time.monotonic()
        offsets = self.checkpoint.offsets(key.epoch)  # 1
        if offsets is None:
            raise StateError(
                "CHECKPOINT_MISSING",
                f'Spark wrote no offsets for epoch {key.epoch} of channel "{key.channel}"',
                hint="is another process using the same checkpoint? stop it and run again",
            )
        self.checkpoint.settle(key.epoch)
        crash.point("read")
        # The first epoch of a new generation takes the place of what the one before it left.
        first = self.generation > 1 and self.ledger.last(key.pipeline, key.channel, key.generation) is None
        try:
            receipts, quality = self._stage(frame, key, dict.fromkeys(self.sinks, first or self.replaces))  # 2, 3
            check(quality)
            quality = [*quality, *repeated(self.sinks, receipts)]
        except Exception as error:
            self.listener(EpochDiscarded(key.channel, key.epoch, f"staging failed: {type(error).__name__}"))
            raise
        crash.point("staged")
        staged = time.monotonic()
        times = {"stage": staged - started}
        record = decide(self.ledger, self.lease, key, receipts, offsets=offsets, times=times, quality=quality)  # 4
        return replace(record, times={**times, "decide": time.monotonic() - staged})

    def _again(self, frame: Any, record: EpochRecord) -> EpochRecord:
        """Stage anew, from the same offsets, what was damaged before its sink took it."""
        needed = {name: record.receipts[name].replace for name in record.restaging}
        receipts, _ = self._stage(frame, record.key, needed)  # its rows were judged when it was decided
        self.ledger.redecide(self.lease, record.key, receipts)
        fresh = self.ledger.epoch(record.key)
        assert fresh is not None, "the ledger lost an epoch it has just written"
        return fresh

    def _stage(
        self, frame: Any, key: EpochKey, needed: Mapping[str, bool]
    ) -> tuple[list[Receipt], Sequence[FlowQuality]]:
        """Stage the outputs that are needed; True for one that replaces what its sink holds."""
        stagings = {name: self.sinks[name].staging(key, self.lease.token) for name in needed}
        stagings |= {
            name: replace(stagings[name], observe=self.observe[name]) for name in needed if name in self.observe
        }
        size = self.checkpoint.input_bytes(key.epoch)
        staged = self.stage(frame, stagings, key, small=size is not None and size <= SMALL_BYTES)
        self._tell_observed(key, staged.observed)
        if staged.native:
            self._native = staged.native
            self.read = {epoch: count for epoch, count in self.read.items() if epoch > key.epoch - _REMEMBERED}
            self.read[key.epoch] = staged.native.read
        receipts = [self.sinks[name].receipt(key, files, replace=needed[name]) for name, files in staged.files.items()]
        return receipts, staged.quality

    def _tell_observed(self, key: EpochKey, seen: Observed) -> None:
        """Say what the rows are like. Told before the epoch is decided: one that is killed then has its profile, too.

        One that is staged again has the same rows, or takes the place of one that was never decided: whoever keeps
        profiles keeps the last of an epoch.
        """
        for name, profile in seen.profiles.items():
            self.listener(ColumnsProfiled(key.channel, key.generation, key.epoch, name, profile))
        for name, reason in seen.failures.items():
            self.listener(ProfileFailed(key.channel, key.epoch, name, reason))
