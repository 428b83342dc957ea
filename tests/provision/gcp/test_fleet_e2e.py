"""A fleet of real gateways, on instances that boot the user data that Google was sent."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clouds.fakes import open_gce
from tests.clouds.gateways import GATEWAY, IMAGE
from tests.provision.samples import SECRET, expire_leases, make_plan

from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.base import FleetSpec, FleetTimes
from skyplane_orchestration.provision.clouds_file import parse_clouds
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.security.authority import Authority
from skyplane_orchestration.security.credentials import CredentialSources
from strict_clouds.gce import PROJECT, StrictGce
from strict_clouds.world import World

pytestmark = pytest.mark.e2e

SOURCE, SINK = "gcp:us-central1", "gcp:europe-west1"
KEY = "0123456789abcdef" * 2


def plan() -> TransferPlan:
    made = make_plan([((SOURCE, SINK), 5.0)], {SOURCE: 1, SINK: 1})
    instances = {region: InstanceGroup("n2-standard-4", 1) for region in (SOURCE, SINK)}
    return replace(made, instances=instances)


def worker(gce: StrictGce) -> InstanceProvisioner:
    document = {
        "image": IMAGE.image,
        "control_cidrs": ["127.0.0.1/32"],
        "processes_per_instance": 1,
        "ready_timeout_s": 60.0,
        "poll_s": 0.1,
        "gcp": {"project": PROJECT, "endpoint_url": gce.url, "regions": [SOURCE, SINK]},
    }
    return parse_clouds(document).open(CredentialSources())


def test_a_fleet_comes_up_and_leaves_nothing(tmp_path: Path) -> None:
    with World(tmp_path, GATEWAY) as world, open_gce(world) as gce:
        gce.conditions.now_s = time.time()
        gce.conditions.hidden_for = 1
        gce.conditions.deleting_for = 2
        spec = FleetSpec(KEY, 0, "test", plan(), FleetTimes(start_within_s=60.0))
        fleet = worker(gce).ensure(spec, Authority(SECRET, KEY))
        addresses = {machine.address for machine in world.machines}
        assert {gateway.control[0] for gateway in fleet.gateways} == addresses
        assert len(addresses) == 2
        again = worker(gce).ensure(spec, Authority(SECRET, KEY))
        assert again.gateways == fleet.gateways
        assert len(worker(gce).destroy(KEY)) == 2
        assert gce.leftovers() == {}


def test_instances_that_have_powered_off_are_swept_with_their_disks(tmp_path: Path) -> None:
    with World(tmp_path, GATEWAY) as world, open_gce(world) as gce:
        gce.conditions.now_s = time.time()
        spec = FleetSpec(KEY, 0, "test", plan(), FleetTimes(start_within_s=60.0))
        authority = Authority(SECRET, KEY)
        expire_leases(worker(gce).ensure(spec, authority), authority)
        for machine in world.machines:
            machine.wait_ended()
        assert worker(gce).describe(KEY) == ()
        assert gce.leftovers().keys() == {"instances", "disks", "firewalls"}
        report = worker(gce).sweep("test")
        assert [orphan.key for orphan in report.orphans] == [KEY]
        assert gce.leftovers() == {}
