"""The firewall rules of a fleet, and the network that they are in."""

from __future__ import annotations

import json

import pytest
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import FLEET, REGION, WORKERS, a_request, prepared

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.fleet.machines import Ingress

TAG = f"skyplane-{FLEET.fleet_key[:20]}-us-central1"
#: Of the rule for WORKERS: `w` and base32 of c6 33 64 00 18, address and length.
WORKER = "wyyzwiaay"
PEERS = [Ingress(7601, 7602, f"203.0.113.{number}/32") for number in range(4)]
OTHER_REGION = "gcp:europe-west1"


def test_rules_describe_their_fleet(harness: GcpHarness) -> None:
    prepared(harness.gcp())
    rules = harness.gce.firewalls.rules
    assert sorted(rules) == [f"{TAG}-closed", f"{TAG}-{WORKER}"]
    for rule in rules.values():
        assert rule["targetTags"] == [TAG]
        assert json.loads(rule["description"]) == {
            "skyplane_fleet": FLEET.fleet_key,
            "skyplane_deployment": "prod",
            "skyplane_generation": "0",
            "skyplane_created": "1700000000",
            "skyplane_hard_end": "1700086400",
            "skyplane_processes": "1",
            "skyplane_region": REGION,
        }


def test_what_the_network_opens_to_all_is_closed(harness: GcpHarness) -> None:
    lets_through = harness.gce.firewalls.lets_through
    assert lets_through(["others"], 22, "198.51.100.1")
    prepared(harness.gcp())
    assert lets_through([TAG], 7600, "198.51.100.1")
    for port, source in ((22, "198.51.100.1"), (7600, "192.0.2.1"), (7602, "10.128.0.9")):
        assert not lets_through([TAG], port, source)


def test_instances_have_the_network_tag(harness: GcpHarness) -> None:
    prepared(harness.gcp()).launch(a_request())
    assert harness.gce.requests("instances.insert")[0].body["tags"] == {"items": [TAG]}


def test_a_new_fleet_costs_one_list_and_a_rule_per_region(harness: GcpHarness) -> None:
    regions = [REGION, OTHER_REGION]
    for added in (["firewalls.insert", "globalOperations.wait"] * 2, []):
        before = len(harness.gce.calls)
        harness.gcp().create_firewalls(FLEET, regions)
        methods = harness.gce.methods()[before:]
        assert methods[0] == "firewalls.list"
        assert sorted(methods[1:]) == sorted(added)


def test_sources_of_one_range_of_ports_are_one_rule(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    cloud.set_ingress(FLEET, REGION, PEERS)
    (rule,) = [one for one in harness.gce.firewalls.rules if one.endswith("-7601-7602")]
    assert harness.gce.firewalls.rules[rule]["sourceRanges"] == sorted(
        one.source_cidr for one in PEERS
    )


def test_a_rule_that_was_changed_by_hand_is_set_again(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    rule = harness.gce.firewalls.rules[f"{TAG}-{WORKER}"]
    rule["sourceRanges"] = ["0.0.0.0/0"]
    cloud.admit(FLEET, REGION, [WORKERS])
    assert harness.firewall(REGION) == {WORKERS}
    harness.gce.firewalls.rules[f"{TAG}-closed"]["priority"] = 65000
    cloud.set_ingress(FLEET, REGION, [])
    assert not harness.gce.firewalls.lets_through([TAG], 22, "198.51.100.1")


def test_a_rule_of_our_name_without_our_description_is_refused(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    rule = harness.gce.firewalls.rules[f"{TAG}-closed"]
    rule |= {"description": "mine", "priority": 1}
    with pytest.raises(ConfigurationInvalid, match="does not have the description"):
        cloud.create_firewalls(FLEET, [REGION])


def test_a_rule_that_is_never_shown_is_an_error(harness: GcpHarness) -> None:
    harness.hide_new(1000)
    harness.gcp().create_firewalls(FLEET, [REGION])
    with pytest.raises(CloudUnavailable, match="does not show it"):
        harness.gcp().create_firewalls(FLEET, [REGION])


def test_a_firewall_has_all_rules_of_its_region(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    cloud.set_ingress(FLEET, REGION, PEERS)
    (firewall,) = cloud.leftovers(FLEET.fleet_key, [REGION])
    assert (firewall.kind, firewall.cloud_id, firewall.tags) == ("firewall", TAG, FLEET)
    assert cloud.leftovers(FLEET.fleet_key, [OTHER_REGION]) == ()
    assert cloud.delete_leftovers([firewall]) == ()
    deleted = [call.path["firewall"] for call in harness.gce.requests("firewalls.delete")]
    assert deleted[-1] == f"{TAG}-closed"
    assert harness.leftovers() == {}


def test_the_project_of_a_shared_network_has_the_rules(harness: GcpHarness) -> None:
    cloud = harness.gcp(network="projects/host-project/global/networks/default")
    prepared(cloud)
    assert cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [REGION])) == ()
    methods = ("firewalls.insert", "firewalls.list", "firewalls.delete", "globalOperations.wait")
    calls = [call for call in harness.gce.calls if call.method in methods]
    assert {call.project for call in calls} == {"host-project"}
