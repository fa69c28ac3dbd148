"""Measure, print a table, write bench/results: `latest.json` and `latest.png`.

All ways run in turn in one session, warm. The machine may be doing other things: CPU-seconds, and ratios of them within
one run, are what to look at; wall times are for the same reason only compared with each other.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import startup
from cases import CASES, QUICK, Bench, all_cases, chosen
from measure import Record, adopt_orphans
from plot import plot
from report import goals, table
from shape import DATA

from anabranch.engine.session import LOCAL_CHECKPOINT, open_session

RESULTS = Path(__file__).with_name("results")

SETTINGS = {
    **LOCAL_CHECKPOINT,
    "spark.driver.memory": "6g",
    "spark.sql.streaming.numRecentProgressUpdates": "2100",
}


def main() -> None:
    """Run the cases and write down what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer events, ways and rounds: within three minutes")
    parser.add_argument(
        "--only", metavar="A,B", help=f"only these cases, beside what was found before: {', '.join(CASES)}"
    )
    said = parser.parse_args()
    quick, names = said.quick, chosen(said.only) if said.only else list(QUICK if said.quick else CASES)
    started = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - started:6.0f} s] {line}", file=sys.stderr, flush=True)

    adopt_orphans()
    records = _found_before() if said.only else []
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=DATA) as name:  # beside the events, which are linked into it
        spark = open_session(app_name="bench", log_folder=Path(name) / "log", settings=SETTINGS)
        try:
            for record in all_cases(Bench(spark, Path(name), quick, say), names):
                records = [r for r in records if (r.case, r.way) != (record.case, record.way)] + [record]
                _write([r.as_json() for r in records])  # what is there so far, should the rest not come
        finally:
            spark.stop()
    plot(records, RESULTS / "latest.png")
    seconds, busy = time.monotonic() - started, os.getloadavg()[2]
    print(table(records))
    print("\nCPU-s and wall are the least of warm, interleaved rounds; for epochs the median of the micro-batches.")
    print("Memory is resident: of the whole tree, and of the largest single Python worker.")
    print(f"{os.cpu_count()} cores, load {busy:.1f} over the last 15 minutes, {seconds:.0f} s in all.\n")
    print(goals(records))
    print("\ncold start of the light verbs:")
    startup.main()


def _found_before() -> list[Record]:
    found = RESULTS / "latest.json"
    return [Record(**r) for r in json.loads(found.read_text())] if found.exists() else []


def _write(records: list[dict[str, object]]) -> None:
    RESULTS.mkdir(exist_ok=True)
    aside = RESULTS / ".latest.json"
    aside.write_text(json.dumps(records, indent=1) + "\n")
    aside.replace(RESULTS / "latest.json")


if __name__ == "__main__":
    main()
