"""What goes wrong around transfers on instances of strict clouds leaves nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.clouds.world import World
from tests.e2e.cloud_sites import SITES, CloudSite
from tests.e2e.held_store import PATIENCE_S, Once, refuse, take, wait_for

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import BudgetReached, QuotaExceeded, TransferFailed
from skyplane_orchestration.model.job import Policy
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.provision.clouds_file import read_clouds
from skyplane_orchestration.security.credentials import CredentialSources

if TYPE_CHECKING:
    from tests.e2e.beside import Beside
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.model.job import TransferJob
    from skyplane_orchestration.model.status import TransferStatus

pytestmark = [pytest.mark.e2e, pytest.mark.long]

#: Objects of the job.
OBJECTS: Final = 22
#: More than the first parts of its large objects cost, and less than all its bytes.
USD_PER_GB, BUDGET_USD = 1.0, 0.005


@pytest.fixture(params=list(SITES))
def site(world: World, request: pytest.FixtureRequest) -> Iterator[CloudSite]:
    """Afterwards the cloud has nothing, and no machine runs."""
    with SITES[request.param](world) as made:
        yield made
        assert made.fake.leftovers() == {}
        assert not [machine for machine in world.machines if machine.is_running]


@pytest.fixture
def job(slow: TransferJob, site: CloudSite) -> TransferJob:
    """`slow`, with ends in two regions of the cloud."""
    source, destination = site.regions
    return replace(
        slow,
        source=replace(slow.source, region=source),
        destination=replace(slow.destination, region=destination),
    )


def planned(kit: ClientKit, site: CloudSite, *path: str) -> TransferPlan:
    made = kit.plan(path or site.regions)
    group = InstanceGroup(site.instance_type, 1)
    return replace(made, instances=dict.fromkeys(made.instances, group))


@pytest.fixture
def plan(kit: ClientKit, site: CloudSite) -> TransferPlan:
    return planned(kit, site)


class Workers:
    """Clients of one run, each as in a process of its own."""

    def __init__(self, kit: ClientKit, clouds_file: Path) -> None:
        self._kit, self._clouds_file = kit, clouds_file

    def client(self, run: str = "run") -> Client:
        provisioner = read_clouds(self._clouds_file).open(CredentialSources())
        return self._kit.client(run, provisioner=provisioner)


@pytest.fixture
def workers(kit: ClientKit, site: CloudSite, tmp_path: Path) -> Workers:
    clouds_file = tmp_path / "clouds.yaml"
    # Short, so that the loss of a relay is noticed soon.
    site.write_clouds_file(clouds_file, gateway_settings={"ack_deadline_s": 4.0})
    return Workers(kit, clouds_file)


def test_two_runs_of_one_key_share_one_fleet(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    plan: TransferPlan,
    site: CloudSite,
    beside: Beside,
) -> None:
    """Catalogue of faults, 38: the second joins, and both have the result."""
    polls = [0, 0]

    def run(number: int) -> TransferResult:
        def count(_: TransferStatus) -> None:
            polls[number] += 1

        return workers.client().run(job, plan=plan, on_status=count)

    runs = [beside.start(partial(run, number)) for number in range(2)]
    wait_for(lambda: all(polls), "both to follow the transfer")
    take(gate)
    results = [each.result(PATIENCE_S) for each in runs]
    assert [(each.copied, each.failed, each.epoch) for each in results] == [(OBJECTS, 0, 1)] * 2
    assert len(site.fake.usage.machines()) == 2
    kit.ended_well(job, servers)


def test_a_teardown_in_mid_transfer_leaves_nothing(
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    plan: TransferPlan,
    beside: Beside,
) -> None:
    """Catalogue of faults, 39: neither instances nor uploads nor a journal."""
    destination, bucket = servers[1], job.destination.bucket
    fleet = workers.client().provision(plan)
    running = beside.start(lambda: workers.client().transfer(job, fleet))
    wait_for(lambda: len(destination.open_uploads(bucket)) == 2, "both uploads")
    refuse(gate)
    workers.client().teardown(fleet)
    assert isinstance(running.exception(PATIENCE_S), TransferFailed)
    assert destination.open_uploads(bucket) == []
    assert not [key for key in destination.digests(bucket) if not key.startswith("q/small")]


def test_a_transfer_that_reaches_its_budget_goes_on_by_its_handle(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    plan: TransferPlan,
    site: CloudSite,
) -> None:
    """Catalogue of faults, 43. The instances end, and the uploads stay for the resume."""
    dear = replace(plan, edges=tuple(replace(edge, usd_per_gb=USD_PER_GB) for edge in plan.edges))
    job = replace(job, policy=Policy(max_job_usd=BUDGET_USD))

    def lose_the_rest(status: TransferStatus) -> None:
        if status.cost is not None and status.cost.total_usd >= BUDGET_USD:
            refuse(gate)

    with pytest.raises(TransferFailed) as caught:
        workers.client().run(job, plan=dear, on_status=lose_the_rest)
    result = caught.value.result
    assert isinstance(result, TransferResult)
    assert result.error_code == BudgetReached.code
    assert result.cost.total_usd >= BUDGET_USD
    assert site.fake.leftovers() == {}
    take(gate)
    resumed = workers.client("another run").resume(result.resume_handle, max_job_usd=1.0)
    assert (resumed.copied, resumed.failed, resumed.epoch) == (OBJECTS, 0, 2)
    kit.ended_well(job, servers)


def test_without_capacity_for_a_type_the_next_type_copies(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
) -> None:
    """Catalogue of faults, 31. No zone of the source's region has it."""
    full = {f"{zone}/{site.instance_type}" for zone in site.zones}
    site.fake.conditions.full |= full
    take(gate)
    refused_then_copied(kit, job, servers, workers, site)


