"""A picture of the results: CPU-seconds by number of outputs, and the wall time of a small epoch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import ways
from measure import Record
from report import SMALL

mpl.use("Agg")

import matplotlib.pyplot as plt

COLOURS = {ways.OURS: "#0b6e4f", ways.PYARROW: "#999999", ways.DUCKDB: "#bbbbbb"}


def plot(records: Sequence[Record], target: Path) -> None:
    """Write the picture."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5), width_ratios=(3, 2))
    _by_outputs(left, [r for r in records if r.case.endswith(("output", "outputs")) and r.events])
    _small_epochs(right, [r for r in records if r.case == SMALL])
    figure.tight_layout()
    figure.savefig(target, dpi=120)
    plt.close(figure)


def _by_outputs(axes: plt.Axes, records: Sequence[Record]) -> None:
    for way in dict.fromkeys(r.way for r in records):
        line = sorted((r.outputs, r.cpu_s) for r in records if r.way == way)
        axes.plot(
            *zip(*line, strict=True), marker="o", label=way, color=COLOURS.get(way), zorder=2 + (way == ways.OURS)
        )
    axes.set(xscale="log", yscale="log", xlabel="outputs", ylabel="CPU-seconds")
    counts = sorted({r.outputs for r in records})
    axes.set_xticks(counts, [str(c) for c in counts], minor=False)
    axes.set_title(f"{max(r.events for r in records):,} events into tables")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)


def _small_epochs(axes: plt.Axes, records: Sequence[Record]) -> None:
    names = [r.way for r in records]
    bars = axes.barh(names, [r.wall_s for r in records], color=[COLOURS.get(n, "#c8553d") for n in names])
    axes.bar_label(bars, fmt="%.2f s", padding=3)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set_yticks(range(len(names)), [n.replace(", ", ",\n", 1) for n in names], fontsize=8)
    axes.set(xlabel="seconds, median", title="an epoch of 1,000 rows into 3 tables")
