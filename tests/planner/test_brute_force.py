"""The optimum itself, counted out: every N, every type and every M of small networks.

On three regions no solver takes part: with N, types and M fixed, both paths have a capacity
and a price, and what is best of two paths can be written down. On four regions N and types
are enumerated, and M is left to a small program of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan, violations

S, T, A, B = "aws:s", "gcp:t", "azure:a", "aws:b"
CLOUDS = ("aws", "gcp", "azure")
Edges = dict[tuple[str, str], tuple[float, float]]


@dataclass(frozen=True)
class World:
    """A random small network, and what a job may use of it."""

    grid: Grid
    limits: Limits

    def choices(self, tag: str, *, is_end: bool) -> list[tuple[InstanceType, int]]:
        """Every type and number of instances that the quotas allow; none at all for a relay."""
        cloud = tag.partition(":")[0]
        kinds = [kind for kind in self.grid.types if kind.cloud == cloud]
        most = self.limits.vcpu_quota.get(cloud, 10**6)
        every = [
            (kind, count)
            for kind in kinds
            for count in range(1, kind.instance_limit + 1)
            if count * kind.vcpus <= most
        ]
        return every if is_end else [(kinds[0], 0), *every]

    def per_connection(self, tail: str, head: str) -> float:
        rate = self.grid.throughput_gbps[self.grid.index[tail], self.grid.index[head]]
        return float(rate) * (1 - self.limits.safety_margin) / 64

    def usd_per_gbit(self, tail: str, head: str) -> float:
        return float(self.grid.usd_per_gb[self.grid.index[tail], self.grid.index[head]]) / 8

    @property
    def store_gbps(self) -> float:
        read, write = self.limits.source_read_gbps, self.limits.destination_write_gbps
        return min(read or math.inf, write or math.inf)


def world(grid_of: Callable[..., Grid], seed: int, tags: tuple[str, ...]) -> World:
    chooser = np.random.default_rng(seed)
    edges: Edges = {
        (tail, head): (float(chooser.uniform(10, 90)), round(float(chooser.uniform(0, 0.2)), 3))
        for tail, head in product(tags, tags)
        if tail != head and chooser.random() > 0.1
    }
    types = [
        InstanceType(
            cloud,
            f"{cloud}-{number}",
            vcpus=int(chooser.choice([2, 4, 8])),
            egress_gbps=float(chooser.integers(2, 9)) * (1 + number),
            ingress_gbps=float(chooser.integers(2, 9)) * (1 + number),
            connection_limit=int(chooser.integers(2, 5)) * (1 + number),
            usd_per_hour=float(chooser.choice([0.0, 3.0, 30.0])) * (1 + number),
            instance_limit=int(chooser.integers(1, 3)),
        )
        for cloud in CLOUDS
        for number in range(int(chooser.integers(1, 3)))
    ]
    limits = Limits(
        vcpu_quota={"aws": int(chooser.choice([8, 16]))} if chooser.random() < 0.5 else {},
        safety_margin=float(chooser.choice([0.0, 0.25])),
        source_read_gbps=6.0 if chooser.random() < 0.2 else None,
    )
    return World(grid_of(edges, types), limits)


def made(found: World, objective: Objective) -> TransferPlan | None:
    try:
        answer = plan(found.grid, S, T, objective, limits=found.limits, proof_s=20.0)
    except PlanInfeasible:
        return None
    assert violations(answer, found.grid, found.limits) == []
    return answer


# ---------------------------------------------------------------- two paths, in closed form


@dataclass(frozen=True)
class TwoPaths:
    """Arrays over every choice of N, types and M: what the paths carry and cost.

    Attributes:
        first: Gbit/s of the cheaper path.
        most: Gbit/s of both together.
        usd_first, usd_second: per Gbit.
        usd_per_s: of the instances.
    """

    first: np.ndarray
    most: np.ndarray
    usd_first: float
    usd_second: float
    usd_per_s: np.ndarray

    def usd_at(self, rate: np.ndarray | float) -> np.ndarray:
        """USD per second at a rate; infinite where it does not fit."""
        cheap = np.minimum(self.first, rate)
        usd: np.ndarray = cheap * self.usd_first + (rate - cheap) * self.usd_second + self.usd_per_s
        return np.where(rate <= self.most + 1e-9, usd, np.inf)

    def cheapest_at(self, rate: float) -> float:
        """USD per Gbit at exactly this rate."""
        return float(self.usd_at(rate).min()) / rate

    def cheapest_from(self, rate: float) -> float:
        """USD per Gbit at any rate from this one up: monotone on each path's part."""
        every = [np.full_like(self.most, rate), self.most, np.clip(self.first, rate, None)]
        fits = [np.where((one >= rate) & (one <= self.most + 1e-9), one, np.nan) for one in every]
        prices = [np.divide(self.usd_at(one), one) for one in fits]
        return float(np.nanmin([*(np.nanmin(one, initial=np.inf) for one in prices)]))

    def most_under(self, usd_per_gbit: float) -> float:
        """Gbit/s under a price: the upper end of where usd_at(T) <= price x T."""
        knee = np.minimum(self.first, self.most)
        at_knee = self.usd_at(knee) - usd_per_gbit * knee
        at_most = self.usd_at(self.most) - usd_per_gbit * self.most
        steeper = max(self.usd_second - usd_per_gbit, 1e-300)
        between = knee - at_knee / steeper
        rate = np.where(at_most <= 1e-12, self.most, np.where(at_knee <= 1e-12, between, 0.0))
        return float(rate.max())


