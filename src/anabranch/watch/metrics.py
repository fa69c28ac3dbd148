"""Metrics for Prometheus, computed from what is stored: they are there while the engine runs and when it does not.

Counters come from the figures in the history and the epochs in the ledger that are not counted there yet, so that they
never go back: not when events and epochs are forgotten, and not when whoever serves them is started again. A look reads
one small table, and for each channel its newest epoch and the few that are not counted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from anabranch.core.epoch import State
from anabranch.core.hidden import hide
from anabranch.errors import AnabranchError, SetupError
from anabranch.load.project import Project
from anabranch.store import figures
from anabranch.store.figures import BOUNDS, MICRO, Key
from anabranch.store.history import History
from anabranch.watch.kept_ledger import KeptLedger
from anabranch.watch.metric_names import COUNTERS, GAUGES, HISTOGRAMS, LAG, OF_THE_LEDGER
from anabranch.watch.version import version

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

#: Epochs of a channel that one look counts; more than that were left by runs that could not write the history.
_MOST = 500


@dataclass
class Reading:
    """What one look at a project has found; `readable` has False for what could not be read."""

    figures: dict[Key, float] = field(default_factory=dict)
    channels: dict[str, dict[str, float]] = field(default_factory=dict)
    running: bool = False
    readable: dict[str, bool] = field(default_factory=lambda: {"history": True, "ledger": True})


class Meter:
    """Looks at one project, from any thread. The ledger stays open between two looks: opening it reads all of it."""

    def __init__(self, project: Project) -> None:
        self._project, self._lock = project, threading.Lock()
        self._ledger = KeptLedger(project)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics in the format that `accept` asks for, or else in plain text; and the type of the content."""
        try:
            from prometheus_client import CollectorRegistry
            from prometheus_client.exposition import choose_encoder
        except ImportError as error:
            hint = "pip install 'anabranch[metrics]'"
            text = "metrics need a package that is not installed: prometheus-client"
            raise SetupError("EXTRA_MISSING", text, hint=hint) from error
        encoder, kind = choose_encoder(accept)
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Found(lambda: families(self._project.name, self.read())))
        return encoder(registry), kind

    def read(self) -> Reading:
        """One look. What cannot be read is left out, and said."""
        found = Reading()
        with self._lock:
            try:
                history = History.of(self._project.storage)
                found.figures = history.figures()
                found.running = any(run.outcome == "running" for run in history.runs(limit=5))
            except AnabranchError:
                found.readable["history"] = False
            try:
                self._look(found)
            except AnabranchError as error:
                self.close()
                found.readable["ledger"] = error.code == "NOTHING_RUN_YET"
        if not all(found.readable.values()):
            # Without the marks, or without what comes after them, these would be less than they were before.
            found.figures = {key: value for key, value in found.figures.items() if key[0] not in OF_THE_LEDGER}
        return found

    def close(self) -> None:
        """Give the ledger back."""
        self._ledger.close()

    def _look(self, found: Reading) -> None:
        ledger, pipeline = self._ledger.opened()
        holders = ledger.holders(pipeline)
        found.running = found.running or bool(holders)
        for channel in (c for c in ledger.channels(pipeline) if c.outputs):
            name = channel.channel
            newest = ledger.last(pipeline, name, channel.generation)
            if newest is None or newest.published_at is None:  # it takes longer to find, and this is soon over
                newest = next(iter(ledger.epochs(pipeline, channel=name, states=(State.PUBLISHED,), limit=1)), None)
            waiting = len(ledger.open_epochs(pipeline, name))
            stands = {"channel_up": float(name in holders), "generation": channel.generation, "open_epochs": waiting}
            if newest:
                stands |= {"last_epoch": newest.key.epoch, "last_published": newest.published_at or 0.0}
            found.channels[name] = stands
            if found.readable["history"]:
                mark = figures.mark_of(found.figures, name)
                more = ledger.published_after(pipeline, name, *mark, limit=_MOST)
                counted = chain.from_iterable(figures.told_by_epoch(record, found.figures) for record in more)
                found.figures = figures.together(found.figures, list(counted))


