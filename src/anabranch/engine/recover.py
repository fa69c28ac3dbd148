"""Recover: finish what was decided, remove what was not. Runs at every start, and may itself be killed at any point.

1. Every decided epoch that is not published is finished from its staged files:
   a. a sink that has it already is only recorded;                       recovering
   b. a sink whose staged files are damaged is marked to be staged again, from the same offsets, by the next run;
   c. any other sink takes its receipt.
2. It is published, unless a sink has to be staged again.
3. Staged files that no receipt and no table knows are removed.          discarding
4. Sinks that keep rows for later send them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from anabranch.connectors.contract import Keeping, Sink
from anabranch.core import crash
from anabranch.core.epoch import State
from anabranch.core.events import EpochRecovered, EpochRestaged, Listener
from anabranch.core.events_data import LeftoversRemoved, SinkTold
from anabranch.engine.commit import apply, publish, tell
from anabranch.store.ledger import EpochRecord, Lease, Ledger


@dataclass(frozen=True, slots=True)
class Recovered:
    """What recovery did: epochs finished, epochs to be staged again, leftover files and bytes removed."""

    finished: tuple[int, ...]
    restage: tuple[int, ...]
    files: int
    bytes: int


def recover(ledger: Ledger, lease: Lease, sinks: Mapping[str, Sink], listener: Listener) -> Recovered:
    """Bring one channel to a state from which it can go on."""
    finished: list[int] = []
    restage: list[int] = []
    for record in ledger.open_epochs(lease.pipeline_id, lease.channel):
        crash.point("recovering")
        (finished if _finish(ledger, lease, record, sinks, listener) else restage).append(record.key.epoch)
    files, size = _remove_leftovers(ledger, lease, sinks, listener)
    for name, sink in sinks.items():
        if isinstance(sink, Keeping) and (note := sink.send_waiting()):  # 4
            listener(SinkTold(name, note))
    crash.point("recovered")
    return Recovered(tuple(finished), tuple(restage), files, size)


def _finish(ledger: Ledger, lease: Lease, record: EpochRecord, sinks: Mapping[str, Sink], listener: Listener) -> bool:
    """Steps 1 and 2 for one epoch; False when it has to be staged again."""
    if record.state is State.RESTAGE:
        return False
    damaged: dict[str, str] = {}
    for name in record.waiting:
        receipt = record.receipts[name]
        found = sinks[name].find(record.key) if receipt.files else None
        reason = None if found else sinks[name].damaged(receipt)
        if reason:
            damaged[name] = reason  # 1b
    if damaged:
        reason = "; ".join(f"{name}: {why}" for name, why in damaged.items())
        ledger.restage(lease, record.key, list(damaged), reason)
        listener(EpochRestaged(lease.channel, record.key.epoch, tuple(damaged), reason))
        return False
    committed = apply(ledger, lease, record, sinks)  # 1a, 1c
    tell(committed, listener)
    publish(ledger, lease, record.key, window=committed.window, times=record.times)  # 2
    listener(EpochRecovered(lease.channel, record.key.epoch, record.waiting))
    return True


def _remove_leftovers(ledger: Ledger, lease: Lease, sinks: Mapping[str, Sink], listener: Listener) -> tuple[int, int]:
    """Step 3."""
    keep: dict[str, set[str]] = {name: set() for name in sinks}
    for record in ledger.open_epochs(lease.pipeline_id, lease.channel):
        for name, receipt in record.receipts.items():
            keep[name] |= {f.path for f in receipt.files}
    total_files = total_bytes = 0
    for name, sink in sinks.items():
        found = sink.leftovers(frozenset(keep[name]), lease.token)
        for path, _ in found:
            crash.point("discarding", name)
            sink.discard([path])
        if found:
            size = sum(size for _, size in found)
            listener(LeftoversRemoved(name, len(found), size))
            total_files, total_bytes = total_files + len(found), total_bytes + size
    return total_files, total_bytes
