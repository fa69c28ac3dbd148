"""What detectors look at: the ledger's epochs, the history's runs and what they told, Spark's checkpoint. No JVM.

What nobody tells is left out; detectors say then that they do not know.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.core.declarations import Pipeline
from anabranch.core.detectors import Begun, Detector, Lag, LagReading, Observed, SeenEpoch, SeenRun, Skew
from anabranch.core.epoch import State
from anabranch.core.events import ChannelProgress
from anabranch.core.graph import build
from anabranch.core.plan import make_plan
from anabranch.errors import AnabranchError
from anabranch.load.project import Project
from anabranch.read import open_ledger
from anabranch.store.history import History, StoredEvent, StoredRun
from anabranch.store.ledger import ChannelRecord, EpochRecord, Ledger
from anabranch.watch.detect_sources import asked_lag, partition_offsets, version_lag

#: The newest of each that are looked at. What is older, detectors remember in their notes.
EPOCHS, RUNS, PROGRESS = 200, 50, 1000

#: Ends of a run after which an epoch that was only begun is nobody's fault.
_AT_REST = ("done", "stopped")


@dataclass(frozen=True, slots=True)
class Place:
    """What a detector is on: a channel, and those of its outputs that count."""

    channel: str
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """What was seen in one look: by detector what it is to judge, or why it cannot."""

    observed: Mapping[str, Observed] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def look(project: Project, pipeline: Pipeline, now: float) -> Sight:
    """See everything that the detectors of a pipeline ask for, once."""
    detectors = pipeline.detectors
    history = History.of(project.storage)
    try:
        with open_ledger(project) as (ledger, known):
            channels = [c for c in ledger.channels(known.pipeline_id) if c.outputs]
            places = {d.name: place for d in detectors if (place := _place(d.on, pipeline, channels))}
            wanted = {place.channel for place in places.values()}
            records = {c: _records(ledger, known.pipeline_id, c) for c in wanted}
    except AnabranchError as error:
        if error.code != "NOTHING_RUN_YET":
            raise
        return Sight(unknown={d.name: "nothing has been run yet" for d in detectors})
    runs = history.runs(limit=RUNS)[::-1]
    rows = history.rows_by_run([r.run for r in runs]) if _compares_runs(detectors) else {}
    seen_runs = [_run(run, rows.get(run.run, {})) for run in runs]
    by_channel = {c.channel: c for c in channels}
    found: dict[str, Observed] = {}
    unknown: dict[str, str] = {}
    told = {c: history.events(kinds=[ChannelProgress.kind], channel=c, limit=PROGRESS) for c in wanted}
    for detector in detectors:
        place = places.get(detector.name)
        if place is None:
            unknown[detector.name] = f'"{detector.on}" has not been run yet'
            continue
        own = records[place.channel]
        try:
            asked = _asked(detector, own, project, channels, now)
        except AnabranchError as error:
            unknown[detector.name] = error.message  # a broker that is down must not end the look of all others
            continue
        found[detector.name] = Observed(
            place.channel,
            place.outputs,
            _trigger(project, pipeline, by_channel[place.channel]),
            _epochs(own, told[place.channel]),
            seen_runs,
            [*_lags(told[place.channel]), *asked],
            _begun(project, by_channel[place.channel], own, seen_runs),
        )
    return Sight(found, unknown)


def _place(on: str, pipeline: Pipeline, channels: Sequence[ChannelRecord]) -> Place | None:
    """The channel that writes an output; for a flow that of its target, for a view all that its channel writes."""
    outputs = {o.name: c.channel for c in channels for o in c.outputs}
    if on not in outputs and on not in {d.name for d in pipeline.datasets}:
        on = next((f.target for f in pipeline.flows if f.name == on), on)
    if on in outputs:
        return Place(outputs[on], (on,))
    plan = make_plan(build(pipeline), outputs)
    name = next((p.channel.name for p in plan.channels if on in {d.name for d in p.channel.datasets}), None)
    mine = tuple(output for output, channel in outputs.items() if channel == name)
    return Place(name, mine) if name and mine else None


def _records(ledger: Ledger, pipeline_id: str, channel: str) -> list[EpochRecord]:
    """The newest epochs, oldest first."""
    found = ledger.epochs(pipeline_id, channel=channel, limit=EPOCHS)
    kept = [e for e in found if e.state is not State.DISCARDED]
    return sorted(kept, key=lambda e: (e.key.generation, e.key.epoch))


def _compares_runs(detectors: Iterable[Detector]) -> bool:
    return any(isinstance(d, Skew) and d.over == "runs" for d in detectors)


def _trigger(project: Project, pipeline: Pipeline, channel: ChannelRecord) -> float:
    mine = {o.name for o in channel.outputs}
    said = [d.trigger for d in pipeline.datasets if d.name in mine and d.trigger is not None]
    return min(said, default=project.trigger_seconds)


def _run(run: StoredRun, rows: Mapping[str, int]) -> SeenRun:
    ended = run.seen if run.outcome == "died" else run.ended
    return SeenRun(run.run, run.started, ended, run.outcome, rows)


def _epochs(records: Sequence[EpochRecord], told: Sequence[StoredEvent]) -> list[SeenEpoch]:
    """Epochs with what runs told of them; what they told of several is taken to be of the first of these.

    Of the others is known what they wrote at least: it is not counted twice.
    """
    wrote = {r.key.epoch: max((receipt.rows for receipt in r.receipts.values()), default=0) for r in records}
    read: dict[int, tuple[float, int]] = {}
    times: dict[int, tuple[float, Mapping[str, float]]] = {}
    for event in told:
        first = event.details.get("first")
        last = event.epoch or 0
        number = last if first is None else int(first)
        others = sum(wrote.get(each, 0) for each in range(number + 1, last + 1))
        read[number] = (event.at, max(0, int(event.details["rows"]) - others))
        times[last] = (event.at, event.details.get("event_times") or {})
    return [_epoch(record, read, times) for record in records]


def _epoch(
    record: EpochRecord,
    read: Mapping[int, tuple[float, int]],
    times: Mapping[int, tuple[float, Mapping[str, float]]],
) -> SeenEpoch:
    number = record.key.epoch
    # Numbers begin anew with a generation: what was told before the epoch was decided is of another one.
    told = [rows for at, rows in [read.get(number, (0.0, 0))] if at >= record.decided_at]
    judged = [q.rows for q in record.quality if q.flow]
    event_times = [found for at, found in [times.get(number, (0.0, {}))] if at >= record.decided_at]
    return SeenEpoch(
        record.key.generation,
        number,
        record.decided_at - record.times.get("stage", 0.0),
        record.published_at,
        {name: receipt.rows for name, receipt in record.receipts.items()},
        record.applied_at,
        max([*told, *judged], default=None),
        {name: _partitions(record, name) for name in record.receipts},
        partition_offsets(record.offsets),
        next(iter(event_times), {}),
    )


def _partitions(record: EpochRecord, output: str) -> dict[str, int]:
    """Rows of each partition of a table; none for one that is not partitioned."""
    rows: dict[str, int] = {}
    for file in record.receipts[output].files:
        if file.partition:
            name = "/".join(f"{column}={value}" for column, value in file.partition.items())
            rows[name] = rows.get(name, 0) + file.rows
    return rows


def _lags(told: Iterable[StoredEvent]) -> list[LagReading]:
    found: list[LagReading] = []
    for event in told:
        units: dict[str, dict[str, int]] = {}
        for source in event.details["sources"]:
            if source["behind"] is not None:
                parts = source.get("partitions") or {source["name"]: source["behind"]}
                units.setdefault(source["unit"], {}).update(parts)
        found += [LagReading(event.at, unit, behind) for unit, behind in units.items()]
    return found


def _asked(
    detector: Detector, records: Sequence[EpochRecord], project: Project, channels: Sequence[ChannelRecord], now: float
) -> list[LagReading]:
    """What sources answer now, beyond what runs told when they last read."""
    if not isinstance(detector, Lag) or not records:
        return []
    newest, found = records[-1], list[LagReading]()
    if detector.ask and (read := partition_offsets(newest.offsets)):
        found.append(LagReading(now, "offsets", asked_lag(detector.ask, read, detector.name)))
    outputs = [o for c in channels for o in c.outputs if o.format == "delta" and "://" not in o.location]
    root = Path(project.storage)
    if behind := version_lag(newest.offsets, {o.name: str(root / o.location) for o in outputs}):
        found.append(LagReading(now, "versions", behind))
    return found


def _begun(
    project: Project, channel: ChannelRecord, records: Sequence[EpochRecord], runs: Sequence[SeenRun]
) -> Begun | None:
    """The epoch whose rows Spark has chosen and that the ledger does not know: it is being worked on, or was."""
    if not runs or runs[-1].outcome in _AT_REST:
        return None  # a run that was stopped may leave a choice behind that the next one takes up
    folder = (
        Path(project.storage) / "_anabranch" / "checkpoints" / channel.channel / str(channel.generation) / "offsets"
    )
    numbers = [int(p.name) for p in folder.iterdir() if p.name.isdigit()] if folder.is_dir() else []
    decided = max((r.key.epoch for r in records if r.key.generation == channel.generation), default=-1)
    if not numbers or max(numbers) <= decided:
        return None
    running = runs[-1].started if runs[-1].outcome == "running" else 0.0
    try:
        path = folder / str(max(numbers))
        lines = path.read_text(encoding="utf-8").splitlines()
        chosen = float(json.loads(lines[1])["batchTimestampMs"]) / 1000
    except (OSError, ValueError, KeyError, IndexError):
        return None  # it is written just now, or gone meanwhile: the next look sees it
    # One that a run has taken over takes from then on.
    return Begun(max(numbers), max(chosen, running))
