"""The relaxation over all distribution trees, N and M real, with its proven bound.

The program has a column for every tree, but only useful trees are generated (column generation,
Gilmore and Gomory 1961). The most useful tree at the duals of a round is the cheapest Steiner
arborescence for the edge costs

    price_uv + in_v + out_u + 64 / l_uv * (connections_out_u + connections_in_v)

Its cost gives a Lagrangian bound over all trees. The bound holds for any duals >= 0, so it does not
depend on the solver's tolerances.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Ints, Mask
from skyplane_orchestration.planner.constraint_names import REGION_LIMITS
from skyplane_orchestration.planner.formulation import limit_cost
from skyplane_orchestration.planner.highs import LinearOptimum, LinearProgram, solve_linear
from skyplane_orchestration.planner.multicast.steiner_trees import (
    CheapestTrees,
    Tree,
    all_trees,
    cheapest_trees,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.regions import edge_matrix

#: Up to this many regions all trees are generated, and the solver proves the integer optimum.
FEW_REGIONS = 6
#: Objectives are scaled to about this, far above the solver's absolute tolerances.
SCALE = 1000.0
#: Column generation ends within this relative distance of the bound.
CONVERGED = 1e-6
#: Column generation ends after this many rounds, with the bound so far.
MOST_ROUNDS = 100
#: Trees that join in one round of column generation.
TREES_AT_ONCE = 24


@dataclass(frozen=True, slots=True, eq=False)
class TreeObjective:
    """Minimise cost_weight * (USD per second) - rate_weight * G, G in [low, high].

    Attributes:
        ceiling_usd_per_gbit: largest price, or None.
        at_least: (V,) lower bounds of N, or None.
    """

    cost_weight: float
    rate_weight: float
    low_gbps: float
    high_gbps: float
    ceiling_usd_per_gbit: float | None = None
    at_least: Floats | None = None


@dataclass(slots=True)
class TreePool:
    """The trees generated so far, with what one Gbit/s over each of them uses.

    Attributes:
        connections_per_gbps, egress_price: (V, V) 64 / l_uv and USD per Gbit of each edge,
            infinite where there is no edge.
        use: per tree (4, V): ingress, egress, connections in and out.
        usd_per_gbit: per tree, egress of all of its edges.
        is_complete: True when the pool has every tree.
    """

    connections_per_gbps: Floats
    egress_price: Floats
    trees: list[Tree] = field(default_factory=list)
    use: list[Floats] = field(default_factory=list)
    usd_per_gbit: list[float] = field(default_factory=list)
    is_complete: bool = False
    _known: set[Tree] = field(default_factory=set)

    @classmethod
    def of(cls, problem: PlanProblem) -> TreePool:
        """All trees for few regions, else the cheapest trees by egress price."""
        pool = cls(
            edge_matrix(problem, 1.0 / problem.gbps_per_connection),
            edge_matrix(problem, problem.usd_per_gbit),
        )
        if problem.region_count <= FEW_REGIONS:
            trees = all_trees(pool.usable, problem.src, problem.destinations)
            pool.is_complete = True
        else:
            trees = priced_trees(problem, np.zeros((4, problem.region_count)), 1.0).trees(
                np.inf, TREES_AT_ONCE
            )
        pool.add(trees)
        return pool

    @property
    def usable(self) -> Mask:
        """(V, V) True where there is an edge."""
        return np.isfinite(self.egress_price)

    def add(self, trees: list[Tree]) -> int:
        """Adds trees to the pool; how many of them are new."""
        new = [tree for tree in dict.fromkeys(trees) if tree not in self._known]
        self._known.update(new)
        self.trees += new
        for tree in new:
            tail, head = np.array(tree).T
            use = np.zeros((4, len(self.egress_price)))
            connections = self.connections_per_gbps[tail, head]
            np.add.at(use[0], head, 1.0)
            np.add.at(use[1], tail, 1.0)
            np.add.at(use[2], head, connections)
            np.add.at(use[3], tail, connections)
            self.use.append(use)
            self.usd_per_gbit.append(float(self.egress_price[tail, head].sum()))
        return len(new)


@dataclass(frozen=True, slots=True, eq=False)
class TreeRelaxation:
    """An optimum over all trees with N and M real.

    Attributes:
        objective: in the weights of the objective; `bound` is proven and slightly lower.
        rate_gbps: (T,) of the pool's trees; `reduced_cost` (T,) >= 0.
        throughput_gbps: G.
        price: (4, V) shadow price of one unit of ingress, egress, connections in and out.
    """

    objective: float
    bound: float
    rate_gbps: Floats
    reduced_cost: Floats
    throughput_gbps: float
    price: Floats


def relax_trees(
    problem: PlanProblem,
    pool: TreePool,
    objective: TreeObjective,
    *,
    most_rounds: int = MOST_ROUNDS,
) -> TreeRelaxation | None:
    """The relaxation; generated trees join the pool. None if infeasible over the pool.

    After `most_rounds` the result so far is returned; its bound is still proven. Raises
    SolverFailed when HiGHS ends without a result.
    """
    bound = -objective.rate_weight * objective.high_gbps
    for round_number in range(1, most_rounds + 1):
        answer = _relax_over_pool(problem, pool, objective)
        if answer is None:
            return None
        optimum, price, ceiling, relays, per_gbps = answer
        weight = objective.cost_weight + ceiling
        near = priced_trees(problem, price, weight)
        bound = max(
            bound, _lagrangian_bound(problem, objective, price, ceiling, relays, near.least)
        )
        slack = CONVERGED * max(1.0, abs(optimum.objective))
        is_last = pool.is_complete or round_number == most_rounds
        if is_last or optimum.objective - bound <= slack:
            break
        if not pool.add(near.trees(per_gbps, TREES_AT_ONCE)):
            break
    count = len(pool.trees)
    tree_cost = weight * np.array(pool.usd_per_gbit) + np.tensordot(
        np.array(pool.use), price, axes=([1, 2], [0, 1])
    )
    return TreeRelaxation(
        objective=optimum.objective,
        bound=min(bound, optimum.objective),
        rate_gbps=optimum.x[:count],
        reduced_cost=np.maximum(tree_cost - per_gbps, 0.0),
        throughput_gbps=float(optimum.x[-1]),
        price=price,
    )


def priced_trees(problem: PlanProblem, price: Floats, weight: float) -> CheapestTrees:
    """The cheapest trees for edge costs with these shadow prices of the regions' limits."""
    limits = limit_cost(problem, dict(zip(REGION_LIMITS, price, strict=True)))
    cost = edge_matrix(problem, weight * problem.usd_per_gbit + limits)
    return cheapest_trees(cost, problem.src, problem.destinations)


