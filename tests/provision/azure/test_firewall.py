"""Firewalls of Azure that somebody else changes as well."""

from __future__ import annotations

import pytest
from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import FLEET, PEER, REGION, WORKERS, prepared

from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.fleet.machines import Ingress
from strict_clouds.arm_state import FIREWALLS, properties


def test_sources_of_the_same_ports_share_a_rule(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    peers = [Ingress(7602, 7602, f"203.0.113.{number}/32") for number in range(50)]
    cloud.set_ingress(FLEET, REGION, [WORKERS, *peers])
    (firewall,) = harness.arm.state.of_kind(FIREWALLS)
    assert len(properties(firewall)["securityRules"]) == 3
    assert harness.firewall(REGION) == {WORKERS, *peers}


def test_rules_that_somebody_added_are_removed(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    (firewall,) = harness.arm.state.of_kind(FIREWALLS)
    properties(firewall)["securityRules"].append(
        {
            "name": "ssh",
            "properties": {
                "direction": "Inbound",
                "access": "Allow",
                "protocol": "*",
                "priority": 200,
                "sourceAddressPrefix": "*",
                "destinationPortRange": "22",
            },
        }
    )
    cloud.set_ingress(FLEET, REGION, [WORKERS])
    assert harness.firewall(REGION) == {WORKERS}


def test_others_may_write_at_the_same_time(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    harness.arm.fail("firewalls.put", 412, "PreconditionFailed", times=2)
    cloud.set_ingress(FLEET, REGION, [PEER])
    assert harness.firewall(REGION) == {PEER}


def test_others_that_never_stop_are_an_error(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    harness.arm.fail("firewalls.put", 412, "PreconditionFailed", times=100)
    with pytest.raises(CloudUnavailable, match="others keep changing"):
        cloud.set_ingress(FLEET, REGION, [PEER])


def test_a_firewall_that_is_gone_says_so(harness: AzureHarness) -> None:
    with pytest.raises(CloudUnavailable, match="is gone"):
        harness.azure().set_ingress(FLEET, REGION, [PEER])


def test_a_new_group_may_be_unknown_in_a_region(harness: AzureHarness) -> None:
    harness.arm.fail("firewalls.put", 404, "ResourceGroupNotFound", times=2)
    prepared(harness.azure())
    assert harness.firewall(REGION) == {WORKERS}
