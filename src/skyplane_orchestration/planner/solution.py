"""Results of the solver: an optimum of the relaxation, or an integer solution with its bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.distance_to_bound import relative_gap
from skyplane_orchestration.planner.problem import PlanProblem

#: Flows below this (Gbit/s) are numerical noise of the solver.
FLOW_TOLERANCE: Final = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """An optimum of the model with every variable real.

    Attributes:
        objective: its value, in the unit of the cost vector.
        flow_gbps, instances, throughput_gbps: the solution, (E,), (K,) and a scalar.
        edge_reduced_cost: (E,) increase of the objective per Gbit/s forced onto an edge.
        region_price: (V,) duals of the balance of flow: cost of one Gbit/s that starts there.
        limit_price: name of a block of inequalities -> its duals: increase of the objective per
            unit by which the limit is tightened, >= 0.
    """

    objective: float
    flow_gbps: Floats
    instances: Floats
    throughput_gbps: float
    edge_reduced_cost: Floats
    region_price: Floats
    limit_price: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class IntegerSolution:
    """A solution of the full model, N and M integer.

    Attributes:
        problem: the problem that was solved, perhaps on fewer regions.
        flow_gbps, instances, connections: (E,), (K,), (E,).
        objective, bound: the value reached, and the solver's bound on it.
    """

    problem: PlanProblem
    flow_gbps: Floats
    instances: Floats
    connections: Floats
    throughput_gbps: float
    objective: float
    bound: float

    @property
    def used_regions(self) -> Mask:
        """(V,) regions that flow enters or leaves."""
        used = np.zeros(self.problem.region_count, dtype=bool)
        flows = self.flow_gbps > FLOW_TOLERANCE
        used[self.problem.tail[flows]] = used[self.problem.head[flows]] = True
        return used

    @property
    def usd_per_s(self) -> float:
        """Egress, instances, and the value of time, USD per second of transfer."""
        return self.problem.time_usd_per_s + float(
            self.flow_gbps @ self.problem.usd_per_gbit + self.instances @ self.problem.usd_per_s
        )

    @property
    def usd_per_gbit(self) -> float:
        return self.usd_per_s / self.throughput_gbps


@dataclass(frozen=True, slots=True, eq=False)
class Incumbent:
    """The best integer solution found, and a proven bound on the optimum.

    Attributes:
        bound: USD per Gbit, or Gbit/s for the most throughput under a ceiling.
        searched: the problem that was searched, perhaps on fewer regions.
    """

    solution: IntegerSolution
    bound: float
    searched: PlanProblem

    @property
    def gap(self) -> float:
        """The gap of a least cost."""
        return relative_gap(self.solution.usd_per_gbit, self.bound)