@dataclass(frozen=True)
class _Found:
    """What prometheus_client calls a collector."""

    find: Callable[[], Iterator[Metric]]

    def collect(self) -> Iterator[Metric]:
        return self.find()


def families(pipeline: str, found: Reading) -> Iterator[Metric]:
    """What was found, as metrics."""
    from prometheus_client.metrics_core import GaugeMetricFamily

    info = GaugeMetricFamily("anabranch_info", "The version that tells this.", labels=["pipeline", "version"])
    info.add_metric([pipeline, version()], 1)
    up = GaugeMetricFamily("anabranch_run_up", "Whether a run is at work.", labels=["pipeline"])
    up.add_metric([pipeline], float(found.running))
    readable = GaugeMetricFamily(
        "anabranch_readable",
        "Whether this could be read; what it tells is missing if not.",
        labels=["pipeline", "what"],
    )
    for what, said in found.readable.items():
        readable.add_metric([pipeline, what], float(said))
    yield from (info, up, readable)
    for name, (metric, text) in GAUGES.items():
        gauge = GaugeMetricFamily(metric, text, labels=["pipeline", "channel"])
        for channel, stands in found.channels.items():
            if name in stands:
                gauge.add_metric([pipeline, channel], stands[name])
        for (figure, channel, _), value in found.figures.items():
            if figure == name:
                gauge.add_metric([pipeline, channel], value)
        yield gauge
    yield from _lag(pipeline, found.figures)
    yield from _counters(pipeline, found.figures)
    yield from _histograms(pipeline, found.figures)


def _lag(pipeline: str, found: Mapping[Key, float]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import GaugeMetricFamily

    by_unit: dict[str, GaugeMetricFamily] = {}
    for (name, channel, text), value in found.items():
        if name == "lag":
            labels = json.loads(text)
            unit = labels["unit"]
            if unit not in by_unit:
                named = ["pipeline", "channel", "source"]
                by_unit[unit] = GaugeMetricFamily(f"anabranch_lag_{unit}", LAG.format(unit=unit), labels=named)
            by_unit[unit].add_metric([pipeline, channel, hide(labels["source"])], value)
    yield from by_unit.values()


def _counters(pipeline: str, found: Mapping[Key, float]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import CounterMetricFamily

    for name, (metric, named, text) in COUNTERS.items():
        counter = CounterMetricFamily(metric, text, labels=["pipeline", *named])
        sums: dict[tuple[str, ...], float] = {}
        for (figure, channel, labels), value in found.items():
            if figure == name:
                said = {**json.loads(labels), "channel": channel}
                key = tuple(said[label] for label in named)
                sums[key] = sums.get(key, 0) + value
        for key, value in sums.items():
            counter.add_metric([pipeline, *key], value)
        yield counter


def _histograms(pipeline: str, found: Mapping[Key, float]) -> Iterator[Metric]:
    from prometheus_client.metrics_core import HistogramMetricFamily

    for name, (metric, named, text) in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(metric, text, labels=["pipeline", *named])
        counts: dict[tuple[str, ...], dict[str, float]] = {}
        sums: dict[tuple[str, ...], float] = {}
        for (figure, channel, labels), value in found.items():
            if figure in (name, f"{name}_sum"):
                said = {**json.loads(labels), "channel": channel}
                key = tuple(said[label] for label in named)
                if figure == name:
                    counts.setdefault(key, {})[said["le"]] = value
                else:
                    sums[key] = value / MICRO
        for key, by_bound in counts.items():
            histogram.add_metric([pipeline, *key], _cumulative(by_bound), sums.get(key, 0.0))
        yield histogram


def _cumulative(by_bound: Mapping[str, float]) -> list[tuple[str, float]]:
    """Counts as Prometheus wants them.

    >>> _cumulative({"0.01": 2, "+Inf": 1})[:2], _cumulative({"0.01": 2, "+Inf": 1})[-1]
    ([('0.005', 0.0), ('0.01', 2.0)], ('+Inf', 3.0))
    """
    total, found = 0.0, []
    for bound in (*map(str, BOUNDS), "+Inf"):
        total += by_bound.get(bound, 0.0)
        found.append((bound, total))
    return found
