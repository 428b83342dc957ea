"""The integer program of a job's total: the least total at any rate, or the most rate for a total.

Its unknowns are shares of the volume and seconds in place of rates, so that the total is linear.
With VOL Gbit and T seconds of transfer, f = F / G is the share of the volume over an edge, W = N *
T are the instance-seconds of transfer, and B the instance-seconds that are billed:

    total = VOL * sum f_uv * egress_price_uv + sum B_v * instance_price_v + time_price * T
    VOL * sum f_uv <= limit_v * W_v                                         (4f to 4i)
    B_v >= W_v + wait * N_v,  B_v >= max(minimum_v, wait + least) * N_v

N is a sum of powers of two with binary digits, and the product P of a digit and T is linear in both
(Glover, 1975), so W = N * T is exact. M is real. Time is in units of the shortest transfer, VOL /
`most_gbps`, and money in USD per Gbit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from scipy import sparse

from skyplane_orchestration.grids.arrays import Floats, Ints
from skyplane_orchestration.planner.highs import NO_PRESOLVE, LinearProgram, solve_integer
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.problem import PlanProblem

#: Relative gap at which the solver stops, and its nodes.
_GAP: Final = 2e-4
_NODES: Final = 100
#: Objectives are scaled to about this, far above the solver's absolute tolerances.
_SCALE: Final = 1000.0
#: Slack above a ceiling, relative: more than the solver's tolerance.
_SLACK: Final = 1e-6


#: The least total, the most rate, or the fewest instances.
Goal = Literal["least", "fastest", "fewest"]


@dataclass(frozen=True, slots=True)
class Bill:
    """What the total of a job depends on, and its ceilings.

    Attributes:
        volume_gbit: more than 0.
        wait_s: seconds that every instance is billed for before the transfer.
        max_usd_per_gbit: the most for egress and billed instances, per Gbit of the volume.
        max_price: the most for (4a), USD per Gbit.
        least_s: seconds that the transfer takes at any rate.
    """

    volume_gbit: float
    wait_s: float
    max_usd_per_gbit: float
    max_price: float = np.inf
    least_s: float = 0.0


class BestRate(NamedTuple):
    """The rate (Gbit/s) of the best plan with M real, and the bound on the objective.

    The bound of the least total is USD per Gbit, that of the most rate Gbit/s. That of the fewest
    instances is their number. `instances` is N (K,).
    """

    gbps: float
    bound: float
    instances: Floats


def best_rate(problem: PlanProblem, bill: Bill, goal: Goal) -> BestRate | None:
    """The rate, between `goal_gbps` and `most_gbps`, of the best plan for a goal.

    `fewest`: of the plans with the fewest instances, that of the least total.

    All regions of the problem count. None when no plan keeps the ceilings. Raises SolverFailed when
    none was found.
    """
    model = _Model(problem, bill)
    objective = np.zeros(model.count)
    if goal == "fastest":
        objective[model.time] = 1.0
    else:
        objective = model.total_cost() / bill.max_usd_per_gbit
    if goal == "fewest":
        objective[model.instances] += 1.0
    program = model.program(objective * _SCALE)
    used = np.diff(program.below.indptr) + np.diff(program.equal.indptr) > 0
    whole = np.zeros(model.count, dtype=bool)
    whole[model.digits] = whole[model.chosen] = whole[model.relaying] = True
    found = solve_integer(
        program.only(used), whole[used], relative_gap=_GAP, node_limit=_NODES, options=NO_PRESOLVE
    )
    if found is None:
        return None
    x = np.zeros(model.count)
    x[used] = found.x
    bound = found.bound / _SCALE
    if goal == "fastest":
        bound = problem.most_gbps / max(bound, 1.0)
    elif goal == "least":
        bound *= bill.max_usd_per_gbit
    gbps = problem.most_gbps / float(x[model.time])
    return BestRate(gbps, bound, np.round(x[model.instances]))


class _Model:
    """The columns and rows of the program; each attribute with several columns is their numbers.

    Attributes:
        shares: (E,) f.
        instances, transfer, extra: (K,) N, W, and B - W - wait * N.
        digits, products: (D,) binary digits of N, and their products with T.
        chosen, relaying: (K,), (V,) as in `formulation`.
        time: T.
    """

    def __init__(self, problem: PlanProblem, bill: Bill) -> None:
        self._problem, self._bill = problem, bill
        self._unit_s = bill.volume_gbit / problem.most_gbps
        self._longest = problem.most_gbps / problem.goal_gbps
        lengths = [int(most).bit_length() for most in problem.quota]
        self._option = np.repeat(np.arange(problem.option_count), lengths)
        self._weight = np.concatenate([2.0 ** np.arange(length) for length in lengths])
        options = problem.option_count
        sizes = (problem.edge_count, options, options, options, *[len(self._option)] * 2, options)
        parts = np.split(np.arange(sum(sizes) + problem.region_count + 1), np.cumsum(sizes))
        self.shares, self.instances, self.transfer, self.extra = parts[:4]
        self.digits, self.products, self.chosen = parts[4:7]
        self.relaying, self.time = parts[7][:-1], int(parts[7][-1])
        self.count = self.time + 1
        self._below = _Rows()
        self._limits()
        self._products_of_digits()
        self._minimum_billing()
        self._choices()
        self._ceilings()

    def total_cost(self) -> Floats:
        """(C,) USD per Gbit of the total."""
        cost = self._price()
        per_unit = cost[self.transfer]
        cost[self.instances] = per_unit * self._bill.wait_s / self._unit_s
        cost[self.extra] = per_unit
        cost[self.time] = self._problem.time_usd_per_s / self._problem.most_gbps
        return cost

    def program(self, objective: Floats) -> LinearProgram:
        problem, regions, options = self._problem, self._problem.region_count, len(self.instances)
        equal, each = _Rows(), np.arange(options)
        one = np.ones(problem.edge_count)
        ends = np.zeros(regions)
        ends[problem.src], ends[problem.dst] = 1.0, -1.0
        equal.add(ends, (problem.tail, self.shares, one), (problem.head, self.shares, -one))
        for digits, sums in ((self.digits, self.instances), (self.products, self.transfer)):
            parts = (self._option, digits, self._weight), (each, sums, -np.ones(options))
            equal.add(np.zeros(options), *parts)
        upper = np.full(self.count, np.inf)
        upper[self.shares] = upper[self.digits] = upper[self.chosen] = upper[self.relaying] = 1.0
        upper[self.instances], upper[self.time] = problem.quota, self._longest
        lower = np.zeros(self.count)
        lower[self.time] = 1.0
        below, most = self._below.matrix(self.count)
        return LinearProgram(objective, below, most, *equal.matrix(self.count), lower, upper)

    def _price(self) -> Floats:
        """(C,) USD per Gbit of (4a)."""
        cost = np.zeros(self.count)
        cost[self.shares] = self._problem.usd_per_gbit
        cost[self.transfer] = self._problem.usd_per_s / self._problem.most_gbps
        return cost

    def _limits(self) -> None:
        """(4f) to (4i): what the shares need of W."""
        problem = self._problem
        connections = 1.0 / problem.gbps_per_connection
        for ends, need, limit in (
            (problem.head, np.ones(problem.edge_count), problem.ingress_gbps),
            (problem.tail, np.ones(problem.edge_count), problem.egress_gbps),
            (problem.tail, connections, problem.connection_limit),
            (problem.head, connections, problem.connection_limit),
        ):
            carried = problem.option_region, self.transfer, -limit / problem.most_gbps
            zero = np.zeros(problem.region_count)
            self._below.add(zero, (ends, self.shares, need), carried)

    def _products_of_digits(self) -> None:
        """P = digit * T, where 1 <= T <= longest."""
        row, longest = np.arange(len(self.digits)), self._longest
        one, time = np.ones(len(row)), np.full(len(row), self.time)
        digit, product = (row, self.digits), (row, self.products)
        self._below.add(0.0 * one, (*product, one), (*digit, -longest * one))
        self._below.add(0.0 * one, (*product, -one), (*digit, one))
        self._below.add(-one, (*product, one), (row, time, -one), (*digit, -one))
        self._below.add(longest * one, (*product, -one), (row, time, one), (*digit, longest * one))

    def _minimum_billing(self) -> None:
        """The minimum of an instance, where the shortest transfer is below it."""
        tags = [self._problem.tags[region] for region in self._problem.option_region]
        minimum = np.array(
            [instance_billing.BILLING[instance_billing.cloud_of(tag)].minimum_s for tag in tags]
        )
        minimum = np.maximum(minimum, self._bill.wait_s + self._bill.least_s)
        short = np.flatnonzero(minimum > self._bill.wait_s + self._unit_s)
        if len(short):
            row, one = np.arange(len(short)), np.ones(len(short))
            least = (minimum[short] - self._bill.wait_s) / self._unit_s
            self._below.add(
                0.0 * one,
                (row, self.instances[short], least),
                (row, self.transfer[short], -one),
                (row, self.extra[short], -one),
            )

    def _choices(self) -> None:
        """One type in a region, and the job's limit on relays."""
        problem = self._problem
        several = np.flatnonzero(problem.is_choice)
        if len(several):
            row, one = np.arange(len(several)), np.ones(len(several))
            switch = row, self.chosen[several], -problem.quota[several]
            self._below.add(0.0 * one, (row, self.instances[several], one), switch)
            regions, row = np.unique(problem.option_region[several], return_inverse=True)
            self._below.add(np.ones(len(regions)), (row, self.chosen[several], one))
        if problem.max_relays is not None:
            relays = np.flatnonzero(problem.relays)
            every = np.arange(problem.region_count)
            share = problem.option_region, self.instances, 1.0 / problem.quota
            relaying = every, self.relaying, -np.ones(len(every))
            self._below.add(np.zeros(len(every)), share, relaying)
            relayed = np.isin(problem.head, relays)
            shares = problem.head[relayed], self.shares[relayed], np.ones(int(relayed.sum()))
            self._below.add(np.zeros(len(every)), shares, relaying)
            most = np.array([float(problem.max_relays)])
            self._below.add(most, (0 * relays, self.relaying[relays], np.ones(len(relays))))

    def _ceilings(self) -> None:
        """The most for the total, and for (4a)."""
        every = np.arange(self.count)
        row = np.zeros(self.count, dtype=np.int64)
        for cost, most in (
            (self.total_cost(), self._bill.max_usd_per_gbit),
            (self._price(), self._bill.max_price),
        ):
            if np.isfinite(most):
                self._below.add(np.array([1.0 + _SLACK]), (row, every, cost / most))


class _Rows:
    """Rows of one kind, as they are added: each entry is (row of the block, column, value)."""

    def __init__(self) -> None:
        self._entries: list[tuple[Ints, Ints, Floats]] = []
        self._bounds: list[Floats] = []

    def add(self, bounds: Floats, *entries: tuple[Ints, Ints, Floats]) -> None:
        start = sum(map(len, self._bounds))
        self._entries.extend((row + start, column, value) for row, column, value in entries)
        self._bounds.append(bounds)

    def matrix(self, columns: int) -> tuple[sparse.csc_array, Floats]:
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        bounds = np.concatenate(self._bounds)
        matrix = sparse.csc_array((value, (row, column)), shape=(len(bounds), columns))
        matrix.eliminate_zeros()
        return matrix, bounds
