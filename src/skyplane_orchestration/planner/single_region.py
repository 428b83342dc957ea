"""Plans without an edge: within one region, or from or to a file on this machine.

The gateways of one region both read and write, so the plan only chooses their type and number.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from typing import Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.gateway_speed import SINK, SOURCE
from skyplane_orchestration.model.job import Deadline, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.planner import infeasibility
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.candidate import Candidate, priced
from skyplane_orchestration.planner.constraint_names import OBJECTS, PROCESSOR
from skyplane_orchestration.planner.instance_options import quota_of, types_by_cloud
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.value_of_time import ROOM, counts_time

#: Relative difference of rates that counts as none.
_ROUNDING: Final = 1e-9


def is_single_region(grid: Grid, src: str, dst: str) -> bool:
    """Whether a plan between these tags has no edge."""
    return src == dst or is_off_grid(grid, src) or is_off_grid(grid, dst)


def is_off_grid(grid: Grid, tag: str) -> bool:
    """True for a `local:` tag that the grid does not list: this machine."""
    return tag not in grid.index and parse_region_tag(tag).is_local


def best_in_single_region(
    request: PlanRequest, objective: Objective, max_job_usd: float | None
) -> tuple[SingleRegion, Overlay]:
    """The best plan over the instance types that the region may use.

    Raises PlanInfeasible, and UnknownRegion for a tag that is neither on the grid nor local.
    """
    grid = request.grid
    for tag in {request.src, request.dst}:
        if not is_off_grid(grid, tag):
            grid.index_of(tag)
    cloud = instance_billing.cloud_of(_gateway_tag(request))
    best: tuple[tuple[float, float], SingleRegion, Overlay] | None = None
    refused: list[PlanInfeasible] = []
    for kind in types_by_cloud(grid, [cloud], request.limits.instance_types)[cloud]:
        here, asked = grid.priced(_gateway_tag(request), kind), objective
        region = SingleRegion(request, here, objective)
        if isinstance(objective, MinimizeCost) and objective.floor_gbps > region.most_gbps:
            # At the floor, the objects take the time already.
            asked = replace(objective, value_of_time_usd_per_hour=0.0)
            region = SingleRegion(request, here, asked)
        try:
            overlay = region.best(asked, max_job_usd)
        except PlanInfeasible as error:
            refused.append(error)
            continue
        time_usd_per_s = objective.time_usd_per_s if isinstance(objective, MinimizeCost) else 0.0
        price = region.priced(overlay).usd_with_time(time_usd_per_s)
        if isinstance(objective, MaximizeThroughput):
            rank = (-overlay.throughput_gbps, price)
        else:
            rank = (price, overlay.instances[region.tag])
        if best is None or rank < best[0]:
            best = rank, region, overlay
    if best is None:
        raise min(refused, key=_distance_to_feasible)
    return best[1], best[2]


def _gateway_tag(request: PlanRequest) -> str:
    """The region of the gateways: this machine when one end is a file on it."""
    return request.dst if is_off_grid(request.grid, request.dst) else request.src


class SingleRegion:
    """Rates and costs of gateways of one type in one region; no edge joins the request's ends.

    Objectives in time keep to the rates at which the job's objects move.
    """

    def __init__(self, request: PlanRequest, kind: InstanceType, objective: Objective) -> None:
        grid, src, dst = request.grid, request.src, request.dst
        self.tag = _gateway_tag(request)
        self.kind = kind = kind.carrying(SOURCE, SINK)
        self.egress_usd_per_gb = 0.0 if src == dst else grid.egress_price(src, dst)
        self._request = request
        self._instance_gbps = min(kind.egress_gbps, kind.ingress_gbps)
        self._quota = quota_of(grid, self.tag, kind, request.limits)
        self._store_gbps = min(request.store_gbps.values(), default=math.inf)
        self._objects_gbps = math.inf
        work = request.object_work
        if work is not None and counts_time(objective):
            volume_gbit = request.volume_gbit / work.share
            with_one_s = max(work.seconds_with_one(end, kind) for end in {src, dst})
            if with_one_s:
                self._instance_gbps = min(self._instance_gbps, volume_gbit / with_one_s)
            self._objects_gbps = volume_gbit / work.least.seconds

    @property
    def most_gbps(self) -> float:
        return min(self._quota.instances * self._instance_gbps, self._ends_gbps)

    @property
    def _ends_gbps(self) -> float:
        """The most of the stores, in bytes or in requests."""
        return min(self._store_gbps, self._objects_gbps)

    def best(self, objective: Objective, max_job_usd: float | None) -> Overlay:
        """The fewest instances that meet the objective, or the most that a ceiling allows.

        Raises PlanInfeasible.
        """
        if isinstance(objective, MaximizeThroughput):
            return self._fastest(objective, max_job_usd)
        floor = self._floor_gbps(objective)
        if floor > self.most_gbps * (1 + _ROUNDING):
            raise self._floor_infeasible(objective, floor)
        count = self._instances_for(floor)
        is_exact = isinstance(objective, MinimizeCost) and objective.exactly
        if isinstance(objective, MinimizeCost) and not is_exact:
            count = self._least_with_time(objective.time_usd_per_s, count, max_job_usd)
        found = self.overlay(count, floor if is_exact else None)
        total = self.priced(found).cost.total_usd
        if max_job_usd is not None and total is not None and total > max_job_usd:
            raise infeasibility.total_ceiling_infeasible(
                self._request.route, max_job_usd, total, is_policy=True
            )
        return found

    def overlay(self, count: int, gbps: float | None = None) -> Overlay:
        """This many instances at full rate, or at a given rate."""
        rate = min(count * self._instance_gbps, self._ends_gbps) if gbps is None else gbps
        return Overlay(rate, {(self.tag,): rate}, {}, {}, {self.tag: count}, {self.tag: self.kind})

    def priced(self, overlay: Overlay) -> Candidate:
        return priced(self._request, overlay, egress_usd_per_gb=self.egress_usd_per_gb)

    def binding(self, overlay: Overlay) -> tuple[str, ...]:
        """The limits that prevent more throughput: the objects, a store at an end, the quota."""
        if overlay.throughput_gbps >= self._objects_gbps * (1 - _ROUNDING):
            return (OBJECTS,)
        if overlay.throughput_gbps >= self._store_gbps * (1 - _ROUNDING):
            return infeasibility.binding_stores(self._request, self._store_gbps)
        if overlay.instances[self.tag] < self._quota.instances:
            return ()
        is_busy = self._instance_gbps >= self.kind.processor_gbps(SOURCE, SINK)
        names = (self._quota.name, PROCESSOR) if is_busy else (self._quota.name,)
        return tuple(f"{name} {self.tag}" for name in names)

    def _least_with_time(self, time_usd_per_s: float, least: int, max_job_usd: float | None) -> int:
        """The fewest instances from `least` up with about the least sum of bill and time.

        Gateways on this machine share its processors: more of them save no time.
        """
        if not time_usd_per_s or is_off_grid(self._request.grid, self.tag):
            return least
        counts = range(least, min(self._quota.instances, self._instances_for(self.most_gbps)) + 1)
        every = {count: self.priced(self.overlay(count)) for count in counts}
        sums = {
            count: one.usd_with_time(time_usd_per_s)
            for count, one in every.items()
            if max_job_usd is None or (one.cost.total_usd or 0.0) <= max_job_usd
        }
        if not sums:
            return least
        best = every[min(sums, key=lambda count: sums[count])]
        most = min(sums.values()) + ROOM * best.decided_usd(time_usd_per_s)
        return min(count for count, usd in sums.items() if usd <= most)

    def _instances_for(self, gbps: float) -> int:
        return max(1, math.ceil(gbps / self._instance_gbps - _ROUNDING))

    @property
    def _wait_s(self) -> float:
        return self._request.wait_s((self.tag,))

    def _floor_gbps(self, objective: MinimizeCost | Deadline) -> float:
        if isinstance(objective, MinimizeCost):
            return objective.floor_gbps
        left_s = objective.seconds - self._wait_s
        if left_s <= 0:
            return math.inf
        return self._request.volume_gbit / (self._request.share * left_s)

    def _floor_infeasible(self, objective: Objective, floor_gbps: float) -> PlanInfeasible:
        most = infeasibility.rounded_down(self.most_gbps)
        if self._objects_gbps <= self.most_gbps:
            names: tuple[str, ...] = (OBJECTS,)
        elif self._store_gbps <= self.most_gbps:
            names = infeasibility.binding_stores(self._request, self._store_gbps)
        else:
            names = (f"{self._quota.name} {self.tag}",)
        if isinstance(objective, Deadline):
            least_s = self._wait_s
            if most > 0:
                least_s += self._request.transfer_s(most)
            return infeasibility.deadline_infeasible(
                self._request, objective.seconds, least_s, names
            )
        if self._quota.owner and not self._quota.instances:
            return infeasibility.no_instance(self.tag, self._quota)
        return PlanInfeasible(
            f"{self._quota.instances} instances of {self.kind.name} in {self.tag} move {most:g}"
            f" Gbit/s, not {floor_gbps:g}"
            f"{self._quota.owner and f' (the limit is that of {self._quota.owner})'}."
            f" {infeasibility.advice(names, self._request)}",
            binding=names,
            most_gbps=most,
        )

    def _fastest(self, objective: MaximizeThroughput, max_job_usd: float | None) -> Overlay:
        if self.most_gbps <= 0:
            raise self._floor_infeasible(MinimizeCost(1.0), 1.0)
        per_gb = math.inf if objective.max_usd_per_gb is None else objective.max_usd_per_gb
        usd = min(
            (most for most in (objective.max_cost_usd, max_job_usd) if most), default=math.inf
        )
        route = self._request.route

        def refusal(count: int) -> PlanInfeasible | None:
            cost = self.priced(self.overlay(count)).cost
            total = cost.total_usd or 0.0
            if cost.usd_per_gb > per_gb:
                return infeasibility.price_ceiling_infeasible(route, per_gb, cost.usd_per_gb)
            if total > usd:
                is_policy = usd == max_job_usd
                return infeasibility.total_ceiling_infeasible(
                    route, usd, total, is_policy=is_policy
                )
            return None

        refused = refusal(1)
        if refused is not None:
            raise refused
        # No number of instances is affordable after the first that is not.
        more = range(2, min(self._quota.instances, self._instances_for(self.most_gbps)) + 1)
        return self.overlay(
            1 + bisect_left(more, True, key=lambda count: refusal(count) is not None)
        )


def _distance_to_feasible(error: PlanInfeasible) -> tuple[int, float]:
    """Orders errors of one objective: first those that name a price, then by distance."""
    least = (error.least_usd, error.least_usd_per_gb, error.least_s)
    named = [value for value in least if value is not None]
    return (0, named[0]) if named else (1, -(error.most_gbps or 0.0))
