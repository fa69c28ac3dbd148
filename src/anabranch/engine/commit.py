"""Commit: decide the epoch in the ledger, hand every sink its receipt, publish the cut. No Spark in here.

The steps, numbered as in the bodies, with the crash points that tests kill at:

1. decide    one ledger transaction with every receipt          deciding, decided
2. apply     each sink takes its receipt, in parallel           applying, committed, applied (once per sink)
             those that can, in one transaction
3. publish   the versions that came out are the new cut         publishing, published

Before 1 commits the epoch does not exist; after it the epoch is finished by whoever comes next.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from anabranch.connectors.contract import Sink, Together
from anabranch.core import crash
from anabranch.core.epoch import Applied, EpochKey, Receipt
from anabranch.core.events import Listener
from anabranch.core.events_data import SinkTold
from anabranch.core.quality import FlowQuality
from anabranch.store.lease import Lease
from anabranch.store.ledger import Ledger
from anabranch.store.records import EpochRecord

#: Sinks that take their receipts at the same time.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Committed:
    """How applying went: `window` is the time between the first and the last sink's commit.

    `moments` are when each sink began and was done, in seconds after the first one began.
    """

    seconds: float
    window: float
    applied: Mapping[str, Applied]
    moments: Mapping[str, tuple[float, float]]


def decide(
    ledger: Ledger,
    lease: Lease,
    key: EpochKey,
    receipts: Sequence[Receipt],
    *,
    offsets: str,
    times: Mapping[str, float],
    quality: Sequence[FlowQuality] = (),
) -> EpochRecord:
    """Write the epoch record. From here on the epoch is kept."""
    ledger.decide(lease, key, receipts, offsets=offsets, times=times, quality=quality)  # 1
    crash.point("decided")
    record = ledger.epoch(key)
    assert record is not None, "the ledger lost an epoch it has just written"
    return record


def apply(ledger: Ledger, lease: Lease, record: EpochRecord, sinks: Mapping[str, Sink]) -> Committed:
    """Hand each sink that has not got it yet its receipt of a decided epoch."""
    started = time.monotonic()

    def one(names: Sequence[str]) -> list[tuple[str, Applied, float, float]]:
        began = time.monotonic()
        for name in names:
            crash.point("applying", name)
        taken = [(sinks[name], record.receipts[name]) for name in names]
        first = sinks[names[0]]
        if isinstance(first, Together):
            found = first.apply_all(record.key, taken)  # 2
        else:
            found = [sink.apply(record.key, receipt) for sink, receipt in taken]  # 2
        at = time.monotonic()
        for name, applied in zip(names, found, strict=True):
            ledger.record_applied(lease, record.key, name, applied, at=time.time())
            crash.point("applied", name)
        return [(name, applied, began, at) for name, applied in zip(names, found, strict=True)]

    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="apply") as pool:
        done = [each for part in pool.map(one, _groups(record.waiting, sinks)) for each in part]
    moments = [at for _, applied, _, at in done if not applied.already]
    return Committed(
        seconds=time.monotonic() - started,
        window=max(moments) - min(moments) if moments else 0.0,
        applied={**record.applied, **{name: applied for name, applied, _, _ in done}},
        moments={name: (began - started, at - started) for name, _, began, at in done},
    )


def tell(committed: Committed, listener: Listener) -> None:
    """What sinks have to say of an epoch that they took."""
    for name, applied in committed.applied.items():
        if applied.note:
            listener(SinkTold(name, applied.note))


def _groups(names: Sequence[str], sinks: Mapping[str, Sink]) -> list[list[str]]:
    """Which sinks take their receipts together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in names:
        sink = sinks[name]
        groups.setdefault(("group", sink.group) if isinstance(sink, Together) else ("sink", name), []).append(name)
    return list(groups.values())


def publish(ledger: Ledger, lease: Lease, key: EpochKey, *, window: float, times: Mapping[str, float]) -> None:
    """Make the epoch the newest cut."""
    ledger.publish(lease, key, window=window, times=times)  # 3
    crash.point("published")
