"""From a job's objective to a `TransferPlan`: the planner's one entry."""

from __future__ import annotations

import logging
import time

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    Objective,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.build_plan import Request, assemble
from skyplane_orchestration.planner.single_region import best_in_one_place, crosses_no_edge

logger = logging.getLogger(__name__)

#: Seconds from its start in which a search goes on to prove that nothing is better: a plan is
#: then there in a quarter of a second, though the solver looks at its clock only now and then.
PROOF_S = 0.15


def plan(
    grid: Grid,
    src: str,
    dst: str,
    objective: Objective,
    *,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    proof_s: float = PROOF_S,
) -> TransferPlan:
    """The best plan for one objective between two region tags.

    `MinimizeCost` is the cheapest plan at any rate of at least the floor: per GB (4a), or in
    all for the job when the volume is given; `exactly` is 4a at the floor itself. `Deadline`
    is the cheapest in all that is done in time, gateways coming up included.
    `MaximizeThroughput` is the fastest plan under a ceiling per GB (4a) or in all, then the
    cheapest of these. Ties go to fewer relays. Every plan is checked against (4b) to (4j)
    before it is returned, and none exceeds its ceiling, its deadline or the policy's
    `max_job_usd`.

    Args:
        volume_gb: GB (1e9 bytes) to move; needed for whatever counts USD or seconds of the job.
        objects: number of objects, for the price of requests.
        limits: what a transfer may use; the grid's own limits where it does not say.
        policy: regions that may relay (the ends need no leave), and the most a job may cost.
        proof_s: seconds of each search for proving that nothing is better, and for what is
            found to be better on the way; 0 takes what there is and reports the gap. What
            counts USD of the job takes several searches.

    Raises UnknownRegion, PlanInfeasible (what binds, and what would do), ConfigurationInvalid
    (something that needs a volume), SolverFailed.
    """
    require_volume(objective, policy, volume_gb)
    request = Request(src, dst, objective_to_dict(objective), volume_gb, objects, limits.chunk_mib)
    if crosses_no_edge(grid, src, dst):
        return _within_one_place(grid, request, objective, limits, policy)
    # Loads the solver.
    from skyplane_orchestration.planner.overlay import plan_over_edges

    made = plan_over_edges(grid, request, objective, limits, policy, proof_s)
    _log(made)
    return made


def require_volume(objective: Objective, policy: Policy, volume_gb: float | None) -> None:
    """Raises ConfigurationInvalid where USD or seconds of a job count whose size is unknown."""
    what = None
    if isinstance(objective, Deadline):
        what = "a deadline"
    elif isinstance(objective, MaximizeThroughput) and objective.max_cost_usd is not None:
        what = "a ceiling in USD"
    elif policy.max_job_usd is not None:
        what = "policy max_job_usd"
    if what and not volume_gb:
        raise ConfigurationInvalid(f"{what} needs a volume: give volume_gb, or list the source")


def _log(made: TransferPlan) -> None:
    logger.info(
        "planned %s -> %s: %.3f Gbit/s, %.5f USD per GB, %d relays, gap %.2g, %.3f s",
        made.src,
        made.dst,
        made.throughput_gbps,
        made.cost.usd_per_gb,
        len(made.relays),
        made.solver.gap,
        made.solver.solve_s,
    )


def _within_one_place(
    grid: Grid,
    request: Request,
    objective: Objective,
    limits: Limits,
    policy: Policy,
) -> TransferPlan:
    started = time.perf_counter()
    place, overlay = best_in_one_place(grid, request, objective, limits, policy.max_job_usd)
    cost = place.cost(overlay)
    bound = cost.usd_per_gb if cost.total_usd is None else cost.total_usd
    if isinstance(objective, MaximizeThroughput):
        bound = overlay.throughput_gbps
    return assemble(
        grid,
        request,
        overlay,
        {place.here: place.kind},
        binding=place.binding(overlay),
        solver=SolverReport("optimal", 0.0, bound, time.perf_counter() - started),
        egress_usd_per_gb=place.egress_usd_per_gb,
    )
