"""Plans again when a cloud has no room for the instances of a plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from skyplane_orchestration.errors import LaunchRefused, QuotaExceeded, SkyplaneError
from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.model.plan import RefusedLaunch, TransferPlan

log = logging.getLogger(__name__)

#: The plan in place of one that a cloud has refused. Raises PlanInfeasible.
PlanAgain = Callable[[TransferPlan, RefusedLaunch], TransferPlan]

#: A refused fleet costs a boot and the least that clouds bill. Each refusal takes a type or a
#: region away, so a job that needs more plans has too few quotas on the whole.
MOST_PLANS_AGAIN: Final = 3


def ensure_some_plan(
    plan: TransferPlan,
    ensure: Callable[[TransferPlan], Fleet],
    is_gone: Callable[[], bool],
    plan_again: PlanAgain,
) -> Fleet:
    """The fleet of the plan, or of another plan if a cloud refuses its instances.

    Args:
        ensure: brings up the fleet of a plan, or undoes it.
        is_gone: whether the fleet has no instance; others may carry a transfer of the old plan.

    Raises as `ensure`: LaunchRefused also says why no other plan takes the place of the last one.
    """
    ended: list[FleetInstance] = []
    count = 0
    while True:
        count += 1
        try:
            fleet = ensure(plan)
            # With the bill of refused ones.
            return replace(fleet, instances=(*fleet.instances, *ended))
        except LaunchRefused as error:
            if count > MOST_PLANS_AGAIN:
                raise error.adding(f"{MOST_PLANS_AGAIN} plans before were refused too") from error
            following = _next_plan(plan, error, count, is_gone, plan_again)
            ended += _bill(plan, error)
            plan = replace(following, replaces=plan.replaces or plan.shape)


def _bill(plan: TransferPlan, error: LaunchRefused) -> Iterator[FleetInstance]:
    """The instances of a refused fleet, with their prices: the next plan may not have them."""
    for one in error.ended:
        if isinstance(one, FleetInstance):
            yield replace(one, usd_per_hour=plan.instances[one.region].usd_per_hour)


def _next_plan(
    plan: TransferPlan,
    error: LaunchRefused,
    count: int,
    is_gone: Callable[[], bool],
    plan_again: PlanAgain,
) -> TransferPlan:
    """The plan to try next. Raises `error`, with the reason, if there is none."""
    if not error.region:
        raise error
    refused = RefusedLaunch(
        region=error.region,
        instance_type=error.instance_type,
        instances=error.launched,
        is_quota=isinstance(error, QuotaExceeded),
        quota=error.quota,
        series=error.series,
    )
    try:
        if not is_gone():
            raise error.adding(
                "instances of this fleet run and may carry a transfer, so its plan stays"
            ) from error
        found = plan_again(plan, refused)
    except LaunchRefused:
        raise
    except SkyplaneError as why:
        raise error.adding(f"no other plan takes its place: {why}") from why
    log.warning(
        "%s; planned again (%d of %d), from %s to %s",
        error,
        count,
        MOST_PLANS_AGAIN,
        plan.in_words,
        found.in_words,
    )
    return found