def two_paths(found: World) -> TwoPaths:
    """Every choice on the regions S, A, T; edges that are not there carry nothing."""
    ends = [found.choices(S, is_end=True), found.choices(T, is_end=True)]
    rows: list[tuple[float, ...]] = []
    direct, first_hop, second_hop = (found.per_connection(*hop) for hop in ((S, T), (S, A), (A, T)))
    for (s, n_s), (t, n_t), (a, n_a) in product(*ends, found.choices(A, is_end=False)):
        usd = sum(
            kind.usd_per_hour / 3600 * count for kind, count in ((s, n_s), (t, n_t), (a, n_a))
        )
        out, into = s.connection_limit * n_s, t.connection_limit * n_t
        through = a.connection_limit * n_a
        for m_direct in range(min(out, into) + 1):
            m_in = min(out - m_direct, through)  # more connections never carry less
            m_out = min(into - m_direct, through)
            relayed = min(
                m_in * first_hop, m_out * second_hop, n_a * a.ingress_gbps, n_a * a.egress_gbps
            )
            both = min(n_s * s.egress_gbps, n_t * t.ingress_gbps, found.store_gbps)
            rows.append((m_direct * direct, relayed, both, usd))
    straight, relayed, both, usd_per_s = np.array(rows).T
    usd_direct = found.usd_per_gbit(S, T)
    usd_relayed = found.usd_per_gbit(S, A) + found.usd_per_gbit(A, T)
    cheaper = straight if usd_direct <= usd_relayed else relayed
    return TwoPaths(
        first=np.minimum(cheaper, both),
        most=np.minimum(straight + relayed, both),
        usd_first=min(usd_direct, usd_relayed),
        usd_second=max(usd_direct, usd_relayed),
        usd_per_s=usd_per_s,
    )


@pytest.mark.parametrize("seed", range(40))
def test_three_regions(small_grid: Callable[..., Grid], seed: int) -> None:
    found = world(small_grid, seed, (S, T, A))
    paths = two_paths(found)
    most = float(paths.most.max())
    fastest = made(found, MaximizeThroughput(max_usd_per_gb=1e4))
    if most <= 0:
        assert fastest is None
        return
    assert fastest is not None
    assert fastest.throughput_gbps == pytest.approx(most, rel=1e-4)
    assert made(found, MinimizeCost(most * 1.001, exactly=True)) is None
    for share in (0.3, 0.6, 0.9, 0.999):
        goal = share * most
        exactly = made(found, MinimizeCost(goal, exactly=True))
        or_more = made(found, MinimizeCost(goal))
        assert exactly is not None
        assert or_more is not None
        assert exactly.cost.usd_per_gb / 8 == pytest.approx(paths.cheapest_at(goal), rel=2e-4)
        assert or_more.cost.usd_per_gb / 8 == pytest.approx(paths.cheapest_from(goal), rel=2e-4)
        assert exactly.solver.bound <= exactly.cost.usd_per_gb * (1 + 1e-9)
        assert exactly.solver.bound / 8 <= paths.cheapest_at(goal) * (1 + 1e-6)
        ceiling = or_more.cost.usd_per_gb * 1.05
        if ceiling > 0:
            under = made(found, MaximizeThroughput(max_usd_per_gb=ceiling))
            assert under is not None
            assert under.throughput_gbps == pytest.approx(paths.most_under(ceiling / 8), rel=1e-3)
            assert under.solver.bound >= under.throughput_gbps * (1 - 1e-9)


