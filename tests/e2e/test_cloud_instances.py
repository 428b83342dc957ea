"""A transfer through real gateways on instances of a strict EC2, booted from their user data."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.clouds.gateways import needless_rules
from tests.e2e.held_store import Once

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.provision.clouds_file import parse_clouds
from skyplane_orchestration.security.credentials import CredentialSources
from strict_clouds.bill import bill_of
from strict_clouds.ec2 import StrictEc2
from strict_clouds.ec2_moto import ON_DEMAND_QUOTA
from strict_clouds.world import World

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
    command += ["--instance-limit", "1", "--min-throughput-gbps", "3", "--allow-regions", RELAY]
    assert main([*command, "--gateways", "always", "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert report["objects"] == 3, report
    assert report["encrypted"] is True
    assert destination.objects("instances", "q/") == source.objects("instances", "p/")
    assert len(world.machines) == 3
    assert all(machine.firewall.rules for machine in world.machines)
    assert needless_rules(world) == ()
    bill = bill_of([ec2.usage], world)
    cost = report["cost"]
    assert cost["instance_usd"] == pytest.approx(bill.machines_usd, rel=0.03)
    assert cost["egress_usd"] == pytest.approx(bill.egress_usd, rel=0.03)
    assert not [machine for machine in world.machines if machine.is_running]
    assert not any(ec2.leftovers().values())


@pytest.fixture
def through_a_relay(servers: tuple[S3Server, S3Server], ec2: StrictEc2) -> list[str]:
    """A copy that needs a relay, of which the cheapest region launches none.

    Its quota is used up, and Service Quotas does not know.
    """
    source, destination = servers
    name = "no-quota"
    for server in servers:
        if name not in [row["Name"] for row in server.client().list_buckets()["Buckets"]]:
            server.make_bucket(name)
    source.fill(name, "p/", {"a": os.urandom(1 << 20), "b": b"x"})
    ec2.conditions.opt_in["us-east-2"] = "opt-in-not-required"
    ec2.conditions.quotas["us-east-1", ON_DEMAND_QUOTA] = 0
    ec2.conditions.told_quotas["us-east-1", ON_DEMAND_QUOTA] = 64
    command = ["cp", f"s3://{name}/p/", f"s3://{name}/q/", "-r", "--gateways", "always"]
    for side, server in (("src", source), ("dst", destination)):
        command += [f"--{side}-region", server.region, f"--{side}-endpoint", server.endpoint]
    return [*command, "--min-throughput-gbps", "3", "--instance-limit", "1"]


@pytest.mark.long
def test_a_region_without_quota_is_replaced_by_another(
    through_a_relay: list[str],
    servers: tuple[S3Server, S3Server],
    clouds_file: Path,
    ec2: StrictEc2,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Catalogue of faults, 30."""
    choice = ["--provisioner", "cloud", "--clouds", str(clouds_file), "--deployment", "tests"]
    assert main([*through_a_relay, *choice, "--json"]) == 0, capsys.readouterr().err
    output = capsys.readouterr()
    (warning,) = json.loads(output.out)["warnings"]
    assert "aws:us-east-1 gave no c7gn.large instances: a quota is used up" in warning
    assert warning.endswith("L-1216C47A (Running On-Demand Standard instances)")
    (now,) = [line for line in output.err.splitlines() if "the plan is now" in line]
    assert "aws:us-east-2 1 c7gn.large" in now
    assert "us-east-1" not in now
    source, destination = servers
    assert destination.objects("no-quota", "q/") == source.objects("no-quota", "p/")
    assert ec2.leftovers() == {}


@pytest.mark.long
def test_a_region_without_quota_fails_the_copy_if_the_policy_says_so(
    through_a_relay: list[str],
    clouds_file: Path,
    ec2: StrictEc2,
    world: World,
    capsys: pytest.CaptureFixture[str],
) -> None:
    choice = ["--provisioner", "cloud", "--clouds", str(clouds_file), "--deployment", "tests"]
    assert main([*through_a_relay, *choice, "--on-no-capacity", "fail"]) == 1
    errors = capsys.readouterr().err
    assert "--service-code ec2 --quota-code L-1216C47A --region us-east-1" in errors
    assert "Traceback" not in errors
    assert not [machine for machine in world.machines if machine.is_running]
    assert ec2.leftovers() == {}


@pytest.mark.long
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
        report = client.teardown(fleet)
    # The document is older than the replacement.
    first = sum(line.usd for line in bill.machines[:3])
    assert report.instance_usd == pytest.approx(first, rel=0.03)
    kit.ended_well(slow, servers)
    assert ec2.leftovers() == {}
