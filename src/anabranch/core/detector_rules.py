"""Judge detectors: pure functions of what is declared, what is seen, the time, and the note of the look before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.core.detector_skew import partition_skew, skew
from anabranch.core.detectors import (
    Detector,
    Finding,
    Interruption,
    Judged,
    Lag,
    LagReading,
    Observed,
    PartitionSkew,
    SeenEpoch,
    Skew,
    Sla,
)

#: A run that took long has missed its promise however it was ended; one that broke has not kept nor missed it.
_COUNTED = ("done", "stopped", "running")


def evaluate(detector: Detector, observed: Observed, now: float, note: Mapping[str, Any] | None = None) -> Judged:
    """Whether a detector fires at `now`.

    >>> from anabranch.core.where import Where
    >>> seen = Observed("c", ("a",), 10.0, [SeenEpoch(1, 0, 0.0, 1.0, {"a": 5}, {"a": 1.0})])
    >>> evaluate(Interruption("i", "a", Where("f"), lulls=False), seen, now=700.0).finding.message
    'no rows were written to a for 11 minutes'
    """
    before = note or {}
    match detector:
        case Interruption():
            return _interruption(detector, observed, now, before)
        case Skew():
            return skew(detector, observed, now, before)
        case PartitionSkew():
            return partition_skew(detector, observed, now)
        case Lag():
            return _lag(detector, observed, now, before)
        case Sla():
            return _sla(detector, observed, now, before)


def percentile(values: Iterable[float], percent: float) -> float:
    """The value below which so many percent of all lie, between two of them in proportion.

    >>> percentile([2, 3, 3, 5, 5, 10, 30], 90), percentile([7], 50), percentile([1, 2], 100)
    (18.0, 7.0, 2.0)
    """
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * round(place - low, 9))


def shown(seconds: float) -> str:
    """A duration for people.

    >>> shown(0.25), shown(2.5), shown(60), shown(5400), shown(200000)
    ('250 ms', '2.5 seconds', '60 seconds', '90 minutes', '55 hours')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} seconds"
    for unit, length in (("seconds", 1.0), ("minutes", 60.0), ("hours", 3600.0)):
        if seconds < 100 * length or unit == "hours":
            return f"{int(seconds / length):,} {unit}"
    return f"{seconds} seconds"


# Interruption


def _interruption(detector: Interruption, seen: Observed, now: float, note: Mapping[str, Any]) -> Judged:
    """Measured at the outputs: only an epoch that gave them rows counts, not one of no rows and not a compaction.

    The note keeps since when there is a reason: the epoch it began with may be too old to be seen.
    """
    limit = detector.within if detector.within is not None else seen.patience
    mine = [e for e in seen.epochs if any(name in e.rows for name in seen.outputs)]
    moments = [(_written_at(e, seen.outputs), (e.generation, e.epoch)) for e in mine if _rows(e, seen.outputs)]
    last, key = max(moments, default=(note.get("last"), None))
    begin = min([*(e.began for e in mine), *(r.started for r in seen.runs)], default=None)
    if last is None and begin is None:
        return Judged(unknown="nothing has been run yet")
    after = [e for e in seen.epochs if key is None or (e.generation, e.epoch) > key]
    if detector.lulls:
        reasons = _reasons(seen, after, last)
    else:
        reasons = {"nothing_written": last if last is not None else begin or now}
    earlier = note.get("since", {}) if note.get("last") == last else {}
    since = {code: min(at, earlier.get(code, at)) if code in _LASTING else at for code, at in reasons.items()}
    fresh = {"last": last, "since": since}
    fired = [(now - at, code) for code, at in since.items() if now - at > limit]
    if not fired:
        return Judged(note=fresh)
    gap, code = max(fired)
    rows = sum(_read(e) for e in after)
    words = {"what": ", ".join(seen.outputs), "channel": seen.channel, "rows": f"{rows:,}", "gap": shown(gap)}
    return Judged(
        Finding(_WORDS[code].format(**words), gap, limit, {"reason": code, "last_written": last, "read_since": rows}),
        fresh,
    )