# ---------------------------------------------------------------- four regions


def numbers_and_types(found: World) -> Iterator[dict[str, tuple[InstanceType, int]]]:
    tags = (S, T, A, B)
    for chosen in product(*(found.choices(tag, is_end=tag in (S, T)) for tag in tags)):
        yield dict(zip(tags, chosen, strict=True))


def best_flow(
    found: World, chosen: dict[str, tuple[InstanceType, int]], goal: float | None, usd: float
) -> float | None:
    """With N and types fixed: least USD per second at a goal, else the most Gbit/s.

    Args:
        usd: the price per Gbit that the most Gbit/s must keep.
    """
    edges = [
        (tail, head)
        for tail, head in product(chosen, chosen)
        if tail != head and head != S and tail != T and found.per_connection(tail, head) > 0
    ]
    e = len(edges)
    rows: list[tuple[dict[int, float], float, float]] = []
    for k, (tail, head) in enumerate(edges):
        rows.append(({k: 1.0, e + k: -found.per_connection(tail, head)}, -np.inf, 0.0))
    for tag, (kind, count) in chosen.items():
        out = [k for k, edge in enumerate(edges) if edge[0] == tag]
        into = [k for k, edge in enumerate(edges) if edge[1] == tag]
        source = {S: -1.0, T: 1.0}.get(tag, 0.0)
        balance = {**dict.fromkeys(out, 1.0), **dict.fromkeys(into, -1.0), 2 * e: source}
        rows.append((balance, 0.0, 0.0))
        rows.append((dict.fromkeys(into, 1.0), -np.inf, count * kind.ingress_gbps))
        rows.append((dict.fromkeys(out, 1.0), -np.inf, count * kind.egress_gbps))
        for side in (out, into):
            columns = dict.fromkeys([e + k for k in side], 1.0)
            rows.append((columns, -np.inf, float(count * kind.connection_limit)))
    instances = sum(kind.usd_per_hour / 3600 * count for kind, count in chosen.values())
    price = np.array([*(found.usd_per_gbit(*edge) for edge in edges), *np.zeros(e + 1)])
    if goal is None:
        ceiling = {k: float(price[k]) for k in range(e)}
        rows.append(({**ceiling, 2 * e: -usd}, -np.inf, -instances))
    matrix = np.zeros((len(rows), 2 * e + 1))
    for number, (entries, _, _) in enumerate(rows):
        for column, value in entries.items():
            matrix[number, column] = value
    upper = np.full(2 * e + 1, np.inf)
    upper[-1] = found.store_gbps if goal is None else goal
    lower = np.zeros(2 * e + 1)
    lower[-1] = 0.0 if goal is None else goal
    if goal is not None and goal > found.store_gbps:
        return None
    cost = price * 1000 if goal is not None else np.array([*np.zeros(2 * e), -1.0])
    answer: Any = milp(
        cost,
        constraints=LinearConstraint(
            matrix, [low for _, low, _ in rows], [high for _, _, high in rows]
        ),
        bounds=Bounds(lower, upper),
        integrality=np.array([*np.zeros(e), *np.ones(e), 0]),
    )
    if answer.x is None:
        return None
    return float(answer.fun) / 1000 + instances if goal is not None else -float(answer.fun)


@pytest.mark.parametrize("seed", range(100, 104))
def test_four_regions(small_grid: Callable[..., Grid], seed: int) -> None:
    found = world(small_grid, seed, (S, T, A, B))
    fastest = made(found, MaximizeThroughput(max_usd_per_gb=1e4))
    assert fastest is not None
    goal = 0.7 * fastest.throughput_gbps
    every = list(numbers_and_types(found))
    costs = [best_flow(found, chosen, goal, 0.0) for chosen in every]
    least = min(cost for cost in costs if cost is not None) / goal
    cheapest = made(found, MinimizeCost(goal, exactly=True))
    assert cheapest is not None
    assert cheapest.cost.usd_per_gb / 8 == pytest.approx(least, rel=2e-4)
    price = least * 1.05
    rates = [best_flow(found, chosen, None, price) for chosen in every]
    under = made(found, MaximizeThroughput(max_usd_per_gb=price * 8))
    assert under is not None
    assert under.throughput_gbps == pytest.approx(
        max(rate for rate in rates if rate is not None), rel=1e-3
    )
