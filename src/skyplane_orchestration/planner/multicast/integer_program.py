"""The program over a choice of distribution trees: N integer, M integer or real."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Ints, Mask
from skyplane_orchestration.planner.highs import IntegerOptimum, LinearProgram, solve_integer
from skyplane_orchestration.planner.multicast.relaxation import SCALE, TreeObjective, TreePool
from skyplane_orchestration.planner.multicast.steiner_trees import Tree
from skyplane_orchestration.planner.problem import PlanProblem

#: Share of the objective that one relay less, or one instance less, may cost in a tie.
TIE, TIE_INSTANCE = 1e-6, 1e-8
#: Default limit on the nodes of one program, and relative gaps for a final and a rough solution.
FIRST_NODES = 600
FINAL_GAP, ROUGH_GAP = 1e-6, 1e-4
#: Share of one instance that counts as rounding.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class TreeSolution:
    """Trees with rates, N integer.

    Attributes:
        chosen: numbers of the trees in the pool; trees, rate_gbps: the trees and their rates.
        instances: (V,); connections: edge -> M, all 0 if M is real.
        objective, bound: in the weights of the objective, over the chosen trees.
    """

    chosen: Ints
    trees: tuple[Tree, ...]
    rate_gbps: Floats
    instances: Floats
    connections: dict[tuple[int, int], int]
    throughput_gbps: float
    usd_per_s: float
    objective: float
    bound: float

    @property
    def usd_per_gbit(self) -> float:
        return self.usd_per_s / self.throughput_gbps


def solve_trees(
    problem: PlanProblem,
    pool: TreePool,
    objective: TreeObjective,
    chosen: Ints,
    *,
    real_connections: bool = False,
    relative_gap: float = ROUGH_GAP,
    node_limit: int = FIRST_NODES,
) -> TreeSolution | None:
    """The best integer solution over the chosen trees of the pool; None if infeasible.

    With `real_connections` the result is a bound, and not a plan. Ties go to fewer relays, then
    to fewer instances. Raises SolverFailed when no solution is known at the limit on nodes.
    """
    rows = _IntegerProgram(problem, pool, chosen)
    optimum = rows.solve(objective, real_connections, relative_gap, node_limit)
    if optimum is None:
        return None
    rate = np.maximum(optimum.x[: rows.trees], 0.0)
    instances = np.zeros(problem.region_count)
    instances[rows.regions] = np.ceil(optimum.x[rows.instances] - ROUNDING)
    counts = optimum.x[rows.connections].astype(int)
    usd_per_s = float(rate @ rows.usd_per_gbit + instances @ problem.usd_per_s)
    return TreeSolution(
        chosen=chosen,
        trees=tuple(pool.trees[number] for number in chosen.tolist()),
        rate_gbps=rate,
        instances=instances,
        connections=dict(zip(rows.edges, counts.tolist(), strict=True)),
        throughput_gbps=float(optimum.x[rows.throughput]),
        usd_per_s=usd_per_s,
        objective=optimum.objective - SCALE,
        bound=optimum.bound - SCALE - rows.most_ties,
    )


class _IntegerProgram:
    """The program with columns x_T, N, M, G, whether a region relays, and a constant 1."""

    def __init__(self, problem: PlanProblem, pool: TreePool, chosen: Ints) -> None:
        self.problem, self.usd_per_gbit = problem, np.array(pool.usd_per_gbit)[chosen]
        trees = [pool.trees[number] for number in chosen.tolist()]
        self.edges = sorted({edge for tree in trees for edge in tree})
        self.regions = np.array(sorted({v for edge in self.edges for v in edge}))
        self.trees, count = len(trees), len(self.regions)
        self.tail = np.searchsorted(self.regions, [edge[0] for edge in self.edges])
        self.head = np.searchsorted(self.regions, [edge[1] for edge in self.edges])
        self.connections_per_gbps = pool.connections_per_gbps[tuple(np.transpose(self.edges))]
        number = {edge: position for position, edge in enumerate(self.edges)}
        self.on_edge = np.zeros((len(self.edges), len(trees)))
        for column, tree in enumerate(trees):
            self.on_edge[[number[edge] for edge in tree], column] = 1.0
        self.instances = slice(self.trees, self.trees + count)
        self.connections = slice(self.instances.stop, self.instances.stop + len(self.edges))
        self.throughput = self.connections.stop
        self.relaying = slice(self.throughput + 1, self.throughput + 1 + count)
        self.constant = self.relaying.stop
        self.relays = problem.relays[self.regions]

    @property
    def most_ties(self) -> float:
        """The largest sum of the tie weights."""
        weight = self._ties()
        return float((weight[weight > 0] * self._upper(np.inf)[weight > 0]).sum())

    def solve(
        self, objective: TreeObjective, real_connections: bool, relative_gap: float, node_limit: int
    ) -> IntegerOptimum | None:
        below, most = self._rows(objective, real_connections)
        cost = objective.cost_weight * self._usd_per_s() + self._ties()
        cost[self.throughput] = -objective.rate_weight
        cost[self.constant] = SCALE
        equal = np.zeros((1, self.constant + 1))
        equal[0, : self.trees], equal[0, self.throughput] = 1.0, -1.0
        lower = np.zeros(self.constant + 1)
        lower[self.throughput], lower[self.constant] = objective.low_gbps, 1.0
        whole: Mask = np.zeros(self.constant + 1, dtype=bool)
        whole[self.connections] = True
        # Counting relays slows the solver, so with M real it happens only for a limit on relays.
        whole[self.relaying] = not real_connections or self.problem.max_relays is not None
        # Without a cost, N may be real and is rounded up afterwards: quotas are integers.
        whole[self.instances] = (
            objective.cost_weight > 0 or objective.ceiling_usd_per_gbit is not None
        )
        upper = self._upper(objective.high_gbps)
        if real_connections:
            upper[self.connections] = 0.0
        program = LinearProgram(cost, below, most, equal, np.zeros(1), lower, upper)
        return solve_integer(program, whole, relative_gap=relative_gap, node_limit=node_limit)

    def _usd_per_s(self) -> Floats:
        cost = np.zeros(self.constant + 1)
        cost[: self.trees] = self.usd_per_gbit
        cost[self.instances] = self.problem.usd_per_s[self.regions]
        return cost

    def _ties(self) -> Floats:
        weight = np.zeros(self.constant + 1)
        weight[self.relaying] = SCALE * TIE * self.relays
        weight[self.instances] = SCALE * TIE_INSTANCE
        return weight

    def _upper(self, high_gbps: float) -> Floats:
        quota, limit = self.problem.quota[self.regions], self.problem.connection_limit[self.regions]
        upper = np.full(self.constant + 1, np.inf)
        upper[self.instances] = quota
        upper[self.connections] = np.minimum((quota * limit)[self.tail], (quota * limit)[self.head])
        upper[self.throughput] = high_gbps
        upper[self.relaying] = upper[self.constant] = 1.0
        return upper

    def _rows(self, objective: TreeObjective, real_connections: bool) -> tuple[Floats, Floats]:
        """All rows <= 0, except the limit on relays."""
        problem, count, edges = self.problem, len(self.regions), len(self.edges)
        at_head, at_tail = np.zeros((count, edges)), np.zeros((count, edges))
        at_head[self.head, np.arange(edges)] = 1.0
        at_tail[self.tail, np.arange(edges)] = 1.0
        blocks = []

        def block(rows: int, **parts: Floats) -> None:
            matrix = np.zeros((rows, self.constant + 1))
            for name, values in parts.items():
                where = slice(0, self.trees) if name == "trees" else getattr(self, name)
                matrix[:, where] = values
            blocks.append(matrix)

        limit = -np.diag(problem.connection_limit[self.regions])
        needed = self.on_edge * self.connections_per_gbps[:, None]
        into, out = problem.ingress_gbps[self.regions], problem.egress_gbps[self.regions]
        block(count, trees=at_head @ self.on_edge, instances=-np.diag(into))  # 4f
        block(count, trees=at_tail @ self.on_edge, instances=-np.diag(out))  # 4g
        if real_connections:
            block(count, trees=at_tail @ needed, instances=limit)
            block(count, trees=at_head @ needed, instances=limit)
        else:
            block(edges, trees=needed, connections=-np.eye(edges))  # 4b
            block(count, connections=at_tail, instances=limit)  # 4h
            block(count, connections=at_head, instances=limit)  # 4i
        block(count, instances=np.eye(count), relaying=-np.diag(problem.quota[self.regions]))
        if objective.ceiling_usd_per_gbit is not None:
            row = self._usd_per_s() / objective.ceiling_usd_per_gbit
            row[self.throughput] = -1.0
            blocks.append(row[None, :])
        most = np.zeros(sum(len(matrix) for matrix in blocks))
        if problem.max_relays is not None:
            block(1, relaying=self.relays.astype(float))
            most = np.append(most, float(problem.max_relays))
        return np.vstack(blocks), most
