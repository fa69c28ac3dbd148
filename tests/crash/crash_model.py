"""What must be in the tables, by plain Python over the input files: it knows nothing of what is being tested.

Every file of events is one epoch, so the first n + 1 files are what the cut at epoch n must hold, in every table.
"""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TABLES = ("everything", "errors", "slow")
SLOW_MS = 200
FOREIGN = "foreign"  # ids of rows that somebody else wrote begin with this

Rows = Counter[str]


def land(folder: Path, number: int, events: int) -> Path:
    """Put the input file of one epoch in its place, whole. It has no events at all if asked to."""
    dice = random.Random(number)
    lines = [json.dumps(_event(f"{number:06}-{place:04}", dice)) for place in range(events)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events-{number:06}.json"
    aside = folder.parent / f"{path.name}.new"
    aside.write_text("".join(line + "\n" for line in lines))
    os.utime(aside, (1_700_000_000 + number, 1_700_000_000 + number))  # Spark takes files in this order
    aside.rename(path)
    return path


def _event(name: str, dice: random.Random) -> dict[str, Any]:
    codes = dice.sample(["E1", "E2", "E3"], dice.choice((0, 0, 1, 2)))
    return {"id": name, "ms": dice.choice((7, 150, 201, 900)), "codes": codes}


@dataclass
class Model:
    """The input so far, and what each table must hold of it."""

    landing: Path

    def __post_init__(self) -> None:
        self._upto: list[dict[str, Rows]] = []
        self._lock = threading.Lock()  # readers ask from their own threads

    def files(self) -> list[Path]:
        """The input files, in the order of epochs."""
        return sorted(self.landing.glob("events-*.json"))

    def expected(self, table: str, files: int | None = None) -> Rows:
        """The rows of a table after the first so many files, or all."""
        paths = self.files()
        count = len(paths) if files is None else files
        assert count <= len(paths), f"{count} epochs are visible, but only {len(paths)} files were ever there"
        with self._lock:
            while len(self._upto) < count:
                before = self._upto[-1] if self._upto else {name: Counter() for name in TABLES}
                own = rows_of(paths[len(self._upto)])
                self._upto.append({name: before[name] + own[name] for name in TABLES})
        return self._upto[count - 1][table] if count else Counter()


def rows_of(file: Path) -> dict[str, Rows]:
    """What one input file gives to each table."""
    rows: dict[str, Rows] = {name: Counter() for name in TABLES}
    for line in file.read_text().splitlines():
        event = json.loads(line)
        rows["everything"][event["id"]] += 1
        for code in event["codes"]:
            rows["errors"][f"{event['id']}/{code}"] += 1
        if event["ms"] > SLOW_MS:
            rows["slow"][event["id"]] += 1
    return rows


def names_of(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows read from a table, by the names the model gives them."""
    return Counter(f"{row['id']}/{row['code']}" if "code" in row else row["id"] for row in rows)


@dataclass(frozen=True)
class Difference:
    """How a table differs from the model; `foreign` rows are nobody's fault."""

    lost: Rows
    twice: Rows
    foreign: Rows

    @property
    def wrong(self) -> bool:
        """Whether a row is lost, there too often, or there at all without being in the input."""
        return bool(self.lost or self.twice)


def compare(found: Rows, expected: Rows) -> Difference:
    """The difference between what a table holds and what it must hold.

    >>> compare(Counter("aab"), Counter("abc"))
    Difference(lost=Counter({'c': 1}), twice=Counter({'a': 1}), foreign=Counter())
    """
    foreign = Counter({name: count for name, count in found.items() if name.startswith(FOREIGN)})
    ours = found - foreign
    return Difference(lost=expected - ours, twice=ours - expected, foreign=foreign)
