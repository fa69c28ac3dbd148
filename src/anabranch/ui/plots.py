"""The numbers behind the plots: one JSON document each, all series over the same times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from anabranch.core.events import EpochPublished
from anabranch.store.history import History, StepPoint
from anabranch.ui.epochs import step_place
from anabranch.ui.profiles import null_series
from anabranch.ui.render import sight_of
from anabranch.ui.sight import Look

#: Points of a plot, the newest ones.
POINTS = 300

Series = dict[str, dict[float, float]]


@dataclass
class Plot:
    """Series by name, each a value by time; `unit` is what they are counted in."""

    unit: str
    series: Series = field(default_factory=dict)

    def add(self, name: str, at: float, value: float | None) -> None:
        """One point; a value that is not known leaves a gap."""
        if value is not None:
            self.series.setdefault(name, {})[round(at, 3)] = value

    def document(self) -> dict[str, object]:
        """What uPlot takes: the times, then a list for each series, with nulls where one has no value."""
        times = sorted({at for found in self.series.values() for at in found})
        data: list[list[float | None]] = [list(times)]
        data += [[found.get(at) for at in times] for found in self.series.values()]
        return {"unit": self.unit, "names": list(self.series), "data": data}


def plot(request: Request) -> Response:
    """The plot that is asked for, of one channel or dataset, or of all."""
    look, said = Look(sight_of(request)), request.query_params
    channel, dataset = said.get("channel") or None, said.get("dataset") or None
    made = Plot("")
    with look.forgiving():
        history = look.sight.history
        match request.path_params["name"]:
            case "throughput":
                made = throughput(history, channel)
            case "steps":
                made = steps(history.steps_over_time(channel, limit=POINTS))
            case "lag":
                made = lag(history, channel)
            case "quality":
                made = quality(history, dataset)
            case "rows":
                made = rows(history, dataset or "")
            case "nulls":
                made = nulls(history, dataset or "")
            case "size":
                made = sizes(look, dataset or "")
            case _:
                return JSONResponse({"error": "there is no such plot"}, 404)
    if look.problems:
        return JSONResponse({**made.document(), "problem": look.problems[0].message})
    return JSONResponse(made.document())


def throughput(history: History, channel: str | None) -> Plot:
    """Rows a second as channels tell them; of those that do not, what each epoch wrote in its time."""
    made = Plot("rows/s")
    for point in history.progress_over_time(channel, limit=POINTS):
        made.add(point.channel, point.at, point.process_rate)
    told = set(made.series)
    for epoch in history.steps_over_time(channel, limit=POINTS):
        if epoch.channel not in told and (seconds := sum(epoch.times.values())):
            made.add(epoch.channel, epoch.at, round(epoch.rows / seconds, 1))
    return made


def steps(points: Iterable[StepPoint]) -> Plot:
    """Milliseconds of each step; of several channels, the newest one's."""
    found = list(points)
    made = Plot("ms")
    for point in found:
        if point.channel == found[-1].channel:
            for step in sorted(point.times, key=step_place):
                made.add(step, point.at, round(point.times[step] * 1000, 2))
    return made


def lag(history: History, channel: str | None) -> Plot:
    """How far sources were ahead, in their own units."""
    made = Plot("")
    units: set[str] = set()
    for point in history.progress_over_time(channel, limit=POINTS):
        for unit, behind in point.behind.items():
            units.add(unit)
            made.add(f"{point.channel}, {unit}", point.at, behind)
    made.unit = units.pop() if len(units) == 1 else ""
    return made


def quality(history: History, dataset: str | None) -> Plot:
    """Rows of a hundred that broke a rule, for each dataset that has rules."""
    made = Plot("% of rows")
    for event in history.events(kinds=[EpochPublished.kind], dataset=dataset, limit=POINTS):
        for name, (judged, breaking) in _judged(event.details["quality"]).items():
            if judged and dataset in (None, name):
                made.add(name, event.at, round(100 * breaking / judged, 3))
    return made


def _judged(found: Iterable[Mapping[str, object]]) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for one in found:
        if one["flow"]:
            rows, breaking = sums.get(str(one["dataset"]), (0, 0))
            sums[str(one["dataset"])] = (rows + int(str(one["rows"])), breaking + int(str(one["breaking"])))
    return sums


def rows(history: History, dataset: str) -> Plot:
    """Rows that each epoch wrote to a dataset, and those it kept out."""
    made = Plot("rows")
    points = history.rows_over_time(dataset, limit=POINTS)
    for point in points:
        made.add("written", point.at, point.rows)
        if any(p.judged for p in points):
            made.add("kept out", point.at, point.dropped + point.quarantined)
    return made


def nulls(history: History, dataset: str) -> Plot:
    """Values of a hundred that were null, for the columns of a dataset that have most of them."""
    made = Plot("% null")
    for name, points in null_series(history, dataset).items():
        for at, share in points:
            made.add(name, at, round(100 * share, 3))
    return made


def sizes(look: Look, dataset: str) -> Plot:
    """Kilobytes that each epoch staged for a dataset, from the receipts."""
    made = Plot("KiB")
    with look.forgiving(), look.ledger() as (ledger, pipeline):
        channels = [c.channel for c in ledger.channels(pipeline) if any(o.name == dataset for o in c.outputs)]
        for channel in channels:
            for epoch in reversed(ledger.epochs(pipeline, channel=channel, limit=POINTS)):
                if receipt := epoch.receipts.get(dataset):
                    made.add("staged", epoch.decided_at, round(sum(f.size for f in receipt.files) / 1024, 2))
    return made
