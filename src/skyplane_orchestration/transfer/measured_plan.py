"""Plans a job again on instances that run, with the rates that were measured between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids.promised import promised_shares
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.job import (
    Deadline,
    MaximizeThroughput,
    Objective,
    Policy,
    TransferJob,
    objective_from_dict,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.transfer.planning import in_place_of, limits_of

if TYPE_CHECKING:
    from skyplane_orchestration.grids import Grid

#: Standard deviation of a probed rate, as a share of it: an estimate, not measured.
_NOISE: Final = 0.05
#: The share of a normal distribution that is above one standard deviation below its mean.
_WITHIN_ONE: Final = 0.84
_RUNNING: Final = "the instances that run"
#: A ceiling above every price.
_ANY_USD_PER_GB: Final = 1000.0


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What a probe takes: of the time, and of the money that a job may cost.

    In mid-transfer, all that the job has taken so far, and the GB that it has moved with it.
    """

    seconds: float = 0.0
    usd: float = 0.0
    gb: float = 0.0


def plan_measured(
    grid: Grid,
    job: TransferJob,
    plan: TransferPlan,
    measured: Sequence[EdgeMeasurement],
    spent: ProbeCost,
    provision_s: Mapping[str, float],
) -> TransferPlan:
    """The best plan for the objective of a plan, on its instances, with the measured rates.

    Ceilings and deadlines hold together with what the probe took. The fastest plan takes the place
    of one for a floor or a deadline that these instances cannot meet.

    Raises PlanInfeasible: no plan on these instances stays below the ceilings.
    """
    objective = objective_from_dict(plan.objective)
    on_running = _on_running(_with_rates(grid, measured), plan, provision_s)
    most_usd = job.policy.max_job_usd
    if most_usd is not None:
        most_usd = _positive(most_usd - spent.usd, "cost")
    # Without any, every region may relay.
    policy = replace(
        job.policy, allow_regions=plan.relays or job.policy.allow_regions, max_job_usd=most_usd
    )
    rest = _rest_of(objective, plan, spent)
    try:
        found = _planned(on_running, job, plan, rest, policy)
    except PlanInfeasible:
        if not measured or isinstance(objective, MaximizeThroughput):
            raise
        rest = MaximizeThroughput(max_usd_per_gb=_ANY_USD_PER_GB)
        found = _planned(on_running, job, plan, rest, policy)
    for tag, group in found.instances.items():
        runs = plan.instances.get(tag)
        if runs is None or runs.type != group.type or runs.count < group.count:
            raise PlanInfeasible(f"the best plan needs {group.count} {group.type} in {tag}")
    return replace(
        in_place_of(plan, found, job),
        objective=plan.objective,
        replaces=plan.replaces or plan.shape,
    )


def _planned(
    grid: Grid, job: TransferJob, plan: TransferPlan, objective: Objective, policy: Policy
) -> TransferPlan:
    from skyplane_orchestration import planner

    limits = limits_of(job)
    if not plan.relays:
        limits = replace(limits, max_relays=0)
    return planner.plan(
        grid,
        plan.src,
        plan.dst,
        objective,
        volume_gb=plan.volume_gb,
        objects=plan.objects,
        limits=limits,
        policy=policy,
    )


def _rest_of(objective: Objective, plan: TransferPlan, spent: ProbeCost) -> Objective:
    """The objective for what is left of it. Raises PlanInfeasible if nothing is."""
    volume_gb = plan.volume_gb or 0.0
    if isinstance(objective, Deadline):
        left_s = objective.seconds - spent.seconds
        return Deadline(_positive(left_s, "deadline"))
    if isinstance(objective, MaximizeThroughput):
        if objective.max_cost_usd is not None:
            left_usd = objective.max_cost_usd - spent.usd
            return MaximizeThroughput(max_cost_usd=_positive(left_usd, "cost"))
        left_usd = objective.max_usd_per_gb or 0.0
        if volume_gb:
            left_usd += (spent.gb * left_usd - spent.usd) / volume_gb
        return MaximizeThroughput(max_usd_per_gb=_positive(left_usd, "price"))
    return objective


def _positive(left: float, what: str) -> float:
    if left <= 0:
        raise PlanInfeasible(f"nothing is left of the {what} that the job allows")
    return left


def _with_rates(grid: Grid, measured: Sequence[EdgeMeasurement]) -> Grid:
    """The grid with measured rates, each drawn to its modelled rate by the noise's share of both
    errors. What is far from the model, as seldom by noise, counts nearly alone."""
    rates, is_measured = grid.throughput_gbps.copy(), grid.measured.copy()
    model_error = 1 - promised_shares(grid, _WITHIN_ONE)
    for one in measured:
        edge = grid.index_of(one.src), grid.index_of(one.dst)
        gbps, modelled = one.gbps / one.instances, float(rates[edge])
        if gbps and modelled and model_error[edge] and not is_measured[edge]:
            off = max(_NOISE**2 + model_error[edge] ** 2, (gbps / modelled - 1) ** 2)
            gbps += (modelled - gbps) * _NOISE**2 / off
        rates[edge], is_measured[edge] = gbps, True
    known = grid.with_edges(throughput_gbps=rates, measured=is_measured)
    return replace(known, measured_noise=_NOISE if measured else 0.0)


def _on_running(grid: Grid, plan: TransferPlan, provision_s: Mapping[str, float]) -> Grid:
    """The grid of an account that may run the instances of the plan, and no others."""
    clouds = {tag.partition(":")[0] for tag in plan.instances}
    run = {(tag.partition(":")[0], group.type) for tag, group in plan.instances.items()}
    types = tuple(
        one for one in grid.types if one.cloud not in clouds or (one.cloud, one.name) in run
    )
    quotas = [
        RegionQuota(tag, _RUNNING, instances=group.count) for tag, group in plan.instances.items()
    ]
    quotas += [
        RegionQuota(tag, _RUNNING, vcpus=0, series=name)
        for tag, group in plan.instances.items()
        for cloud, name in run
        if tag.startswith(f"{cloud}:") and not group.type.startswith(name)
    ]
    account = grid.with_account(quotas)
    return replace(account, types=types, provision_s=provision_s, contents=plan.contents)
