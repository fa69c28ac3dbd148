"""What events cost: telling, wording and writing those of an epoch, as a share of the time of a small epoch.

`python bench/events.py` prints JSON. An epoch of 1,000 rows takes 0.15 s (Spark's own floor for a micro-batch); the
goal is that events take less than 3 % of that, counted as CPU of the thread that tells and of the thread that writes.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from anabranch.core.events import ChannelProgress, EpochPublished, Event, SourceProgress
from anabranch.core.quality import FlowQuality
from anabranch.engine.event_log import recorded
from anabranch.store.history import History

EPOCH_SECONDS = 0.15
GOAL_PERCENT = 3.0


def events_of(epoch: int) -> list[Event]:
    """What one epoch of a channel with five outputs, three of them with rules, tells."""
    rows = {f"silver.table_{n}": 200 for n in range(5)}
    rules = {f"rule_{n}": n for n in range(6)}
    quality = tuple(FlowQuality(name, name, 200, rules, dropped=2, breaking=5) for name in list(rows)[:3])
    times = {"stage": 0.08, "decide": 0.001, "apply": 0.04}
    source = SourceProgress("FileStreamSource[file:/landing/requests]", 1000)
    return [
        EpochPublished("requests", 1, epoch, rows, times, 0.02, quality),
        ChannelProgress("requests", epoch, 1000, 6600.0, 6700.0, (source,)),
    ]


def cost(epochs: int, pause: float) -> dict[str, float]:
    """Milliseconds an epoch; with a pause between epochs each is written on its own, without one in large batches."""
    with tempfile.TemporaryDirectory() as folder:
        history = History.of(folder)
        told = []
        with recorded(lambda _: None, history.path, "bench", keep_seconds=1e9) as listen:
            before = time.process_time()
            for epoch in range(epochs):
                began = time.perf_counter()
                for event in events_of(epoch):
                    listen(event)
                told.append(time.perf_counter() - began)
                time.sleep(pause)
        cpu = time.process_time() - before
        stored = history.events(limit=10 * epochs)
        assert len(stored) == 2 * epochs, len(stored)
        size = sum(path.stat().st_size for path in Path(history.path).parent.iterdir())
    made = time.process_time()
    for epoch in range(epochs):
        events_of(epoch)
    making = time.process_time() - made
    return {
        "telling_ms": round(statistics.median(told) * 1000, 4),
        "cpu_ms": round((cpu - making) / epochs * 1000, 4),
        "bytes_on_disk": round(size / epochs),
    }


def main() -> None:
    found = {"one by one": cost(100, 0.25), "in batches": cost(2000, 0.0)}
    worst = max(each["cpu_ms"] for each in found.values())
    percent = round(worst / 1000 / EPOCH_SECONDS * 100, 3)
    told = round(max(each["telling_ms"] for each in found.values()) / 1000 / EPOCH_SECONDS * 100, 4)
    goal = {"goal_percent": GOAL_PERCENT, "percent_of_an_epoch": percent, "percent_in_its_own_thread": told}
    print(json.dumps({**found, **goal}, indent=2))
    if percent > GOAL_PERCENT:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
