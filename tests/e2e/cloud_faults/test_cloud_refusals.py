"""A cloud refuses instances, or loses one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.e2e.cloud_faults.fleets import OBJECTS, Workers, instances_plan
from tests.e2e.cloud_sites import CloudSite
from tests.e2e.held_store import Once, take

from skyplane_orchestration.errors import QuotaExceeded
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.model.plan import TransferPlan
from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def test_without_capacity_for_a_type_the_next_type_copies(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
) -> None:
    """Catalogue of faults, 31. No zone of the source's region has it."""
    take(gate)
    region = site.regions[0]
    plan = workers.client().plan(job)
    assert plan.instances[region].type == site.instance_type
    site.fake.conditions.full |= {f"{zone}/{site.instance_type}" for zone in site.zones}
    fleets: list[Fleet] = []
    result = workers.client().run(job, plan=plan, on_fleet=fleets.append)
    assert (result.copied, result.failed) == (OBJECTS, 0)
    assert fleets[-1].plan.instances[region].type != site.instance_type
    (warning,) = [text for text in result.warnings if "planned again" in text]
    assert f"{region} gave no {site.instance_type} instances" in warning
    kit.ended_well(job, servers)


def test_a_relay_without_quota_is_left_out(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
) -> None:
    """Catalogue of faults, 30: one of three regions. Its quota is used up after planning."""
    take(gate)
    relayed = instances_plan(kit, site, site.regions[0], site.relay, site.regions[1])
    plan = replace(relayed, objective=workers.client().plan(job).objective)
    site.fake.conditions.quotas[site.relay.partition(":")[2], site.quota_name] = 0
    fleets: list[Fleet] = []
    result = workers.client().run(job, plan=plan, on_fleet=fleets.append)
    assert (result.copied, result.failed) == (OBJECTS, 0)
    assert set(fleets[-1].plan.instances) == set(site.regions)
    (warning,) = [text for text in result.warnings if "planned again" in text]
    assert f"{site.relay} gave no {site.instance_type} instances" in warning
    assert site.quota_name in warning
    kit.ended_well(job, servers)


def test_a_quota_fails_the_copy_if_the_policy_says_so(
    job: TransferJob, workers: Workers, plan: TransferPlan, site: CloudSite
) -> None:
    """Catalogue of faults, 30: the other region's instance is ended again."""
    keeps = replace(job, policy=Policy(on_no_capacity="fail"))
    region = site.regions[1].partition(":")[2]
    site.fake.conditions.quotas[region, site.quota_name] = 0
    with pytest.raises(QuotaExceeded, match=site.quota_name):
        workers.client().run(keeps, plan=plan)


def test_an_instance_that_ends_in_mid_transfer_is_replaced(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
    world: World,
) -> None:
    """A spot loss, or somebody in the console. Catalogue of faults, 41."""
    client = workers.client()
    fleet = client.provision(
        instances_plan(kit, site, site.regions[0], site.relay, site.regions[1])
    )
    lost = fleet.gateway(f"{site.relay}/0").details["instance_id"]
    end = Once(gate, lambda: site.end_by_hand(lost))
    try:
        result = client.transfer(job, fleet, on_status=end)
    finally:
        client.teardown(fleet)
    assert end.done
    assert (result.failed, result.epoch) == (0, 2)
    assert "the fleet was broken and was brought up again" in result.warnings
    assert len(world.machines) == 4
    kit.ended_well(job, servers)
