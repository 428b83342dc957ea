"""A transfer through real gateways on instances of a strict EC2, booted from their user data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.clouds.gateways import needless_rules
from tests.e2e.conftest import filled, words_of

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.transfer import probe
from strict_clouds.bill import bill_of
from strict_clouds.ec2 import StrictEc2
from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.long]

RELAY: Final = "aws:us-east-1"


@pytest.mark.parametrize("rule", ["never", "always"])
def test_a_relayed_copy_is_encrypted_costs_what_it_says_and_leaves_nothing(
    servers: tuple[S3Server, S3Server],
    clouds_file: Path,
    ec2: StrictEc2,
    world: World,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
) -> None:
    monkeypatch.setattr(probe, "PROBE_S", 0.3)
    source, destination = servers
    choice = ["--provisioner", "cloud", "--clouds", str(clouds_file), "--deployment", "tests"]
    command = ["cp", "-r", *words_of(filled(servers, f"instances-{rule}")), *choice]
    # No direct path has that rate.
    command += ["--instance-limit", "1", "--min-throughput-gbps", "3", "--allow-regions", RELAY]
    command += ["--probe", rule]
    assert main([*command, "--gateways", "always", "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert report["objects"] == 3, report
    assert report["encrypted"] is True
    bucket = f"instances-{rule}"
    assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
    assert len(report["measured"]) == (3 if rule == "always" else 0)
    assert len(world.machines) == 3
    assert all(machine.firewall.rules for machine in world.machines)
    assert needless_rules(world) == ()
    bill = bill_of([ec2.usage], world)
    cost = report["cost"]
    assert cost["instance_usd"] == pytest.approx(bill.machines_usd, rel=0.03)
    assert cost["egress_usd"] == pytest.approx(bill.egress_usd, rel=0.03)
    # The plan counts a minute of addresses and disks at least, as of the instances.
    lived_s = sum((one.ended_unix_s or 0.0) - one.began_unix_s for one in ec2.usage.machines())
    longer = sum(line.billed_s for line in bill.machines) / lived_s
    others = cost["other_usd"]
    # Items by the hour follow the bill of instances, and the one that a probe dropped is cheaper.
    off = 0.03 if rule == "never" else 0.1
    assert others["public IPv4 addresses"] == pytest.approx(bill.addresses_usd * longer, rel=off)
    # It has one price of a disk for each cloud, a sixth below that of the regions here.
    assert others["disks"] == pytest.approx(bill.disks_usd * longer, rel=0.2 + off)
    assert not [machine for machine in world.machines if machine.is_running]
    assert not any(ec2.leftovers().values())
