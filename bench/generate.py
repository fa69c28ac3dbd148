"""How many rows of synthetic data one core makes in a second of its time, into files: `python bench/generate.py`."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from anabranch.generate.entities import ENTITIES, SHIPPING, Entity
from anabranch.generate.faults import Faults
from anabranch.generate.run import Made, Wanted, generate
from anabranch.generate.to_files import FolderTarget

ROWS, RUNS = 300_000, 5
GOAL_ROWS = 100_000
FAULTS = Faults(late=0.02, duplicate=0.01, malformed=0.005, drift=0.01, skew=0.3, disorder=0.05)


def rows_per_cpu_second(entities: list[Entity], faults: Faults, rows: int = ROWS) -> dict[str, float]:
    """Events a second of processor time, the writing of files included: the median of some runs after a first one."""
    times = []
    for _ in range(RUNS + 1):
        made: dict[str, Made] = {}
        with tempfile.TemporaryDirectory() as name:
            before = time.process_time()
            generate(Wanted(entities, rows, files=4, faults=faults), FolderTarget(Path(name)), made)
            times.append(time.process_time() - before)
    seconds = statistics.median(times[1:])
    size = sum(m.bytes for m in made.values())
    return {"rows_per_cpu_second": round(rows / seconds), "megabytes_per_cpu_second": round(size / seconds / 1e6)}


def main() -> None:
    pa.set_cpu_count(1)
    scans, requests = ENTITIES["shipment_scan_event"], ENTITIES["request_event"]
    found = {
        "scan events": rows_per_cpu_second([scans], Faults()),
        "scan events with faults": rows_per_cpu_second([scans], FAULTS),
        "all nine entities": rows_per_cpu_second(list(SHIPPING), Faults()),
        "request events": rows_per_cpu_second([requests], Faults()),
    }
    print(json.dumps({"goal_rows_per_cpu_second": GOAL_ROWS, **found}, indent=2))


if __name__ == "__main__":
    main()
