"""The ledger: the database that holds every epoch record, and the only commit point there is.

An epoch is decided in one transaction or it never was. Every write by a runner carries its lease and is refused once
another runner holds a higher token. Readers get one snapshot.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.open(f"{folder.name}/ledger.db", create=True) as ledger:
    ...     shop = ledger.register("shop", "/data/shop")
    ...     made = ledger.ensure_channel(shop.pipeline_id, "orders", [OutputRecord("errors", "delta", "/data/errors")])
    ...     lease = ledger.acquire(shop.pipeline_id, "orders", seconds=60)
    ...     key = EpochKey(shop.pipeline_id, "orders", made.generation, 0)
    ...     ledger.decide(lease, key, [Receipt("errors", (), "{}")], offsets="{}", times={})
    ...     ledger.record_applied(lease, key, "errors", Applied("1"), at=0.0)
    ...     ledger.publish(lease, key, window=0.0, times={})
    ...     ledger.cut(shop.pipeline_id).tables["errors"].version
    '1'
    >>> folder.cleanup()
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType

from sqlalchemy import Connection, and_, select

from anabranch.core.epoch import OPEN, Applied, CutRecord, CutTable, EpochKey, Receipt, State
from anabranch.core.quality import FlowQuality
from anabranch.errors import CommitUnknown, InternalError, LockHeld
from anabranch.store import channels, cuts, drops, epoch_rows, epochs, schema
from anabranch.store import lease as leases
from anabranch.store.database import Database
from anabranch.store.lease import Lease
from anabranch.store.opening import open_database
from anabranch.store.process import Holder
from anabranch.store.records import ChannelRecord, EpochRecord, OutputRecord, PipelineRecord

__all__ = ["ChannelRecord", "EpochRecord", "Lease", "Ledger", "OutputRecord", "PipelineRecord"]

#: How often a waiting `acquire` looks again, in seconds: a database row cannot wake anybody up.
_LOOK_AGAIN = 0.1


class Ledger:
    """An open ledger; all methods may be called from any thread."""

    def __init__(self, database: Database, ledger_id: str) -> None:
        self._database = database
        self.ledger_id = ledger_id

    @classmethod
    def open(cls, url: str, *, create: bool, readonly: bool = False, moved: bool = False) -> Ledger:
        """Open the ledger at a path, `sqlite:///path` or `postgresql://...`.

        `readonly` writes nothing at all, and works beside a running writer. A ledger found elsewhere than where it was
        made is refused as a copy; `moved` opens it all the same, so that `accept_location` can be called.
        """
        database, about = open_database(url, create=create, readonly=readonly, moved=moved)
        return cls(database, about["ledger_id"])

    def close(self) -> None:
        """Give every connection back."""
        self._database.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Ledger {self._database.address.shown}>"

    def location(self) -> str:
        """Where the ledger is, in the words by which a copy is recognised."""
        return self._database.place()

    def accept_location(self) -> None:
        """Record that the ledger's place is now the one it was opened at."""
        place = self._database.place()
        self._database.write(lambda c: schema.write_meta(c, "location", place), repeatable=True)

    # Pipelines, channels, outputs

    def register(self, name: str, storage: str) -> PipelineRecord:
        """The pipeline of this name, with an id made the first time."""
        return self._database.write(
            lambda c: channels.register_pipeline(c, self._database, name, storage), repeatable=True
        )

    def move_storage(self, name: str, storage: str) -> None:
        """Record that the storage of a pipeline is at another place now."""
        self._database.write(lambda c: channels.move_storage(c, name, storage), repeatable=True)

    def pipeline(self, name: str) -> PipelineRecord | None:
        """The pipeline of this name, if a run ever registered it."""
        return self._database.read(lambda c: channels.find_pipeline(c, name))

    def ensure_channel(self, pipeline_id: str, channel: str, outputs: Sequence[OutputRecord]) -> ChannelRecord:
        """The channel with exactly these outputs, registered as needed.

        Outputs change (appear, go, move here from another channel) only while no other process holds a channel
        concerned and no epoch of it is open.
        """
        return self._database.write(
            lambda c: channels.ensure_channel(c, self._database, pipeline_id, channel, outputs), repeatable=True
        )

    def channels(self, pipeline_id: str) -> tuple[ChannelRecord, ...]:
        """Every channel of a pipeline, by name."""
        return self._database.read(lambda c: channels.all_channels(c, pipeline_id))

    def new_generation(self, lease: Lease) -> int:
        """Start counting epochs anew, as a reset does; returns the new generation.

        An epoch that is still open is given up: the new generation replaces what its sinks hold.
        """

        def work(connection: Connection) -> int:
            row = leases.fenced_channel(connection, self._database, lease)
            epochs.give_up(connection, lease.pipeline_id, lease.channel)
            leases.write_channel(connection, row, generation=row["generation"] + 1)
            return int(row["generation"]) + 1

        return self._database.write(work)

    def output(self, pipeline_id: str, name: str) -> drops.Known | None:
        """An output that a channel has, that an epoch still names, or whose removal was begun."""
        return self._database.read(lambda c: drops.find(c, pipeline_id, name))

    def drop(self, lease: Lease, name: str) -> None:
        """Take an output out of its channel and the newest cut; `dropped` says that its files are gone as well."""

        def work(connection: Connection) -> None:
            leases.fenced_channel(connection, self._database, lease)
            if known := drops.find(connection, lease.pipeline_id, name):
                drops.begin(connection, self._database, lease.pipeline_id, known)

        self._database.write(work, repeatable=True)

    def dropped(self, pipeline_id: str, name: str) -> None:
        """Forget that an output was to be removed: it is."""
        self._database.write(lambda c: drops.end(c, pipeline_id, name), repeatable=True)

    # Leases

    def acquire(self, pipeline_id: str, channel: str, *, seconds: float, wait: float = 0.0) -> Lease:
        """Take the channel for `seconds`, waiting up to `wait` for whoever holds it."""
        deadline = time.monotonic() + wait
        while True:
            try:
                return self._database.write(lambda c: leases.take(c, self._database, pipeline_id, channel, seconds))
            except LockHeld:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(_LOOK_AGAIN, left))

    def renew(self, lease: Lease) -> None:
        """Hold the lease for another `seconds` from now."""
        self._database.write(lambda c: leases.extend(c, self._database, lease), repeatable=True)

    def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens to one that was lost."""
        self._database.write(lambda c: leases.give_back(c, self._database, lease), repeatable=True)

    def holders(self, pipeline_id: str) -> dict[str, Holder]:
        """Who works on which channel right now."""
        return self._database.read(lambda c: leases.live_holders(c, self._database, pipeline_id))

    # Epochs

    def decide(
        self,
        lease: Lease,
        key: EpochKey,
        receipts: Sequence[Receipt],
        *,
        offsets: str,
        times: Mapping[str, float],
        quality: Sequence[FlowQuality] = (),
    ) -> None:
        """Commit the epoch: from here on it is rolled forward, whatever crashes."""
        _same_channel(lease, key)

        def work(connection: Connection) -> None:
            row = leases.fenced_channel(connection, self._database, lease)
            epochs.decide(connection, row, key, receipts, offsets, times, quality)

        def was_decided(connection: Connection) -> bool:
            # Taking the row first waits for the transaction whose answer was lost, should it still be under way.
            leases.fenced_channel(connection, self._database, lease)
            found = epoch_rows.load(connection, _one(key))
            if not found or found[0].token != lease.token:
                return False
            return {r.to_json() for r in found[0].receipts.values()} == {r.to_json() for r in receipts}

        try:
            self._database.write(work)
        except CommitUnknown:
            if not self._database.write(was_decided, repeatable=True):
                self._database.write(work)

    def restage(self, lease: Lease, key: EpochKey, sinks: Sequence[str], reason: str) -> None:
        """Take back the receipts of sinks that have not taken the epoch, because their staged files are damaged."""
        self._change(lease, key, lambda c: epochs.restage(c, key, sinks, reason))

    def redecide(self, lease: Lease, key: EpochKey, receipts: Sequence[Receipt]) -> None:
        """Give the sinks that were taken back new receipts, from the same offsets."""
        self._change(lease, key, lambda c: epochs.redecide(c, key, receipts), repeatable=False)

    def record_applied(self, lease: Lease, key: EpochKey, sink: str, applied: Applied, at: float) -> None:
        """Note the version at which a sink holds the epoch. Noting it again changes nothing."""
        self._change(lease, key, lambda c: epochs.record_applied(c, key, sink, applied, at))

    def publish(self, lease: Lease, key: EpochKey, *, window: float, times: Mapping[str, float]) -> None:
        """Move the cut to this epoch; `times` are added to those noted when it was decided."""
        _same_channel(lease, key)

        def work(connection: Connection) -> None:
            row = leases.fenced_channel(connection, self._database, lease)
            epochs.publish(connection, row, key, window, times)

        self._database.write(work, repeatable=True)

    def join(self, lease: Lease, key: EpochKey, output: OutputRecord, receipt: Receipt, applied: Applied) -> None:
        """Let an output that has the rows of all epochs up to a published one stand at it."""
        self._change(lease, key, lambda c: epochs.join(c, key, output, receipt, applied, time.time()))

    def _change(self, lease: Lease, key: EpochKey, work: epochs.Change, *, repeatable: bool = True) -> None:
        _same_channel(lease, key)

        def fenced(connection: Connection) -> None:
            leases.fenced_channel(connection, self._database, lease)
            work(connection)

        self._database.write(fenced, repeatable=repeatable)

    # Reading

    def epoch(self, key: EpochKey) -> EpochRecord | None:
        """One epoch, unless it was never decided or is forgotten."""
        found = self._database.read(lambda c: epoch_rows.load(c, _one(key)))
        return found[0] if found else None

    def last(self, pipeline_id: str, channel: str, generation: int) -> EpochRecord | None:
        """The newest decided epoch of a generation."""
        table = schema.epochs
        query = select(table).where(
            table.c.pipeline_id == pipeline_id, table.c.channel == channel, table.c.generation == generation
        )
        query = query.order_by(table.c.epoch.desc()).limit(1)
        found = self._database.read(lambda c: epoch_rows.load(c, query))
        return found[0] if found else None

    def open_epochs(self, pipeline_id: str, channel: str) -> tuple[EpochRecord, ...]:
        """The epochs that are decided and not published, oldest first."""
        table = schema.epochs
        query = select(table).where(
            table.c.pipeline_id == pipeline_id, table.c.channel == channel, table.c.state.in_(OPEN)
        )
        query = query.order_by(table.c.generation, table.c.epoch)
        return self._database.read(lambda c: epoch_rows.load(c, query))

    def epochs(
        self,
        pipeline_id: str,
        *,
        channel: str | None = None,
        states: Collection[State] | None = None,
        limit: int = 20,
        skip: int = 0,
    ) -> tuple[EpochRecord, ...]:
        """The newest epochs but `skip`, newest first, of all channels or one, in any state or some."""
        table = schema.epochs
        query = select(table).where(table.c.pipeline_id == pipeline_id)
        if channel is not None:
            query = query.where(table.c.channel == channel)
        if states is not None:
            query = query.where(table.c.state.in_([state.value for state in states]))
        query = query.order_by(table.c.decided_at.desc(), table.c.generation.desc(), table.c.epoch.desc())
        query = query.limit(limit).offset(skip)
        return self._database.read(lambda c: epoch_rows.load(c, query))

    def published_after(
        self, pipeline_id: str, channel: str, generation: int, epoch: int, *, limit: int
    ) -> tuple[EpochRecord, ...]:
        """The published epochs of a channel that come after this one, oldest first."""
        table = schema.epochs
        later = and_(table.c.generation == generation, table.c.epoch > epoch) | (table.c.generation > generation)
        query = select(table).where(
            table.c.pipeline_id == pipeline_id,
            table.c.channel == channel,
            table.c.state == State.PUBLISHED.value,
            later,
        )
        query = query.order_by(table.c.generation, table.c.epoch).limit(limit)
        return self._database.read(lambda c: epoch_rows.load(c, query))

    def cut(self, pipeline_id: str, *, at: Mapping[str, int] | None = None) -> CutRecord:
        """The newest consistent cut, or the one with the given epoch for some channels."""
        return self._database.read(lambda c: cuts.read_cut(c, pipeline_id, at or {}))

    # Retention

    def prune(
        self,
        pipeline_id: str,
        channel: str,
        *,
        keep_from_epoch: int | None = None,
        published_before: float | None = None,
    ) -> int:
        """Forget published epochs that are older than every limit given; returns how many.

        `keep_from_epoch` counts in the generation of the newest published epoch, which always stays.
        """

        def work(connection: Connection) -> int:
            leases.locked_channel(connection, self._database, pipeline_id, channel)
            return cuts.forget(connection, pipeline_id, channel, keep_from_epoch, published_before)

        return self._database.write(work)

    def retained(self, pipeline_id: str, *, published_since: float | None = None) -> tuple[CutTable, ...]:
        """Every version of every table that an epoch in the ledger names: what must not be vacuumed.

        With `published_since`, as if older epochs had been pruned.
        """
        return self._database.read(lambda c: cuts.pinned(c, pipeline_id, published_since))


def _one(key: EpochKey) -> epoch_rows.Query:
    return select(schema.epochs).where(epoch_rows.at_key(schema.epochs, key))


def _same_channel(lease: Lease, key: EpochKey) -> None:
    if (lease.pipeline_id, lease.channel) != (key.pipeline, key.channel):
        raise InternalError(
            "LEASE_OF_OTHER_CHANNEL",
            f'a lease of channel "{lease.channel}" cannot write {epoch_rows.named(key)}',
            hint="this is a fault in Anabranch; please report it",
        )
