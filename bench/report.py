"""The results as a table, and the goals they are held against. All goals but a few are ratios within one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import native_cases
import ways
import zones
from measure import Record

Key = tuple[str, str]  # case, way


@dataclass(frozen=True)
class Goal:
    """`field` of one record, divided by that of another if there is one, is to be at most `limit`."""

    what: str
    key: Key
    against: Key | None
    limit: float
    field: str = "cpu_s"


def _ours(case: str) -> Key:
    return case, ways.OURS


SMALL = "epochs of 1,000 rows"
WIDE = "native: wide events"  # so many columns that planning them may take longer than reading them

GOALS = [
    Goal("3 outputs, CPU, of foreachBatch + persist, Parquet", _ours("3 outputs"), ("3 outputs", ways.PARQUET), 0.85),
    Goal("3 outputs, CPU, of foreachBatch + persist, Delta txn", _ours("3 outputs"), ("3 outputs", ways.DELTA), 0.5),
    Goal("3 outputs, CPU, of one writeStream per table", _ours("3 outputs"), ("3 outputs", ways.STREAMS), 0.45),
    Goal(
        "10 outputs, CPU, of foreachBatch + persist, Delta txn", _ours("10 outputs"), ("10 outputs", ways.DELTA), 0.35
    ),
    Goal("10 outputs, CPU, of one writeStream per table", _ours("10 outputs"), ("10 outputs", ways.STREAMS), 0.3),
    Goal("10 full copies, CPU, of 1", _ours("10 copies"), _ours("1 copy"), 2.0),
    Goal("planning 30 outputs, seconds", _ours("planning 30 outputs"), None, 1.5, "wall_s"),
    Goal("1,000-row epoch, wall, of foreachBatch with txn ids", _ours(SMALL), (SMALL, ways.DELTA), 0.15, "wall_s"),
    Goal("1,000-row epoch, wall, of Spark's empty one", _ours(SMALL), (SMALL, ways.EMPTY), 3.0, "wall_s"),
    Goal(
        "epoch 2,000, wall, of epoch 20",
        _ours("2,000 epochs: the last 20"),
        _ours("2,000 epochs: around epoch 20"),
        1.5,
        "wall_s",
    ),
    Goal("5 M events, largest Python worker, MB", _ours("5 M events in one epoch"), None, 700, "worker_mb"),
    *(Goal(f"{case}, CPU, of one stream per zone", _ours(case), (case, zones.USUAL), 0.5) for case in zones.CASES),
    Goal(
        f"{native_cases.THREE}, CPU, of foreachBatch + persist, Parquet",
        _ours(native_cases.THREE),
        (native_cases.THREE, ways.PARQUET),
        0.33,
    ),
    Goal(
        f"{native_cases.THREE}, CPU, of pyarrow alone",
        _ours(native_cases.THREE),
        (native_cases.THREE, ways.PYARROW),
        1.5,
    ),
    Goal(
        "native: 10 outputs, CPU, of foreachBatch + persist, Parquet",
        _ours("native: 10 outputs"),
        ("native: 10 outputs", ways.PARQUET),
        0.35,
    ),
    *(
        Goal(
            f"{native_cases.THREE}, 5 % {how}, CPU, of clean",
            _ours(f"{native_cases.THREE}, 5 % {how}"),
            _ours(native_cases.THREE),
            1.3,
        )
        for how in ("truncated", "mistyped")
    ),
    Goal(
        f"{native_cases.THREE}, CPU, of records through the JVM",
        _ours(native_cases.THREE),
        (native_cases.THREE, native_cases.THROUGH_JVM),
        0.75,
    ),
    *(
        Goal(f"{case}, CPU, of all by Spark", _ours(case), (case, native_cases.GENERAL), 1.05)
        for case in native_cases.COMPARED
    ),
    Goal("native: wide events, wall, of all by Spark", _ours(WIDE), (WIDE, native_cases.GENERAL), 1.05, "wall_s"),
]


def checked(records: Sequence[Record]) -> Iterator[tuple[str, float, float]]:
    """Each goal whose records are there: what, found, limit."""
    known = {(r.case, r.way): r for r in records}
    for goal in GOALS:
        if goal.key in known and (goal.against is None or goal.against in known):
            found = float(getattr(known[goal.key], goal.field))
            if goal.against is not None:
                found /= float(getattr(known[goal.against], goal.field)) or float("nan")
            yield goal.what, found, goal.limit
    one, ten = known.get(_ours("1 copy")), known.get(_ours("10 copies"))
    encode = known.get(("1 copy", ways.ENCODE))
    if one and ten and encode:
        more = (ten.cpu_s - one.cpu_s) / 9
        yield "one more full copy, CPU, of pyarrow's encoding of it", more / encode.cpu_s, 1.5


def table(records: Sequence[Record]) -> str:
    """All records, and how ours compares in CPU within its case."""
    lines = [f"{'case':32}{'way':58}{'CPU-s':>9}{'wall s':>9}{'peak MB':>9}{'worker':>8}{'ours is':>9}"]
    known = {(r.case, r.way): r for r in records}
    case = None
    for r in records:
        mine = known.get(_ours(r.case))
        ratio = f"{mine.cpu_s / r.cpu_s:.2f} x" if mine and mine is not r and r.cpu_s else ""
        name, case = ("" if r.case == case else r.case), r.case
        lines.append(f"{name:32}{r.way:58}{r.cpu_s:9.2f}{r.wall_s:9.2f}{r.peak_mb:9.0f}{r.worker_mb:8.0f}{ratio:>9}")
    return "\n".join(lines)


def goals(records: Sequence[Record]) -> str:
    """Every goal with what was found."""
    return "\n".join(
        f"{'met   ' if found <= limit else 'MISSED'}  {what:58} {found:8.2f}  (at most {limit:g})"
        for what, found, limit in checked(records)
    )
