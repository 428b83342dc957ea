"""What a solver's run means: an optimum of the relaxation, or integers of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem

#: Flows below this (Gbit/s) are the solver's noise.
FLOW_TOLERANCE = 1e-7

#: A plan that is proven within this of the best counts as optimal.
OPTIMAL_GAP = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """An optimum of the model with every variable real.

    Attributes:
        objective: its value, in the unit of the cost vector it was solved for.
        flow_gbps, instances, throughput_gbps: the solution, (E,), (K,) and a scalar.
        edge_reduced_cost: (E,) how much worse the objective gets per Gbit/s forced on.
        edge_length: (E,) what a Gbit/s over an edge costs, limits of its ends included: the
            relaxed optimum sends everything along shortest paths of these.
        instance_price: (K,) what one instance adds to the objective, a cost ceiling included.
        shadow_price: name of a row block -> its duals, how much the objective rises per unit
            by which the limit is made tighter: >= 0 for limits, of either sign for balances.
            Beside the row blocks `instance_quota` (K,), `throughput_floor` and
            `throughput_most` (1,): the bounds of N and G.
        region_price: those of the inequalities alone.
    """

    objective: float
    flow_gbps: Floats
    instances: Floats
    throughput_gbps: float
    edge_reduced_cost: Floats
    edge_length: Floats
    instance_price: Floats
    shadow_price: Mapping[str, Floats]
    region_price: Mapping[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """A solution of the full model, N and M integer.

    Attributes:
        problem: the problem (perhaps on fewer regions) whose columns these are.
        flow_gbps, instances, connections: (E,), (K,), (E,).
        objective, bound: value reached, and what the solver proved cannot be beaten.
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
        """Egress and instances, USD per second of transfer."""
        return float(
            self.flow_gbps @ self.problem.usd_per_gbit + self.instances @ self.problem.usd_per_s
        )

    @property
    def usd_per_gbit(self) -> float:
        return self.usd_per_s / self.throughput_gbps


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Integers, and a proven bound on the objective: USD per Gbit, or Gbit/s at a ceiling."""

    integers: Integers
    bound: float

    @property
    def gap(self) -> float:
        """Proven relative distance to the best plan there can be."""
        return relative_gap(self.integers.usd_per_gbit, self.bound)


def relative_gap(value: float, bound: float) -> float:
    return max(0.0, (value - bound) / value) if value > 0 else 0.0
