"""How long the light verbs take from nothing, each in a process of its own: `--help`, and `check` of a new project."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RUNS = 7
GOAL_SECONDS = 0.7


def measure(arguments: list[str], folder: Path) -> dict[str, float]:
    """The median wall time and processor time of some runs; the first run, which fills caches, is left out."""
    walls, processor = [], []
    for _ in range(RUNS + 1):
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "anabranch.cli.main", *arguments]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        walls.append(time.perf_counter() - started)
        processor.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"wall": round(statistics.median(walls[1:]), 3), "cpu": round(statistics.median(processor[1:]), 3)}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "anabranch.cli.main", "init", "shop", "-q"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        found = {
            "--help": measure(["--help"], folder),
            "check": measure(["check", "-p", "shop"], folder),
        }
    print(json.dumps({"goal_seconds": GOAL_SECONDS, **found}, indent=2))


if __name__ == "__main__":
    main()
