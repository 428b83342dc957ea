"""The page of the reproduction: our numbers, the paper's, and the reason for each difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from bench.paper.evaluation import Evaluation
from bench.paper.of_routes import figure_1, figure_9c, table_2
from bench.paper.over_pairs import figure_7, figure_8, figure_10
from bench.paper.readings import PAPER_GBIT
from bench.paper.sweep import NEARLY_MOST
from bench.paper.tables import refilled

#: Below the folder of the documentation.
PAGE = "internals/reproduction.md"


def document(evaluation: Evaluation) -> str:
    """The whole page, for an evaluation of all figures."""
    return refilled("\n\n".join([_head(evaluation), *sections(evaluation)])) + "\n"


def sections(evaluation: Evaluation) -> list[str]:
    """One section per figure that was computed."""
    every: Any = evaluation.ablation and evaluation.ablation.every
    parts: list[tuple[Any, Callable[[Any], str]]] = [
        (evaluation.motivation, figure_1),
        (evaluation.ablation, figure_7),
        (evaluation.bottlenecks, figure_8),
        (evaluation.budgets, lambda found: figure_9c(found, every)),
        (evaluation.instances, figure_10),
        (evaluation.comparison, table_2),
    ]
    return [write(found) for found, write in parts if found is not None]


def _head(evaluation: Evaluation) -> str:
    grid = evaluation.grid
    regions = Counter(region.cloud for region in grid.regions)
    each = ", ".join(f"{count} {cloud}" for cloud, count in sorted(regions.items()))
    limits = "; ".join(
        f"{kind.name} {kind.egress_gbps:g} out, {kind.ingress_gbps:g} in,"
        f" {kind.connection_limit} connections, {kind.usd_per_hour:g} USD an hour"
        for kind in (grid.instance_type(cloud) for cloud in sorted(regions))
    )
    gap = 0.0 if evaluation.ablation is None else 100 * evaluation.ablation.worst_gap
    price_gap = 0.0 if evaluation.ablation is None else 100 * evaluation.ablation.price_gap
    percent_of_most = f"{100 * NEARLY_MOST[0]:g} %"
    return f"""# The paper's evaluation, predicted by this planner

Section 7 of the Skyplane paper (NSDI 2023) has figures that the paper's planner predicted. On this
page our planner predicts them: Fig. 1, 7, 8, 9c, 10 and Table 2. `python -m bench.paper GRID_DIR`
writes the page and its plots. Change the script, not the page. The grid is `{grid.name}` of
{grid.as_of}: {len(grid.regions)} regions ({each}) and all {evaluation.pairs} ordered pairs. Figures
over all pairs were computed at commit `{evaluation.commit}`.

Before you compare:

- **Unit.** A "Gbps" of the paper is 2**30 bit/s, counted by the *sender*: only this reading
  reproduces Fig. 1. Rates on this page have that unit ({PAPER_GBIT:.4f} Gbit/s) unless they are
  called received. A measurement takes 5 s, and the sender also counts the bytes in its buffers: in
  the median of this grid {evaluation.sent_over_received:.2f} times the received bytes. The rest of
  this project plans on received Gbit/s of 1e9 bit.
- **Limits** apply to these rates without conversion, as in the paper: {limits}. There is one
  instance per region unless the text says otherwise. Prices come from the grid.
- **Plans.** A "fastest plan" is an integer plan (N and M integer, checked against 4b to 4j) at
  {percent_of_most} of the highest rate of the relaxation, because the last fraction of a percent
  costs too much. All are within {gap:.2f} % of that rate. The search takes no time for a proof: in
  the median the price is within {price_gap:.1f} % of the proven lowest. Three kinds of rates come
  from the relaxation, which integers never exceed: under a price ceiling, on received rates, and
  at equal total instances. If the fastest plan is below the ceiling, or has no relay, its rate
  is used.
- **Regions.** Section 7.3 of the paper has 22 AWS, 23 Azure and 27 GCP regions and counts 72 x 72 =
  5,184 routes, with routes from a region to itself. The public measurement has fewer.
- **Source.** We had the paper's text, not its pictures. "In the picture only" marks a number that
  the text does not give."""
