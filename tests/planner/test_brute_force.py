"""The optimum itself, without a solver: every N, every type and every M of three regions.

With N, types and M fixed, both paths have a capacity and a price, and the best mixture of two
paths has a closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan, violations

S, T, A = "aws:s", "gcp:t", "azure:a"
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


def world(grid_of: Callable[..., Grid], seed: int) -> World:
    tags = (S, T, A)
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


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(20, 200))]
)
def test_three_regions(small_grid: Callable[..., Grid], seed: int) -> None:
    found = world(small_grid, seed)
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
