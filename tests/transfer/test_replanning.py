"""Another plan takes the place of one whose instances a cloud refuses, or the error stays."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from tests.transfer.samples import PLAN, A, B, R, fleet_of

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudUnavailable,
    LaunchRefused,
    PlanInfeasible,
    ProvisionFailed,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import InstanceGroup, RefusedLaunch, TransferPlan
from skyplane_orchestration.transfer.replanning import MOST_PLANS_AGAIN, ensure_some_plan


def refusal(kind: type[LaunchRefused] = QuotaExceeded, region: str = R) -> LaunchRefused:
    error = kind("AWS refuses", quota="L-1" if kind is QuotaExceeded else "")
    error.region, error.instance_type, error.launched = region, "big", 1
    return error


class Account:
    """Refuses the first fleets with these errors."""

    def __init__(self, *errors: SkyplaneError) -> None:
        self.errors = list(errors)
        self.plans: list[TransferPlan] = []
        self.refused: list[RefusedLaunch] = []
        self.is_gone = True
        self.no_plan: SkyplaneError | None = None

    def ensure(self, plan: TransferPlan) -> Fleet:
        self.plans.append(plan)
        if self.errors:
            raise self.errors.pop(0)
        return fleet_of("ab", plan=plan)

    def plan_again(self, plan: TransferPlan, refused: RefusedLaunch) -> TransferPlan:
        if self.no_plan is not None:
            raise self.no_plan
        self.refused.append(refused)
        return replace(plan, throughput_gbps=plan.throughput_gbps + 1)

    def fleet(self) -> Fleet:
        return ensure_some_plan(PLAN, self.ensure, lambda: self.is_gone, self.plan_again)


def test_a_refused_plan_is_replaced_and_one_line_says_how(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    account = Account(refusal(), refusal(CapacityUnavailable))
    assert account.fleet().plan.throughput_gbps == 3.0
    assert account.refused == [
        RefusedLaunch(R, "big", 1, is_quota=True, quota="L-1"),
        RefusedLaunch(R, "big", 1, is_quota=False),
    ]
    first, _ = caplog.messages
    assert first.startswith("AWS refuses; planned again (1 of 3), from 1.00 Gbit/s for 0.0000 USD")
    assert first.endswith(f"to 2.00 Gbit/s for 0.0000 USD per GB on {A} 1 process, {B} 1 process")


def test_the_number_of_plans_is_small() -> None:
    account = Account(*(refusal() for _ in range(9)))
    with pytest.raises(QuotaExceeded, match="AWS refuses; 3 plans before were refused too"):
        account.fleet()
    assert len(account.plans) == 1 + MOST_PLANS_AGAIN


@pytest.mark.parametrize("why", [PlanInfeasible("the most is 2 Gbit/s"), CloudUnavailable("down")])
def test_the_error_of_the_cloud_stays_if_there_is_no_other_plan(why: SkyplaneError) -> None:
    account = Account(refusal(CapacityUnavailable))
    account.no_plan = why
    with pytest.raises(CapacityUnavailable, match=f"AWS refuses; no other plan .*: {why}"):
        account.fleet()


def test_an_error_with_a_further_reason_keeps_the_bill_of_the_refused_fleet() -> None:
    error = refusal()
    error.launched, error.ended = 2, ("an instance",)
    more = error.adding("and more")
    assert (more.region, more.instance_type) == (error.region, error.instance_type)
    assert (more.launched, more.ended, more.quota) == (2, ("an instance",), "L-1")


def test_a_fleet_with_instances_of_others_keeps_its_plan() -> None:
    """They may carry a transfer."""
    account = Account(refusal())
    account.is_gone = False
    with pytest.raises(QuotaExceeded, match="may carry a transfer, so its plan stays"):
        account.fleet()
    assert account.refused == []


@pytest.mark.parametrize("error", [ProvisionFailed("no boot"), refusal(region="")])
def test_other_errors_change_no_plan(error: SkyplaneError) -> None:
    """Such as a quota of security groups."""
    account = Account(error)
    with pytest.raises(type(error)) as caught:
        account.fleet()
    assert caught.value is error
    assert len(account.plans) == 1


def test_warnings_say_what_to_ask_for() -> None:
    named = RefusedLaunch("gcp:x", "n2", 2, is_quota=True, quota="N2_CPUS").warning
    assert named == (
        "planned again, because gcp:x gave only 2 n2 instances: a quota is used up;"
        " ask gcp for more of: N2_CPUS"
    )
    unnamed = RefusedLaunch("gcp:x", "n2", 0, is_quota=True).warning
    assert unnamed.endswith(
        "gave no n2 instances: a quota is used up; ask gcp for more of: that quota"
    )
    nothing = RefusedLaunch("gcp:x", "n2", 0, is_quota=False).warning
    assert nothing.endswith("the region does not offer more of that type now")


def test_a_plan_with_refusals_survives_its_document() -> None:
    plan = replace(
        PLAN,
        objects=7,
        instances={A: InstanceGroup("big", 1)},
        refused=(RefusedLaunch(R, "big", 1, is_quota=True, quota="L-1"),),
    )
    assert TransferPlan.from_dict(plan.to_dict()) == plan
