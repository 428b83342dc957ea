"""Firewalls of Azure that somebody else changes as well."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import FLEET, PEER, REGION, WORKERS, prepared

from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.fleet.machines import Ingress
from strict_clouds.arm_state import FIREWALLS, properties


def test_sources_of_the_same_ports_share_a_rule(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    peers = [Ingress(7602, 7602, f"203.0.113.{number}/32") for number in range(50)]
    cloud.set_ingress(FLEET, REGION, peers)
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
    cloud.set_ingress(FLEET, REGION, [])
    assert harness.firewall(REGION) == {WORKERS}


def test_a_priority_that_another_rule_has_is_left_to_it(
    harness: AzureHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers whose addresses give the same one."""
    cloud = prepared(harness.azure())
    (firewall,) = harness.arm.state.of_kind(FIREWALLS)
    (taken,) = [one for one in properties(firewall)["securityRules"] if "worker" in one["name"]]
    priority, tried = taken["properties"]["priority"], []

    def unlucky(among: range, count: int) -> list[int]:
        tried.append([priority, *sorted(set(among) - {priority})[: count - 1]])
        return tried[-1]

    monkeypatch.setattr(random, "sample", unlucky)
    own = replace(WORKERS, source_cidr="192.0.2.1/32")
    cloud.admit(FLEET, REGION, [own])
    assert harness.firewall(REGION) == {WORKERS, own}
    assert len(tried) == 1


def test_a_firewall_that_is_gone_says_so(harness: AzureHarness) -> None:
    with pytest.raises(CloudUnavailable, match="is gone"):
        harness.azure().set_ingress(FLEET, REGION, [PEER])


def test_a_new_group_may_be_unknown_in_a_region(harness: AzureHarness) -> None:
    harness.arm.fail("firewalls.put", 404, "ResourceGroupNotFound", times=2)
    prepared(harness.azure())
    assert harness.firewall(REGION) == {WORKERS}