#: Why rows should have been written.
_WORDS = {
    "nothing_written": "no rows were written to {what} for {gap}",
    "read_not_written": "{rows} rows were read and none written to {what} for {gap}",
    "epoch_open": "no rows were written to {what}: an epoch of {channel} is not finished for {gap}",
    "died": "no rows were written to {what} for {gap}: the process of the run is gone",
    "failed": "no rows were written to {what} for {gap}: the last run failed",
    "rows_wait": "rows wait in the source of {channel} and none were written to {what} for {gap}",
}
#: Reasons that go on for as long as they are found at every look.
_LASTING = ("read_not_written", "rows_wait")


def _reasons(seen: Observed, after: Sequence[SeenEpoch], last: float | None) -> dict[str, float]:
    """What is no lull, and since when. A reason from before the last rows came begins with them."""
    found: dict[str, float] = {}
    if read := [e.published for e in after if e.published is not None and _read(e)]:
        found["read_not_written"] = read[0]
    if begun := [e.began for e in after if e.published is None] or ([seen.begun.since] if seen.begun else []):
        found["epoch_open"] = begun[0]
    if seen.runs and (run := seen.runs[-1]).outcome in ("died", "failed"):
        found[run.outcome] = run.ended or run.started
    at_rest = bool(seen.runs) and seen.runs[-1].outcome in ("done", "stopped")
    if not at_rest and (waiting := _waiting_since(seen.lags)) is not None:
        found["rows_wait"] = waiting  # after a run that ended, they wait for the next one
    return {code: max(last or 0.0, since) for code, since in found.items()}


def _read(epoch: SeenEpoch) -> int:
    """Rows that are known to have been read: what others of the channel were given was read too."""
    return max(epoch.read or 0, *epoch.rows.values(), 0) if epoch.rows else epoch.read or 0


def _rows(epoch: SeenEpoch, outputs: Iterable[str]) -> int:
    return sum(epoch.rows.get(name, 0) for name in outputs if name in epoch.written)


def _written_at(epoch: SeenEpoch, outputs: Iterable[str]) -> float:
    return max(epoch.written[name] for name in outputs if epoch.rows.get(name) and name in epoch.written)


def _waiting_since(lags: Sequence[LagReading]) -> float | None:
    """Since when anything was waiting each time somebody looked."""
    found = [since for since in _waiting(lags).values() if since is not None]
    return min(found, default=None)


# Lag


def _waiting(lags: Sequence[LagReading], earlier: Mapping[str, float] | None = None) -> dict[str, float | None]:
    """Since when each partition has been behind without a break; None for one that is not.

    Which partitions there are says the newest reading of each unit: new ones are in it, those that are gone are not.
    What was known `earlier` holds for a partition that no reading since then has found up to date.
    """
    newest = {reading.unit: reading for reading in lags}
    found: dict[str, float | None] = {}
    for unit, last in newest.items():
        for part, behind in last.behind.items():
            name, since, broken = f"{unit} {part}", last.at if behind else None, not behind
            for reading in reversed([r for r in lags if r.unit == unit]):
                broken = broken or reading.behind.get(part, 0) == 0
                if broken:
                    break
                since = reading.at
            if since is not None and not broken and earlier:
                since = min(since, earlier.get(name, since))
            found[name] = since
    return found


def _lag(detector: Lag, seen: Observed, now: float, note: Mapping[str, Any]) -> Judged:
    """The note keeps since when each partition is behind: the reading that it began with may be too old to be seen."""
    lags = [r for r in seen.lags if detector.unit in ("time", r.unit)]
    if not lags:
        units = ", ".join(sorted({r.unit for r in seen.lags}))
        told = f"it tells {units}" if units else "its sources tell nothing"
        return Judged(unknown=f"the lag of {seen.channel} is not known in {detector.unit}: {told}")
    newest: dict[str, LagReading] = {r.unit: r for r in lags}
    behind = {part: count for reading in newest.values() for part, count in reading.behind.items()}
    limit = detector.most if detector.most is not None else seen.patience
    earlier = note.get("since", {})
    since = {part: at for part, at in _waiting(lags, earlier).items() if at is not None}
    fresh = {"since": since}
    if detector.unit == "time":
        values = {part: now - since[part] if part in since else 0.0 for part in _waiting(lags)}
    else:
        values = {part: float(count) for part, count in behind.items()}
    if not any(values.values()) and not _is_current(seen, max(r.at for r in newest.values()), now):
        return Judged(unknown=f"the lag of {seen.channel} is not known since nothing runs")
    value = _together(list(values.values()), detector.percentile)
    if value <= limit:
        return Judged(note=fresh)
    how = "at most" if detector.percentile is None else f"at the {detector.percentile:g}th percentile"
    if detector.unit == "time":
        text = f"{seen.channel} has been behind its source for {shown(value)} {how}, {shown(limit)} are allowed"
    else:
        text = f"{seen.channel} is {value:,.0f} {detector.unit} behind its source {how}, {limit:,.0f} are allowed"
    # A high maximum can be one busy producer and no slow consumer: who looks needs to see each partition.
    worst = sorted(values.items(), key=lambda pair: (-pair[1], pair[0]))[:20]
    facts = {"partitions": dict(worst), "behind": sum(behind.values()), "of_partitions": len(values)}
    return Judged(Finding(text, value, limit, facts), fresh)


