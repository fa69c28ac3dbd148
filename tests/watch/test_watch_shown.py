"""Open incidents where people look: the page, and the command that goes on watching."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import Thread

from detected_shop import CHANNEL, OUTPUTS, Shop, make_files, make_ledger, receipt
from ui_served import Reader, client

from anabranch.core.epoch import Applied, EpochKey

HOSTILE = "<script>alert(1)</script>"


def test_the_page_shows_what_is_open_and_lets_nothing_through(shop: Callable[[str], Shop]) -> None:
    at = shop(f"detectors:\n  - {{kind: interruption, on: orders, lulls: none, name: '{HOSTILE}'}}\n")
    at.epoch(orders=5)
    with client(at.folder) as page:
        assert "Open incidents" not in page.get("/").text
        at.pass_time(3600)
        assert len(at.look().opened) == 1
        text = page.get("/").text
        assert "Open incidents" in text
        assert "no rows were written to orders for 60 minutes" in text
        assert HOSTILE not in text
        assert "&lt;script&gt;alert(1)" in text
        assert Reader(text).faults == []
        at.epoch(orders=5)
        at.look()
        assert "Open incidents" not in page.get("/").text


def epochs(folder: Path) -> Iterator[int]:
    """Publishes one epoch after the other, with rows for every output; the number of each."""
    ledger, pipeline = make_ledger(folder)
    with ledger:
        lease = ledger.acquire(pipeline, CHANNEL, seconds=600)
        for number in itertools.count():
            key = EpochKey(pipeline, CHANNEL, 1, number)
            ledger.decide(lease, key, [receipt(name, 5) for name in OUTPUTS], offsets="{}", times={})
            for name in OUTPUTS:
                ledger.record_applied(lease, key, name, Applied(str(number)), at=time.time())
            ledger.publish(lease, key, window=0.0, times={})
            yield number


def test_the_command_goes_on_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    make_files(folder, "detectors:\n  - {kind: interruption, on: orders, lulls: none, within: 100 ms}\n")
    command = [sys.executable, "-m", "anabranch.cli.main", "watch", "--every", "50ms", "--project", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout is not None
        assert watcher.stderr is not None
        try:
            assert watcher.stderr.readline().startswith("watching 1 detectors")
            assert "nothing has been run yet" in watcher.stderr.readline()  # and is told once, not at every look
            said = Queue[str]()
            Thread(target=lambda out: [*map(said.put, out)], args=[watcher.stdout], daemon=True).start()
            for number in epochs(folder):
                if number == 0:
                    assert "opened  interruption of orders" in said.get(timeout=120)
                elif not said.empty():  # a look that came soon enough after an epoch
                    break
            assert "closed  interruption of orders" in said.get()
            assert "opened  interruption of orders" in said.get(timeout=120)
            watcher.send_signal(signal.SIGINT)
            assert watcher.wait(120) == 0
            assert watcher.stderr.read() == ""
        finally:
            watcher.kill()
