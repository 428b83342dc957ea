"""A fleet of real gateways, on instances that boot the user data that AWS was sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.clouds.fakes import open_ec2
from tests.clouds.gateways import GATEWAY, IMAGE
from tests.provision.samples import SECRET, expire_leases, make_plan

from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.provision.base import FleetSpec, FleetTimes
from skyplane_orchestration.provision.clouds_file import parse_clouds
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.security.authority import Authority
from skyplane_orchestration.security.credentials import CredentialSources
from strict_clouds.ec2 import StrictEc2
from strict_clouds.world import World

pytestmark = pytest.mark.e2e

SOURCE, SINK = "aws:eu-west-3", "aws:us-east-1"
KEY = "0123456789abcdef" * 2


def plan() -> TransferPlan:
    made = make_plan([((SOURCE, SINK), 5.0)], {SOURCE: 1, SINK: 1})
    instances = {region: InstanceGroup("c7gn.large", 1) for region in (SOURCE, SINK)}
    return replace(made, instances=instances)


def worker(ec2: StrictEc2) -> InstanceProvisioner:
    document = {
        "image": IMAGE.image,
        "control_cidrs": ["127.0.0.1/32"],
        "processes_per_instance": 1,
        "ready_timeout_s": 60.0,
        "poll_s": 0.1,
        "aws": {"endpoint_url": ec2.url, "regions": [SOURCE, SINK]},
    }
    return parse_clouds(document).open(CredentialSources())


def test_a_fleet_comes_up_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    with World(tmp_path, GATEWAY) as world, open_ec2(world, deployments=("test",)) as ec2:
        ec2.conditions.hidden_for = 2
        spec = FleetSpec(KEY, 0, "test", plan(), FleetTimes(start_within_s=60.0))
        fleet = worker(ec2).ensure(spec, Authority(SECRET, KEY))
        addresses = {machine.address for machine in world.machines}
        assert {gateway.control[0] for gateway in fleet.gateways} == addresses
        assert len(addresses) == 2
        again = worker(ec2).ensure(spec, Authority(SECRET, KEY))
        assert again.gateways == fleet.gateways
        assert len(worker(ec2).destroy(KEY)) == 2
        assert ec2.leftovers() == {}


def test_an_instance_whose_gateways_end_ends_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    with World(tmp_path, GATEWAY) as world, open_ec2(world, deployments=("test",)) as ec2:
        times = FleetTimes(start_within_s=60.0)
        spec = FleetSpec(KEY, 0, "test", plan(), times)
        authority = Authority(SECRET, KEY)
        expire_leases(worker(ec2).ensure(spec, authority), authority)
        for machine in world.machines:
            machine.wait_ended()
        assert worker(ec2).describe(KEY) == ()
        assert {"instances", "volumes", "network-interfaces"}.isdisjoint(ec2.leftovers())
        report = worker(ec2).sweep("test")
        assert [orphan.key for orphan in report.orphans] == [KEY]
        assert ec2.leftovers() == {}
