"""The page of the reproduction: our numbers, the paper's, and a reason for each difference."""

from __future__ import annotations

from collections import Counter

from bench.paper.evaluation import Evaluation
from bench.paper.of_routes import figure_1, figure_9c, table_2
from bench.paper.over_pairs import figure_7, figure_8, figure_10
from bench.paper.readings import PAPER_GBIT
from bench.paper.sweep import NEARLY_MOST
from bench.paper.tables import refilled

#: Below the folder of the documentation.
PAGE = "explanation/reproduction.md"


def document(evaluation: Evaluation) -> str:
    """The whole page, for an evaluation of all figures."""
    return refilled("\n\n".join([_head(evaluation), *sections(evaluation)])) + "\n"


def sections(evaluation: Evaluation) -> list[str]:
    """One section per figure that was computed."""
    found = []
    if evaluation.motivation is not None:
        found.append(figure_1(evaluation.motivation))
    if evaluation.ablation is not None:
        found.append(figure_7(evaluation.ablation))
    if evaluation.bottlenecks is not None:
        found.append(figure_8(evaluation.bottlenecks))
    if evaluation.budgets is not None and evaluation.ablation is not None:
        found.append(figure_9c(evaluation.budgets, evaluation.ablation.every))
    if evaluation.instances is not None:
        found.append(figure_10(evaluation.instances))
    if evaluation.comparison is not None:
        found.append(table_2(evaluation.comparison))
    return found


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

The figures of section 7 of the Skyplane paper (NSDI 2023) that its own planner predicted, made
again with ours: Fig. 1, 7, 8, 9c, 10 and Table 2. `python -m bench.paper GRID_DIR` writes this
page and its plots whole; change the script, not the page. The grid is `{grid.name}` of
{grid.as_of}: {len(grid.regions)} regions ({each}), {evaluation.pairs} ordered pairs, all of
them. Figures over all pairs were computed at commit `{evaluation.commit}`.

What has to be known to compare:

- **Unit.** A "Gbps" of the paper is 2**30 bit/s of what the *sender* counted: Fig. 1 comes out
  in that reading, and not in received Gbit/s (below). Rates on this page are in that unit
  ({PAPER_GBIT:.4f} Gbit/s) unless they are called received. A sender counts what still stands
  in its buffers when a measurement ends, after 5 s, so it counts more than arrives:
  {evaluation.sent_over_received:.2f} times in the median of this grid. Everywhere else this
  project plans on received Gbit/s of 1e9 bit.
- **Limits**, compared with those rates without a factor, as in the paper: {limits}. One
  instance per region unless said otherwise. Prices are those of the grid.
- **How plans are made.** "Fastest plan" is an integer plan (N and M integer, checked against 4b
  to 4j) at {percent_of_most} of the most that the relaxation allows, so that nothing is paid for
  a last fraction of a percent; none of them is more than {gap:.2f} % below that most. It is the
  cheapest that is found without the time for a proof: within {price_gap:.1f} % of the
  proven least in the median. Rates under a price ceiling, on received rates and at equal total
  instances are those of the relaxation, which is never less than what integers reach; where the
  ceiling pays for the fastest plan, or that has no relay, they are that plan's.
- **Regions.** Section 7.3 of the paper has 22 AWS, 23 Azure and 27 GCP regions and counts 72 x
  72 = 5,184 routes, a region to itself among them. The public measurement has fewer (above).
- **What the paper says.** Its text was at hand, not the pictures: a number that stands only in
  a picture is marked "in the picture only"."""
