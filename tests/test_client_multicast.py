"""One plan to several places, asked of the client: regions and volume given, so no cloud."""

from __future__ import annotations

import pytest

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.job import MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan

SOURCE = Location("gs://a/x/", "gcp:us-east4")
NEAR = Location("s3://b/y/", "aws:ap-southeast-1")
FAR = Location("s3://c/z/", "aws:ap-northeast-1")


def test_the_plan_goes_to_where_the_places_are() -> None:
    job = TransferJob(SOURCE, NEAR, MinimizeCost(2.0), volume_gb=10.0, objects=5)
    plan = Client().plan_to_all(job, [FAR], proof_s=0.0)
    assert (plan.src, plan.destinations) == (SOURCE.region, (NEAR.region, FAR.region))
    assert plan.volume_gb == 10.0
    assert plan.cost.request_usd is not None


def test_two_buckets_of_one_region_are_no_two_destinations() -> None:
    job = TransferJob(SOURCE, NEAR, volume_gb=10.0)
    with pytest.raises(ConfigurationInvalid, match="more than once"):
        Client().plan_to_all(job, [Location("s3://d/", NEAR.region)])


def test_such_a_plan_is_no_plan_to_run() -> None:
    job = TransferJob(SOURCE, NEAR, MinimizeCost(2.0), volume_gb=10.0)
    plan = Client().plan_to_all(job, [FAR], proof_s=0.0)
    with pytest.raises(ConfigurationInvalid, match="one plan per destination"):
        TransferPlan.from_dict(plan.to_dict())
