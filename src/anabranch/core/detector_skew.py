"""Judge whether rows are too many, too few or lie too unevenly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from anabranch.core.detectors import Finding, Judged, Observed, PartitionSkew, Skew

#: Ends of a run that say its rows are all there.
_WHOLE = ("done", "stopped")


@dataclass(frozen=True, slots=True)
class Volume:
    """The rows of one run, epoch or stretch of time that is over."""

    what: str
    at: float  # when it was over
    began: float
    rows: int


def skew(detector: Skew, seen: Observed, now: float, note: Mapping[str, Any]) -> Judged:
    """Compare what came since the look before with the last good one, which the note keeps.

    One that differs too much never becomes the last good one: 100, 33, 100 is one finding and not two.
    """
    good: float | None = note.get("good")
    to, bad = float(note.get("to", 0.0)), note.get("bad")
    found: Finding | None = None
    for volume in _volumes(detector, seen, now):
        if volume.at <= to:
            continue
        to = volume.at
        if detector.since is not None and volume.began < detector.since:
            good, bad = None, None
            continue
        tolerance, special = _tolerance(detector, volume)
        if tolerance is None:
            bad = None
            continue
        differs = good is not None and _differs(volume.rows, good, tolerance, detector.at_least)
        bad = None
        if differs and good is not None:
            found = _finding(volume, good, tolerance, seen)
            bad = {"message": found.message, "value": found.value, "limit": found.limit, "facts": dict(found.facts)}
        elif volume.rows and not special:
            good = float(volume.rows)
    if found is None and bad:  # nothing came since: it is as it was
        found = Finding(bad["message"], bad["value"], bad["limit"], bad["facts"])
    if not to:
        return Judged(unknown=f"no {_noun(detector)} of {', '.join(seen.outputs)} is over yet")
    return Judged(found, {"good": good, "to": to, "bad": bad})


def _noun(detector: Skew) -> str:
    return detector.over.removesuffix("s") if isinstance(detector.over, str) else "stretch of time"


def _volumes(detector: Skew, seen: Observed, now: float) -> list[Volume]:
    """What is over, in that order. A run or an epoch that had nothing to do with the outputs is not among them."""
    mine = set(seen.outputs)
    if detector.over == "runs":
        whole = [r for r in seen.runs if r.outcome in _WHOLE and r.ended is not None and mine & r.rows.keys()]
        found = [Volume("the run", r.ended or now, r.started, sum(r.rows.get(n, 0) for n in mine)) for r in whole]
        return sorted(found, key=lambda volume: volume.at)
    epochs = [e for e in seen.epochs if e.published is not None and mine & e.rows.keys()]
    each = [
        Volume(f"epoch {e.epoch}", e.published or now, e.began, sum(e.rows.get(n, 0) for n in mine)) for e in epochs
    ]
    if isinstance(detector.over, str):
        return sorted(each, key=lambda volume: volume.at)
    length, sums = detector.over, dict[int, int]()
    for volume in each:
        number = int(volume.at // length)
        sums[number] = sums.get(number, 0) + volume.rows
    if not sums:
        return []
    # A stretch without an epoch is one without rows. The first one seen may have begun before what is seen.
    over = range(min(sums) + 1, int(now // length))
    return [Volume("the time", (n + 1) * length, n * length, sums.get(n, 0)) for n in over]


def _tolerance(detector: Skew, volume: Volume) -> tuple[float | None, bool]:
    """What may differ then, and whether that is so for a while only."""
    for period in detector.periods:
        if period.begin <= volume.at < period.end:
            return period.tolerance, True
    return detector.tolerance, False


def _differs(rows: int, good: float, tolerance: float, at_least: int) -> bool:
    if max(rows, good) < at_least:
        return False
    return not good * (1 - tolerance) <= rows <= good * (1 + tolerance)


def _finding(volume: Volume, good: float, tolerance: float, seen: Observed) -> Finding:
    change = volume.rows / good - 1
    text = (
        f"{volume.what} wrote {volume.rows:,} rows to {', '.join(seen.outputs)}, {change:+.0%} from the {good:,.0f} of "
        f"the last good one; {tolerance:.0%} are allowed"
    )
    return Finding(text, abs(change), tolerance, {"rows": volume.rows, "last_good": int(good)})


def partition_skew(detector: PartitionSkew, seen: Observed, now: float) -> Judged:
    """Standard deviation by mean, over the partitions that rows of the last while went to or came from."""
    recent = [e for e in seen.epochs if e.published is not None and e.published > now - detector.within]
    if detector.of == "source":
        rows = _read_from(seen, now - detector.within)
    else:
        rows = {}
        for epoch in recent:
            for name in seen.outputs:
                for part, count in epoch.partitions.get(name, {}).items():
                    rows[part] = rows.get(part, 0) + count
    total = sum(rows.values())
    if len(rows) < 2:
        what = "the source" if detector.of == "source" else ", ".join(seen.outputs)
        return Judged(unknown=f"rows of several partitions of {what} have not been seen for a while")
    if total < max(1, detector.at_least):
        return Judged()
    ratio = pstdev(rows.values()) / fmean(rows.values())
    if ratio <= detector.ratio:
        return Judged()
    part, most = max(rows.items(), key=lambda pair: pair[1])
    text = (
        f"{part} has {most:,} of {total:,} rows of {len(rows)} partitions: they differ by {ratio:.2f} of their mean, "
        f"{detector.ratio:.2f} are allowed"
    )
    worst = dict(sorted(rows.items(), key=lambda pair: (-pair[1], pair[0]))[:20])
    return Judged(Finding(text, ratio, detector.ratio, {"partitions": worst}))


def _read_from(seen: Observed, since: float) -> dict[str, int]:
    """Rows read of each partition of the sources: how far its offset moved. One that is new was read from its start."""
    rows: dict[str, int] = {}
    before: Mapping[str, int] | None = None
    generation = None
    for epoch in seen.epochs:
        if epoch.generation != generation:
            before, generation = None, epoch.generation
        if before is not None and epoch.published is not None and epoch.published > since:
            for part, offset in epoch.offsets.items():
                rows[part] = rows.get(part, 0) + max(0, offset - before.get(part, 0))
        before = epoch.offsets or before
    return rows
