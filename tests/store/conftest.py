"""A ledger on SQLite and on a real Postgres, with a channel of three outputs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anabranch.core.epoch import Applied, EpochKey, Receipt, StagedFile
from anabranch.store.ledger import EpochRecord, Lease, Ledger, OutputRecord

SINKS = ("requests", "errors", "metrics")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a ledger that does not exist yet."""
    if request.param == "sqlite":
        return str(tmp_path / "state" / "ledger.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url, create=True) as found:
        yield found


@dataclass
class Channel:
    """One channel of three outputs, with short words for what a runner does."""

    ledger: Ledger
    pipeline_id: str
    name: str = "main"

    def key(self, epoch: int, generation: int = 1) -> EpochKey:
        return EpochKey(self.pipeline_id, self.name, generation, epoch)

    def receipts(self, epoch: int) -> list[Receipt]:
        return [
            Receipt(sink, (StagedFile(f"{sink}-{epoch}.parquet", 3, 99, "c0", {"day": None}, {"min": 1.5}),), "{}")
            for sink in SINKS
        ]

    def lease(self, seconds: float = 60.0, wait: float = 0.0) -> Lease:
        return self.ledger.acquire(self.pipeline_id, self.name, seconds=seconds, wait=wait)

    def decide(self, lease: Lease, epoch: int, generation: int = 1) -> EpochKey:
        key = self.key(epoch, generation)
        self.ledger.decide(lease, key, self.receipts(epoch), offsets=f'{{"n":{epoch}}}', times={"read": 0.5})
        return key

    def apply(self, lease: Lease, key: EpochKey, *sinks: str) -> None:
        for sink in sinks or SINKS:
            version = str(1000 * key.generation + key.epoch)
            self.ledger.record_applied(lease, key, sink, Applied(version), at=5.0)

    def publish(self, lease: Lease, epoch: int, generation: int = 1) -> EpochKey:
        key = self.decide(lease, epoch, generation)
        self.apply(lease, key)
        self.ledger.publish(lease, key, window=0.25, times={"apply": 2})
        return key

    def stored(self, key: EpochKey) -> EpochRecord:
        found = self.ledger.epoch(key)
        assert found is not None
        return found


def _channel_of(ledger: Ledger) -> Channel:
    shop = ledger.register("shop", "/data/shop")
    ledger.ensure_channel(shop.pipeline_id, "main", [OutputRecord(s, "delta", f"/data/{s}") for s in SINKS])
    return Channel(ledger, shop.pipeline_id)


@pytest.fixture
def channel(ledger: Ledger) -> Channel:
    return _channel_of(ledger)


@pytest.fixture
def channel_of() -> Callable[[Ledger], Channel]:
    """For tests that open their own ledger."""
    return _channel_of


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python code in a process of its own; whatever is left of them at the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
        process = subprocess.Popen(command, text=True, env={**os.environ, **environment}, **pipes)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
