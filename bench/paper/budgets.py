"""Fig. 9c: what a larger price budget buys on three routes, one instance per region."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from bench.paper.readings import ANY_USD_PER_GB, ONE_INSTANCE
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import MaximizeThroughput
from skyplane_orchestration.planner import direct, plan

#: The paper's routes, and what its text calls the benefit.
ROUTES = {
    ("azure:westus", "aws:eu-west-1"): "considerable",
    ("gcp:asia-east1", "aws:sa-east-1"): "good",
    ("aws:af-south-1", "aws:ap-southeast-2"): "minimal",
}
#: The one elbow that the text names: on the first route, at this multiple.
PAPER_ELBOW = 1.2
STEP = 0.02
MOST_BUDGET = 4.0
#: A rate this near to the most there is counts as all of it.
_ALL_OF_IT = 0.999


@dataclass(frozen=True, slots=True)
class Point:
    """The fastest plan within a multiple of the direct path's price."""

    budget: float
    gbps: float
    relays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """One curve of Fig. 9c; rates in 2**30 bit/s.

    Attributes:
        saturated_budget: the smallest multiple whose plan is as fast as any.
        changes: multiples at which the set of relays is another than a step before.
    """

    src: str
    dst: str
    benefit: str
    direct_gbps: float
    most_gbps: float
    saturated_budget: float
    changes: tuple[float, ...]
    points: tuple[Point, ...]

    @property
    def elbow(self) -> float:
        """The multiple at which the curve stands highest above the line between its ends."""
        first, last = self.points[0], self.points[-1]
        if last.budget == first.budget:
            return first.budget
        slope = (last.gbps - first.gbps) / (last.budget - first.budget)
        return max(self.points, key=lambda point: point.gbps - slope * point.budget).budget

    def gbps_at(self, budget: float) -> float:
        """Rate of the last point within the budget."""
        return max(point.gbps for point in self.points if point.budget <= budget + STEP / 2)


def budgets(grid: Grid) -> tuple[Route, ...]:
    """Fig. 9c in numbers. Raises UnknownRegion where the grid lacks one of its regions."""
    return tuple(route(grid, src, dst, benefit) for (src, dst), benefit in ROUTES.items())


def route(grid: Grid, src: str, dst: str, benefit: str) -> Route:
    """One curve, from the direct path's price until nothing more can be bought."""
    alone = direct(grid, src, dst)
    most = plan(
        grid, src, dst, MaximizeThroughput(max_usd_per_gb=ANY_USD_PER_GB), limits=ONE_INSTANCE
    )
    points = [Point(1.0, alone.throughput_gbps, ())]
    while points[-1].gbps < _ALL_OF_IT * most.throughput_gbps and points[-1].budget < MOST_BUDGET:
        budget = round(1.0 + STEP * len(points), 6)
        found = plan(
            grid,
            src,
            dst,
            MaximizeThroughput(max_usd_per_gb=budget * alone.cost.usd_per_gb),
            limits=ONE_INSTANCE,
        )
        # Within its gap a plan may be a hair slower than one for less money.
        faster = found.throughput_gbps > points[-1].gbps
        relays = found.relays if faster else points[-1].relays
        points.append(Point(budget, max(found.throughput_gbps, points[-1].gbps), relays))
    return Route(
        src=src,
        dst=dst,
        benefit=benefit,
        direct_gbps=alone.throughput_gbps,
        most_gbps=most.throughput_gbps,
        saturated_budget=points[-1].budget,
        changes=tuple(
            here.budget for before, here in pairwise(points) if here.relays != before.relays
        ),
        points=tuple(points),
    )