def _is_current(seen: Observed, told: float, now: float) -> bool:
    """Whether nothing new can have come unseen: a run that goes on reads what comes, or a source was asked."""
    running = bool(seen.runs) and seen.runs[-1].outcome == "running"
    return running or now - told <= max(60.0, 3 * seen.trigger)


def _together(values: Sequence[float], percent: float | None) -> float:
    if not values:
        return 0.0
    return max(values) if percent is None else percentile(values, percent)


# SLA


def _sla(detector: Sla, seen: Observed, now: float, note: Mapping[str, Any]) -> Judged:
    finished, going = _measured(detector, seen, now)
    if not finished and not going:
        if detector.measure == "event_time" and any(_read(e) for e in seen.epochs if e.published):
            text = f"the times of the rows of {seen.channel} are not known: Spark measures them for a watermark"
            return Judged(unknown=text)
        return Judged(note=note)
    to = float(note.get("to", finished[-2][0] if len(finished) > 1 else 0.0))
    fresh = {"to": max([to, *(at for at, _, _ in finished)])}
    values = [value for _, value, _ in finished]
    missed = [(value, what) for at, value, what in finished if at > to and value > detector.promise]
    if detector.percentile is not None:
        value = percentile(values, detector.percentile) if values else 0.0
        what = f"{detector.percentile:g} percent of {seen.channel}"
        missed = [(value, what)] if value > detector.promise else []
    elif values and values[-1] > detector.promise:
        missed = [*missed, (values[-1], finished[-1][2])]
    late = [(value, what) for value, what in going if value > detector.promise]
    if not missed and not late:
        return Judged(note=fresh)
    streak = 0
    while streak < len(values) and values[-1 - streak] > detector.promise:
        streak += 1
    value, what = late[-1] if late else missed[-1]
    verb = {"processing": "took", "event_time": "had rows that were"}[detector.measure]
    told = f"{shown(value)} old" if detector.measure == "event_time" else shown(value)
    still = " so far" if late else ""
    text = f"{what} {verb} {told}{still}, {shown(detector.promise)} are promised"
    facts = {"measure": detector.measure, "running": bool(late), "misses": max(streak, len(missed) > 0) + len(late)}
    return Judged(Finding(text, value, detector.promise, facts), fresh)


Measure = tuple[float, float, str]  # when it was over, how long it took, what it was


def _measured(detector: Sla, seen: Observed, now: float) -> tuple[list[Measure], list[tuple[float, str]]]:
    """What is over, in the order it ended, and what still goes on with its time so far."""
    if detector.per == "run":
        runs = [r for r in seen.runs if r.outcome in _COUNTED]
        over = [(r.ended, r.ended - r.started, "the run") for r in runs if r.ended is not None]
        return sorted(over), [(now - r.started, "the run") for r in runs if r.ended is None]
    done = [e for e in seen.epochs if e.published is not None]
    name = f"of {seen.channel}"
    if detector.measure == "event_time":
        timed = [(e.published or now, e.event_times.get(detector.rows), e.epoch) for e in done]
        return sorted((at, at - made, f"epoch {number} {name}") for at, made, number in timed if made is not None), []
    over = sorted((e.published or now, (e.published or now) - e.began, f"epoch {e.epoch} {name}") for e in done)
    going = [(now - e.began, f"epoch {e.epoch} {name}") for e in seen.epochs if e.published is None]
    if seen.begun and not going:
        going = [(now - seen.begun.since, f"epoch {seen.begun.epoch} {name}")]
    return over, going