def _relax_over_pool(
    problem: PlanProblem, pool: TreePool, objective: TreeObjective
) -> tuple[LinearOptimum, Floats, float, float, float] | None:
    """The optimum over the pool, and its duals: limits (4, V), ceiling, relays, sum of rates."""
    visited: Mask = np.any(np.array(pool.use) > 0, axis=(0, 1))
    visited[problem.src] = True
    regions = np.flatnonzero(visited)
    optimum = solve_linear(_program(problem, pool, objective, regions))
    if optimum is None:
        return None
    limits = 4 * len(regions)
    extra = list(optimum.below_price[limits:])
    ceiling = 0.0
    if objective.ceiling_usd_per_gbit is not None:
        ceiling = float(extra.pop(0)) / objective.ceiling_usd_per_gbit
    relays = float(extra.pop(0)) if problem.max_relays is not None else 0.0
    price = np.zeros((4, problem.region_count))
    price[:, regions] = optimum.below_price[:limits].reshape(4, len(regions))
    # In regions without a tree, all prices that the instance price covers are optimal. With all
    # of it on egress, these regions do not look free.
    worth = (objective.cost_weight + ceiling) * problem.usd_per_s + relays * _relays_per_instance(
        problem
    )
    price[1, ~visited] = (worth / problem.egress_gbps)[~visited]
    return optimum, price, ceiling, relays, float(optimum.equal_price[0])


def _program(
    problem: PlanProblem, pool: TreePool, objective: TreeObjective, regions: Ints
) -> LinearProgram:
    """The relaxation over the pool's trees and the regions that they visit.

    Columns: the rate of each tree, N of each region, G. Rows: (4f), (4g), (4i), (4h), and the
    ceiling and the limit on relays if there are any.
    """
    use = np.array(pool.use)
    trees, count = len(use), len(regions)
    capacity = problem.capacity[:, regions]
    blocks = [
        np.hstack([use[:, kind, regions].T, -np.diag(capacity[kind]), np.zeros((count, 1))])
        for kind in range(4)
    ]
    most = [np.zeros(4 * count)]
    cost = np.concatenate([pool.usd_per_gbit, problem.usd_per_s[regions], [0.0]])
    if objective.ceiling_usd_per_gbit is not None:
        row = cost / objective.ceiling_usd_per_gbit
        row[-1] = -1.0
        blocks.append(row[None, :])
        most.append(np.zeros(1))
    if problem.max_relays is not None:
        row = np.concatenate([np.zeros(trees), _relays_per_instance(problem)[regions], [0.0]])
        blocks.append(row[None, :])
        most.append(np.array([float(problem.max_relays)]))
    at_least = np.zeros(problem.region_count) if objective.at_least is None else objective.at_least
    weighted = objective.cost_weight * cost
    weighted[-1] = -objective.rate_weight
    return LinearProgram(
        cost=weighted,
        below=np.vstack(blocks),
        most=np.concatenate(most),
        equal=np.concatenate([np.ones(trees), np.zeros(count), [-1.0]])[None, :],
        exact=np.zeros(1),
        lower=np.concatenate([np.zeros(trees), at_least[regions], [objective.low_gbps]]),
        upper=np.concatenate(
            [np.full(trees, np.inf), problem.quota[regions], [objective.high_gbps]]
        ),
    )


def _relays_per_instance(problem: PlanProblem) -> Floats:
    """(V,) the share of one relay that each of its instances counts for, 0 at the ends."""
    share: Floats = np.where(problem.relays, 1.0 / np.maximum(problem.quota, 1.0), 0.0)
    return share


def _lagrangian_bound(
    problem: PlanProblem,
    objective: TreeObjective,
    price: Floats,
    ceiling: float,
    relays: float,
    least: float,
) -> float:
    """A lower bound over all trees: the limits join the objective at their prices, all >= 0.

    The rest separates into the cheapest tree times G, and the instances of each region.
    """
    if not np.isfinite(least):
        return np.inf if objective.low_gbps > 0 else 0.0
    each = (objective.cost_weight + ceiling) * problem.usd_per_s + relays * _relays_per_instance(
        problem
    )
    each = each - (price * problem.capacity).sum(axis=0)
    fewest = np.zeros(problem.region_count) if objective.at_least is None else objective.at_least
    instances = np.where(each < 0, each * problem.quota, each * fewest).sum()
    per_gbps = least - objective.rate_weight
    per_gbps -= ceiling * (objective.ceiling_usd_per_gbit or 0.0)
    rate = objective.high_gbps if per_gbps < 0 else objective.low_gbps
    return float(per_gbps * rate + instances) - relays * (problem.max_relays or 0)
