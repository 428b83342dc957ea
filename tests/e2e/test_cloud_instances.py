"""A transfer through real gateways on instances of a strict EC2, booted from their user data."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.clouds.bill import bill_of
from tests.clouds.ec2 import StrictEc2
from tests.clouds.world import World
from tests.e2e.held_store import Once

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.provision.clouds_file import parse_clouds
from skyplane_orchestration.security.credentials import CredentialSources

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server
    from tests.faults.http_proxy import FaultProxy

    from skyplane_orchestration.model.job import TransferJob

pytestmark = pytest.mark.e2e

RELAY: Final = "aws:us-east-1"


def test_a_relayed_copy_is_encrypted_costs_what_it_says_and_leaves_nothing(
    servers: tuple[S3Server, S3Server],
    clouds_file: Path,
    ec2: StrictEc2,
    world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = servers
    for server in servers:
        server.make_bucket("instances")
    source.fill("instances", "p/", {"large": os.urandom(9 << 20), "a/b": b"x", "empty": b""})
    ends = []
    for side, server in (("src", source), ("dst", destination)):
        ends += [f"--{side}-region", server.region, f"--{side}-endpoint", server.endpoint]
    choice = ["--provisioner", "cloud", "--clouds", str(clouds_file), "--deployment", "tests"]
    command = ["cp", "s3://instances/p/", "s3://instances/q/", "-r", *ends, *choice]
    # No direct path has that rate.
    command += ["--instance-limit", "1", "--min-throughput-gbps", "3", "--allow", RELAY]
    assert main([*command, "--gateways", "always", "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert report["objects"] == 3, report
    assert report["encrypted"] is True
    assert destination.objects("instances", "q/") == source.objects("instances", "p/")
    assert len(world.machines) == 3
    bill = bill_of([ec2.usage], world)
    cost = report["cost"]
    assert cost["instance_usd"] == pytest.approx(bill.machines_usd, rel=0.03)
    assert cost["egress_usd"] == pytest.approx(bill.egress_usd, rel=0.03)
    assert not [machine for machine in world.machines if machine.is_running]
    assert not any(ec2.leftovers().values())


def test_an_instance_that_ends_in_mid_transfer_is_replaced(
    kit: ClientKit,
    slow: TransferJob,
    gate: FaultProxy,
    servers: tuple[S3Server, S3Server],
    clouds_file: Path,
    ec2: StrictEc2,
    world: World,
) -> None:
    """A spot loss, or somebody in the console. Catalogue of faults, 41."""
    settings = json.loads(clouds_file.read_text())
    settings["gateway_settings"] = {"ack_deadline_s": 4.0}
    provisioner = parse_clouds(settings).open(CredentialSources())
    client = kit.client(provisioner=provisioner)
    plan = kit.plan((kit.SOURCE, RELAY, kit.SINK))
    grid = load_grid()
    kind = grid.instance_type("aws", "c7gn.large")
    instances = {
        region: InstanceGroup(kind.name, 1, grid.priced(region, kind).usd_per_hour)
        for region in plan.instances
    }
    fleet = client.provision(replace(plan, instances=instances))
    lost = fleet.gateway(f"{RELAY}/0").details["instance_id"]
    end = Once(gate, lambda: ec2.end_by_hand(lost))
    try:
        result = client.transfer(slow, fleet, on_status=end)
        assert end.done
        assert (result.failed, result.epoch) == (0, 2)
        assert "the fleet was broken and was brought up again" in result.warnings
        assert len(ec2.ever_launched()) == 4
        bill = bill_of([ec2.usage], world)
        assert result.cost.instance_usd == pytest.approx(bill.machines_usd, rel=0.03)
    finally:
        client.teardown(fleet)
    kit.ended_well(slow, servers)
    assert ec2.leftovers() == {}
