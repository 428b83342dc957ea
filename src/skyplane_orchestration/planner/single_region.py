"""Plans without an edge: inside one region, or from or to a file on this machine.

The gateways of one region both read and write, so all there is to choose is their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.model.plan import PlanCost
from skyplane_orchestration.planner import infeasibility
from skyplane_orchestration.planner.build_plan import Request, requests_usd
from skyplane_orchestration.planner.decode import Overlay
from skyplane_orchestration.planner.instance_options import (
    quota_of,
    read_limit_gbps,
    types_by_cloud,
    write_limit_gbps,
)
from skyplane_orchestration.planner.pricing import billing, costs
from skyplane_orchestration.units import gb_to_gbit

#: Relative difference of rates that counts as none.
_ROUNDING = 1e-9


def crosses_no_edge(grid: Grid, src: str, dst: str) -> bool:
    return src == dst or is_off_grid(grid, src) or is_off_grid(grid, dst)


def is_off_grid(grid: Grid, tag: str) -> bool:
    """True for a place without a cloud that the grid says nothing about: this machine."""
    return tag not in grid.index and parse_region_tag(tag).is_local


def place_of(grid: Grid, src: str, dst: str) -> str:
    """Where the gateways are: on this machine when a file is an end."""
    return dst if is_off_grid(grid, dst) else src


def best_in_one_place(
    grid: Grid,
    request: Request,
    objective: Objective,
    limits: Limits,
    max_job_usd: float | None,
) -> tuple[OnePlace, Overlay]:
    """The best over the instance types that may be used there.

    Raises UnknownRegion for a tag that is neither on the grid nor this machine, PlanInfeasible.
    """
    for tag in {request.src, request.dst}:
        if not is_off_grid(grid, tag):
            grid.index_of(tag)
    cloud = billing.cloud_of(place_of(grid, request.src, request.dst))
    best: tuple[tuple[float, float], OnePlace, Overlay] | None = None
    refused: list[PlanInfeasible] = []
    for kind in types_by_cloud(grid, [cloud], limits.instance_types)[cloud]:
        place = OnePlace(
            grid,
            request.src,
            request.dst,
            limits,
            request.volume_gb,
            requests_usd(grid, request),
            kind,
        )
        try:
            overlay = place.answer(objective, max_job_usd)
        except PlanInfeasible as error:
            refused.append(error)
            continue
        cost = place.cost(overlay)
        money = cost.usd_per_gb if cost.total_usd is None else cost.total_usd
        is_rate = isinstance(objective, MaximizeThroughput)
        rank = (
            (-overlay.throughput_gbps, money) if is_rate else (money, overlay.instances[place.here])
        )
        if best is None or rank < best[0]:
            best = rank, place, overlay
    if best is None:
        raise min(refused, key=_distance)
    return best[1], best[2]


class OnePlace:
    """What the gateways of one place can do, and what that costs.

    Args:
        src, dst: region tags that no edge joins.
        volume_gb, requests_usd: None where not known.
        kind: of its instances.
    """

    def __init__(
        self,
        grid: Grid,
        src: str,
        dst: str,
        limits: Limits,
        volume_gb: float | None,
        requests_usd: float | None,
        kind: InstanceType,
    ) -> None:
        self.ends = src, dst
        self.here = place_of(grid, src, dst)
        self.kind = kind
        self.egress_usd_per_gb = 0.0 if src == dst else grid.egress_price(src, dst)
        self._limits = limits
        self._volume_gb = volume_gb
        self._requests_usd = requests_usd
        self._each_gbps = min(self.kind.egress_gbps, self.kind.ingress_gbps)
        self.quota, self._limit = quota_of(grid, self.here, self.kind, limits)
        read = read_limit_gbps(grid, src, limits) or math.inf
        write = write_limit_gbps(grid, dst, limits) or math.inf
        self._stores_gbps = min(read, write)
        self._grid = grid

    @property
    def wait_s(self) -> float:
        return billing.provision_s((self.here,))

    @property
    def most_gbps(self) -> float:
        return min(self._limit * self._each_gbps, self._stores_gbps)

    def answer(self, objective: Objective, max_job_usd: float | None) -> Overlay:
        """The fewest instances that do what is asked, or the most that a ceiling allows.

        Raises PlanInfeasible.
        """
        if isinstance(objective, MaximizeThroughput):
            return self._fastest(objective, max_job_usd)
        floor = self._floor_gbps(objective)
        if floor > self.most_gbps * (1 + _ROUNDING):
            raise self._too_fast(objective, floor)
        count = self._instances_for(floor)
        is_exact = isinstance(objective, MinimizeCost) and objective.exactly
        found = self.overlay(count, floor if is_exact else None)
        total = self.cost(found).total_usd
        if max_job_usd is not None and total is not None and total > max_job_usd:
            raise infeasibility.too_dear(self.ends, max_job_usd, total, is_policy=True)
        return found

    def overlay(self, count: int, gbps: float | None = None) -> Overlay:
        """So many instances at full rate, or at a given one."""
        rate = min(count * self._each_gbps, self._stores_gbps) if gbps is None else gbps
        return Overlay(rate, {(self.here,): rate}, {}, {}, {self.here: count})

    def cost(self, overlay: Overlay) -> PlanCost:
        return costs.itemised(
            self.egress_usd_per_gb,
            overlay,
            {self.here: self.kind},
            self._volume_gb,
            self._requests_usd,
        )

    def binding(self, overlay: Overlay) -> tuple[str, ...]:
        """What stops more: a store at an end, or the number of instances."""
        names = []
        if overlay.throughput_gbps >= self._stores_gbps * (1 - _ROUNDING):
            names = self._slow_stores()
        elif overlay.instances[self.here] >= self._limit:
            names = [f"{self.quota} {self.here}"]
        return tuple(names)

    def _slow_stores(self) -> list[str]:
        return infeasibility.slow_stores(self._limits, self.ends, self._stores_gbps, self._grid)

    def _instances_for(self, gbps: float) -> int:
        return max(1, math.ceil(gbps / self._each_gbps - _ROUNDING))

    def _floor_gbps(self, objective: MinimizeCost | Deadline) -> float:
        if isinstance(objective, MinimizeCost):
            return objective.min_throughput_gbps
        left_s = objective.seconds - self.wait_s
        return math.inf if left_s <= 0 else gb_to_gbit(self._volume_gb or 0.0) / left_s

    def _too_fast(self, objective: Objective, floor_gbps: float) -> PlanInfeasible:
        most = infeasibility.rounded_down(self.most_gbps)
        if self._stores_gbps <= self.most_gbps:
            names = self._slow_stores()
        else:
            names = [f"{self.quota} {self.here}"]
        if isinstance(objective, Deadline):
            least_s = self.wait_s
            if most > 0:
                least_s += gb_to_gbit(self._volume_gb or 0.0) / most
            return infeasibility.too_late(self.ends, objective.seconds, least_s, tuple(names))
        return PlanInfeasible(
            f"{self._limit} instances of {self.kind.name} in {self.here} move {most:g} Gbit/s, not"
            f" {floor_gbps:g}; raise the instance limit or choose a larger type",
            binding=tuple(names),
            most_gbps=most,
        )

    def _fastest(self, objective: MaximizeThroughput, max_job_usd: float | None) -> Overlay:
        if self.most_gbps <= 0:
            raise self._too_fast(MinimizeCost(1.0), 1.0)
        per_gb = objective.max_usd_per_gb
        usd = min((most for most in (objective.max_cost_usd, max_job_usd) if most), default=None)
        alone = self.cost(self.overlay(1))
        if per_gb is not None and alone.usd_per_gb > per_gb:
            raise infeasibility.too_dear_per_gb(self.ends, per_gb, alone.usd_per_gb)
        if usd is not None and alone.total_usd is not None and alone.total_usd > usd:
            is_policy = usd == max_job_usd
            raise infeasibility.too_dear(self.ends, usd, alone.total_usd, is_policy=is_policy)

        def is_paid_for(count: int) -> bool:
            cost = self.cost(self.overlay(count))
            return (per_gb is None or cost.usd_per_gb <= per_gb) and (
                usd is None or cost.total_usd is None or cost.total_usd <= usd
            )

        return self.overlay(
            _last(min(self._limit, self._instances_for(self.most_gbps)), is_paid_for)
        )


def _distance(error: PlanInfeasible) -> tuple[int, float]:
    """Orders refusals of one objective: those of a price first, then the nearest to it."""
    least = (error.least_usd, error.least_usd_per_gb, error.least_s)
    named = [value for value in least if value is not None]
    return (0, named[0]) if named else (1, -(error.most_gbps or 0.0))


def _last(most: int, holds: Callable[[int], bool]) -> int:
    """The largest count up to `most` for which it holds; it holds for 1 and ends only once."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low
