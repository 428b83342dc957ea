"""The figures as SVG: the same numbers give the same bytes, and text stays text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.paper.ablation import Ablation, CloudPair
from bench.paper.bottlenecks import Bottlenecks
from bench.paper.budgets import PAPER_ELBOW, Route
from bench.paper.evaluation import Evaluation
from bench.paper.instances import Example, Instances
from bench.paper.motivation import Motivation
from bench.paper.utilisation import CONNECTIONS, LOCATIONS

DIRECT_COLOUR, OVERLAY_COLOUR, PAPER_COLOUR = "#8a8f98", "#1f6fb4", "#d9822b"
ROUTE_COLOURS = ("#1f6fb4", "#2f9e63", "#a3479c")
#: Points of a distribution: quantiles in steps of 2 %.
QUANTILES = np.linspace(0.0, 1.0, 51)
#: Label, values, colour.
Series = tuple[str, Sequence[float], str]
#: What the paper calls Gbps.
UNIT = "2\N{SUPERSCRIPT THREE}\N{SUPERSCRIPT ZERO} bit/s"


def draw(evaluation: Evaluation, directory: Path) -> list[Path]:
    """One file per figure that was computed; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn: list[Path] = []
    parts: list[tuple[str, Any, Callable[[Any], Figure]]] = [
        ("1", evaluation.motivation, _motivation),
        ("7", evaluation.ablation, _ablation),
        ("8", evaluation.bottlenecks, _bottlenecks),
        ("9c", evaluation.budgets, _budgets),
        ("10", evaluation.instances, _instances),
    ]
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "bench.paper",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 9,
            "legend.frameon": False,
        }
    ):
        for name, found, figure_of in parts:
            if found is not None:
                file = directory / f"figure-{name}.svg"
                figure_of(found).savefig(
                    file, format="svg", metadata={"Date": None, "Creator": None}
                )
                drawn.append(file)
    return drawn


def _both(direct: Sequence[float], overlay: Sequence[float]) -> tuple[Series, Series]:
    return ("direct path", direct, DIRECT_COLOUR), ("with relays", overlay, OVERLAY_COLOUR)


def _bars(axes: Axes, names: Sequence[str], *both: Series, digits: int = 1) -> None:
    """Two bars for each name, the first name on top."""
    position = np.arange(len(names))
    for number, (label, values, colour) in enumerate(both):
        drawn = axes.barh(position + 0.36 * number - 0.18, values, 0.34, color=colour, label=label)
        axes.bar_label(drawn, fmt=f"%.{digits}f", padding=3)
    axes.set_yticks(position, names)
    axes.invert_yaxis()


def _motivation(found: Motivation) -> Figure:
    figure = Figure(figsize=(6.4, 2.6), layout="constrained")
    axes = figure.subplots()
    names = [
        "direct" if way.relay is None else f"over {way.relay}\n{way.price_ratio:.2f} x the price"
        for way in found.ways
    ]
    ours, theirs = ([way.gbps for way in found.ways], [way.paper_gbps for way in found.ways])
    _bars(axes, names, ("predicted (sent)", ours, OVERLAY_COLOUR), ("paper", theirs, PAPER_COLOUR))
    axes.set_xlim(0, 1.12 * max(*ours, *theirs))
    axes.set_xlabel(f"throughput, {UNIT}")
    axes.set_title("azure:canadacentral to gcp:asia-northeast1, one instance per region")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _ablation(found: Ablation) -> Figure:
    clouds = sorted({pair.src_cloud for pair in found.cloud_pairs})
    heads = sorted({pair.dst_cloud for pair in found.cloud_pairs})
    figure = Figure(figsize=(7.6, 6.4), layout="constrained")
    grid = figure.subplots(len(clouds), len(heads), squeeze=False, sharey=True)
    for pair in found.cloud_pairs:
        _distribution(grid[clouds.index(pair.src_cloud)][heads.index(pair.dst_cloud)], pair)
    for row in grid:
        row[0].set_ylabel("share of pairs")
    for axes in grid[-1]:
        axes.set_xlabel(f"throughput, {UNIT}")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _distribution(axes: Axes, pair: CloudPair) -> None:
    """The share of pairs that are at most as fast as x."""
    for label, values, colour in _both(pair.direct_gbps, pair.overlay_gbps):
        axes.plot(np.round(np.quantile(values, QUANTILES), 3), QUANTILES, color=colour, label=label)
    axes.set_title(f"{pair.src_cloud} to {pair.dst_cloud}: {pair.speedup:.2f} x")
    axes.set_xlim(0, {"aws": 6.0, "gcp": 8.0}.get(pair.src_cloud, 17.0))
    axes.set_ylim(0, 1.02)
    axes.grid(alpha=0.25)


def _bottlenecks(found: Bottlenecks) -> Figure:
    names = [*LOCATIONS, CONNECTIONS]
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    shares = (
        [100 * found.direct[name] for name in names],
        [100 * found.overlay[name] for name in names],
    )
    _bars(axes, names, *_both(*shares), digits=0)
    axes.set_xlim(0, 105)
    axes.set_xlabel("transfers bottlenecked there, % of all pairs")
    axes.legend(loc="lower right")
    return figure


def _budgets(found: Sequence[Route]) -> Figure:
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    widest = max(route.saturated_budget for route in found)
    for route, colour in zip(found, ROUTE_COLOURS, strict=True):
        label = f"{route.src} to {route.dst} (paper: {route.benefit})"
        x = [point.budget for point in route.points]
        y = [point.gbps for point in route.points]
        axes.plot([*x, widest], [*y, y[-1]], color=colour, label=label)
    axes.axvline(PAPER_ELBOW, color=PAPER_COLOUR, linestyle=":", linewidth=1)
    axes.annotate(
        f"the paper's elbow, {PAPER_ELBOW:g} x",
        (PAPER_ELBOW, 0.2),
        xytext=(4, 0),
        textcoords="offset points",
        color=PAPER_COLOUR,
    )
    axes.set_xlabel("price ceiling, multiples of the direct path's price")
    axes.set_ylabel(f"throughput, {UNIT}")
    axes.set_ylim(0)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside lower center", ncols=1)
    return figure


def _instances(found: Instances) -> Figure:
    figure = Figure(figsize=(7.6, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _example(left, "between continents", found.between.example)
    _example(right, "within a continent", found.within.example)
    left.set_ylabel(f"throughput, {UNIT}")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


def _example(axes: Axes, title: str, shown: Example) -> None:
    for label, values, colour in _both(shown.direct_gbps, shown.overlay_gbps):
        axes.plot(shown.counts, values, marker="o", markersize=4, color=colour, label=label)
    axes.set_title(f"{title}: {shown.speedup:.2f} x\n{shown.src} to {shown.dst}")
    axes.set_xlabel("instances per region, at most")
    axes.set_xticks(shown.counts)
    axes.set_ylim(0)
    axes.grid(alpha=0.25)
