"""Draws a frontier as a chart of price over throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.util import find_spec
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.plots import HEADER, HEIGHT, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PLAN, BOUND, CHOSEN = "#2f5fb3", "#8a97a8", "#b0304f"
MARKS: Final = ("#1b7f5c", "#b3662f", "#6b4fa0", "#2b8ca3")
#: More plans than this have smaller dots.
MANY: Final = 40
#: An axis starts at zero unless all plans are above this share of the largest.
FAR_FROM_ZERO: Final = 0.4
#: Text stays text, and a dollar sign starts no formula.
_STYLE: Final = {
    "svg.fonttype": "none",
    "svg.hashsalt": "skyplane_orchestration",
    "text.parse_math": False,
    "font.size": 9,
}


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed. Does not import it."""
    if find_spec("matplotlib") is None:
        raise MissingExtra.of("a chart", "plots")


def frontier_svg(
    plans: Sequence[TransferPlan],
    marks: Mapping[str, TransferPlan],
    *,
    relaxed: Sequence[tuple[float, float]] = (),
    chosen: TransferPlan | None = None,
) -> str:
    """One SVG document: plans as dots, the relaxed frontier as a line, marks with their names.

    Args:
        plans: at least one, by ascending rate, as `frontier` returns them.
        marks: name -> a plan to compare with. Marks at the same place share a name.
        relaxed: rates (Gbit/s) and the prices (USD per GB) below which there is no plan.
        chosen: the plan of an objective; it has a ring.

    Raises MissingExtra without matplotlib.
    """
    require_matplotlib()
    # Imported here: only a chart needs them, and they are slow to load.
    from matplotlib import style
    from matplotlib.figure import Figure

    grid, title = plans[0].grid, f"{plans[0].src} to {plans[0].dst}"
    facts = f"price over throughput  ·  grid {grid.name} of {grid.as_of}"
    # With the default style, no setting of this machine changes the picture.
    with style.context(["default", _STYLE]):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        figure.text(15 / WIDTH, 1 - 20 / HEIGHT, title, fontsize=13, fontweight="bold")
        figure.text(15 / WIDTH, 1 - 36 / HEIGHT, facts)
        _draw(plans, marks, relaxed, chosen, figure)
        written = StringIO()
        metadata = {"Title": title, "Date": None, "Creator": None}
        figure.savefig(written, format="svg", metadata=metadata)
    document = written.getvalue()
    # A viewer shows the title of a dot when the pointer is on it.
    for number, plan in enumerate(plans):
        group = f'<g id="plan-{number}">'
        document = document.replace(group, f"{group}<title>{escape(_details(plan))}</title>")
    return document


def _draw(
    plans: Sequence[TransferPlan],
    marks: Mapping[str, TransferPlan],
    relaxed: Sequence[tuple[float, float]],
    chosen: TransferPlan | None,
    figure: Figure,
) -> None:
    figure.set_layout_engine("constrained", rect=(0.01, 0.01, 0.98, 0.99 - HEADER / HEIGHT))
    axes = figure.add_subplot(xlabel="throughput, Gbit/s", ylabel="USD per GB")
    axes.grid(color="#dde2e8")
    axes.ticklabel_format(style="plain", useOffset=False)
    rates = [plan.throughput_gbps for plan in (*plans, *marks.values())]
    least_gbps = 0.0 if min(rates) <= FAR_FROM_ZERO * max(rates) else min(rates)
    if relaxed:
        label = "relaxed frontier: no plan lies below"
        axes.plot(
            *zip(*relaxed, strict=True), color=BOUND, linewidth=1.5, label=label, gid="relaxed"
        )
    names_by_facts: dict[str, list[str]] = {}
    for name, mark in marks.items():
        names_by_facts.setdefault(_facts(mark), []).append(name)
    for number, (facts, names) in enumerate(names_by_facts.items()):
        look = {"marker": "s", "markersize": 8, "color": MARKS[number % len(MARKS)]}
        label = f"{' and '.join(names)}: {facts}"
        _point(axes, marks[names[0]], gid=f"mark-{number}", label=label, **look)
    for number, plan in enumerate(plans):
        look = {"marker": "o", "markersize": 4 if len(plans) > MANY else 6, "color": PLAN}
        label = "" if number else counted(len(plans), "plan")
        _point(axes, plan, gid=f"plan-{number}", label=label, **look)
    if chosen is not None:
        look = {"marker": "o", "markersize": 13, "markeredgewidth": 2, "fillstyle": "none"}
        label = f"chosen: {_facts(chosen)}"
        _point(axes, chosen, gid="chosen", label=label, color=CHOSEN, **look)
    low, high = axes.get_ylim()
    axes.set_ylim(bottom=0 if low <= FAR_FROM_ZERO * high else low)
    if not least_gbps:
        axes.set_xlim(left=0)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)


def _point(axes: Axes, plan: TransferPlan, **look: Any) -> None:
    axes.plot(plan.throughput_gbps, plan.cost.usd_per_gb, linestyle="none", **look)


def _facts(plan: TransferPlan) -> str:
    return f"{plan.throughput_gbps:.2f} Gbit/s, {plan.cost.usd_per_gb:.4f} USD per GB"


def _details(plan: TransferPlan) -> str:
    relays = ", ".join(plan.relays) or "none"
    return f"{_facts(plan)}, {counted(plan.instance_count, 'instance')}, relays: {relays}"
