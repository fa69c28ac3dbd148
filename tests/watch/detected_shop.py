"""A project whose epochs and runs are written by hand, with the real ledger and the real history and without Spark."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.core.events import ChannelProgress, EpochPublished, SourceProgress
from anabranch.load.project import read_project
from anabranch.store.history import History
from anabranch.store.history_writer import HistoryWriter
from anabranch.store.ledger import Ledger, OutputRecord
from anabranch.watch.detect import Outcome, look_once, watched

FLOWS = '''"""Orders, and those that went wrong."""

from anabranch import pipelines as dp


@dp.temporary_view
def events():
    return spark.readStream.format("kafka").option("subscribe", "events").load()


@dp.table(partition_cols=["region"])
def orders():
    return spark.readStream.table("events").where("kind = 'order'")


@dp.table
def errors():
    return spark.readStream.table("events").where("kind = 'error'")


@dp.append_flow(target="errors")
def more_errors():
    return spark.readStream.table("events").where("kind = 'fault'")
'''
OUTPUTS = ("errors", "orders")
CHANNEL = "events"
START = 1_700_000_000.0


def make_files(folder: Path, lines: str, flows: str = FLOWS) -> None:
    """The project, not run yet; `lines` are added to its file."""
    (folder / "transformations").mkdir(parents=True)
    (folder / "transformations" / "shop.py").write_text(flows)
    (folder / "anabranch.yml").write_text(f"name: shop\nstorage: lake\n{lines}")


def make_ledger(folder: Path, outputs: tuple[str, ...] = OUTPUTS) -> tuple[Ledger, str]:
    """The ledger as a first run makes it, and the id of the pipeline in it."""
    lake = folder / "lake"
    ledger = Ledger.open(str(lake / "_anabranch" / "ledger.db"), create=True)
    record = ledger.register("shop", str(lake))
    identity = {"pipeline": record.pipeline_id, "name": "shop", "ledger": ledger.ledger_id}
    (lake / "_anabranch" / "identity.json").write_text(json.dumps(identity))
    places = [OutputRecord(name, "delta", f"tables/{name}") for name in outputs]
    ledger.ensure_channel(record.pipeline_id, CHANNEL, places)
    return ledger, record.pipeline_id


def receipt(output: str, rows: int | Mapping[str, int]) -> Receipt:
    """What staging would have returned; rows by region for a table that is partitioned."""
    parts = rows if isinstance(rows, Mapping) else {"": rows}
    files = [
        StagedFile(f"{output}-{part}.parquet", count, 9, "c0", {"region": part} if part else {})
        for part, count in parts.items()
        if count
    ]
    return Receipt(output, tuple(files), "{}")


class _Writer(HistoryWriter):
    """One that can be asked whether a batch is on its way into the file: it holds `writing` as long."""

    writing = threading.Lock()

    def _write(self) -> bool:
        with self.writing:
            return super()._write()


class Shop:
    """The project while it is run and watched. Nothing moves but by `pass_time`."""

    def __init__(self, folder: Path, lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.now = folder, START
        monkeypatch.setattr(time, "time", lambda: self.now)
        make_files(folder, lines)
        self.ledger, self.pipeline = make_ledger(folder)
        self.lease = self.ledger.acquire(self.pipeline, CHANNEL, seconds=1e9)
        self.number, self.shown = 0, list[dict[str, Any]]()
        self.writer: _Writer | None = None
        self.seen = watched(read_project(folder))

    def close(self) -> None:
        self.end("stopped")
        self.ledger.close()

    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    def begin(self) -> None:
        """Begin a run."""
        path = History.of(self.folder / "lake").path
        self.writer = _Writer(path, "shop", keep_seconds=1e9, tell=print)

    def end(self, outcome: str = "done") -> None:
        if self.writer:
            self.writer.close(outcome)
            self.writer = None

    def decide(self, took: float = 1.0, offsets: str = "{}", **rows: int | Mapping[str, int]) -> EpochKey:
        """An epoch is decided, after it has taken so long."""
        self.now += took
        key = EpochKey(self.pipeline, CHANNEL, 1, self.number)
        receipts = [receipt(name, rows.get(name, 0)) for name in OUTPUTS]
        self.ledger.decide(self.lease, key, receipts, offsets=offsets, times={"stage": took})
        self.number += 1
        return key

    def publish(self, key: EpochKey) -> None:
        for name in OUTPUTS:
            self.ledger.record_applied(self.lease, key, name, Applied(str(key.epoch)), at=self.now)
        self.ledger.publish(self.lease, key, window=0.0, times={})
        found = self.ledger.epoch(key)
        assert found
        if self.writer:
            written = {name: each.rows for name, each in found.receipts.items()}
            self.writer.put(EpochPublished(CHANNEL, 1, key.epoch, written))

    def epoch(self, *, read: int | None = None, took: float = 1.0, offsets: str = "{}", **rows: Any) -> None:
        """An epoch from its begin to its end; with `read`, the run tells what it read."""
        key = self.decide(took, offsets, **rows)
        self.publish(key)
        if read is not None:
            self.progress(read)

    def progress(self, read: int, behind: Mapping[str, int] | None = None, **times: float) -> None:
        """The run tells how far it is."""
        assert self.writer
        parts = behind or {}
        source = SourceProgress("Kafka", read, sum(parts.values()) if parts else None, "offsets", parts)
        number = self.number - 1
        event = ChannelProgress(CHANNEL, number, read, None, None, (source,), number, times)
        self.writer.put(event)

    def look(self) -> Outcome:
        """Look once, as `anabranch watch` does."""
        if self.writer:
            self.settled()
        return look_once(self.seen, self.shown.append)

    def settled(self) -> None:
        """Wait until the run's events are written down."""
        assert self.writer
        history, deadline = History.of(self.folder / "lake"), time.monotonic() + 120
        while True:
            with self.writer.writing:
                if not self.writer._waiting and history.run(self.writer.run):
                    return
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def alerts(self) -> list[tuple[str, str]]:
        """What the terminal was told: the phase and the detector."""
        return [(each["alert"], each["detector"]) for each in self.shown]