@pytest.mark.parametrize("site", ["azure", "gcp"], indirect=True)
def test_a_quota_that_is_used_up_after_planning(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
) -> None:
    """Catalogue of faults, 30. On EC2 the types share a quota: there another region relays."""
    take(gate)
    refused_then_copied(kit, job, servers, workers, site, quota=site.quota_name)


def refused_then_copied(
    kit: ClientKit,
    job: TransferJob,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
    quota: str = "",
) -> None:
    """The source's region refuses the planned type, and another one copies."""
    region = site.regions[0]
    plan = workers.client().plan(job)
    assert plan.instances[region].type == site.instance_type
    if quota:
        site.fake.conditions.quotas[region.partition(":")[2], quota] = 0
    fleets: list[Fleet] = []
    result = workers.client().run(job, plan=plan, on_fleet=fleets.append)
    assert (result.copied, result.failed) == (OBJECTS, 0)
    assert fleets[-1].plan.instances[region].type != site.instance_type
    (warning,) = [text for text in result.warnings if "planned again" in text]
    assert f"{region} gave no {site.instance_type} instances" in warning
    assert quota in warning
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


@pytest.mark.parametrize("site", ["azure", "gcp"], indirect=True)
def test_an_instance_that_ends_in_mid_transfer_is_replaced(
    kit: ClientKit,
    job: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    workers: Workers,
    site: CloudSite,
) -> None:
    """A spot loss, or somebody in the console. Catalogue of faults, 41."""
    client = workers.client()
    fleet = client.provision(planned(kit, site, site.regions[0], site.relay, site.regions[1]))
    lost = fleet.gateway(f"{site.relay}/0").details["instance_id"]
    end = Once(gate, lambda: site.end_by_hand(lost))
    try:
        result = client.transfer(job, fleet, on_status=end)
    finally:
        client.teardown(fleet)
    assert end.done
    assert (result.failed, result.epoch) == (0, 2)
    assert "the fleet was broken and was brought up again" in result.warnings
    assert len(site.fake.usage.machines()) == 4
    kit.ended_well(job, servers)
