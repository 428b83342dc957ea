"""What clusters alone have: network policies, deadlines, load balancers, Pods without a node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.provision.fleet.test_cloud_conformance import FLEET, PEER, a_request, tear_down
from tests.provision.kubernetes.cluster import USER, wait_until

from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.kubernetes import KubernetesCloud
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion

if TYPE_CHECKING:
    from tests.provision.kubernetes.cluster import Cluster
    from tests.provision.kubernetes.harness import KubernetesHarness

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def harness(kubernetes_cluster: Cluster) -> Iterator[KubernetesHarness]:
    from tests.provision.kubernetes.harness import kubernetes_harness

    with kubernetes_harness(kubernetes_cluster) as made:
        yield made


def test_a_policy_has_exactly_the_rules_and_goes_after_its_pods(harness: KubernetesHarness) -> None:
    cloud, region = harness.worker(), harness.region
    for _ in range(2):
        cloud.create_firewalls(FLEET, [region])
    assert harness.firewall(region) == set()
    for rules in ([PEER], [replace(PEER, source_cidr="203.0.113.9/32")], []):
        cloud.set_ingress(FLEET, region, rules)
        cloud.create_firewalls(FLEET, [region])
        assert harness.firewall(region) == set(rules)
    launched = cloud.launch(a_request(harness))  # type: ignore[arg-type]
    [policy] = cloud.leftovers(FLEET.fleet_key, [region])
    assert cloud.delete_leftovers([policy]) == (policy,)
    cloud.terminate([launched])
    assert cloud.delete_leftovers([policy]) == ()
    assert harness.leftovers() == {}
    with pytest.raises(CloudUnavailable, match="another worker may be tearing the fleet down"):
        cloud.set_ingress(FLEET, region, [PEER])


def test_a_job_ends_at_the_hard_end_and_says_so(harness: KubernetesHarness) -> None:
    """By the cluster's own means, and whatever its Pod does."""
    cloud = KubernetesCloud(harness.options(), None, harness.clock.clock)
    cloud.create_firewalls(FLEET, [harness.region])
    # The hard end of that fleet is past.
    launched = cloud.launch(a_request(harness))  # type: ignore[arg-type]

    def ended() -> bool:
        [one] = cloud.describe(FLEET.fleet_key, [harness.region])
        return one.state == "ended" and "DeadlineExceeded" in one.why_ended

    wait_until(ended, "end by its deadline")
    assert [one.kind for one in cloud.leftovers(FLEET.fleet_key, [harness.region])] == [
        "network-policy",
        "job",
    ]
    assert cloud.console_tail(launched, 100) == ""
    tear_down(harness)  # type: ignore[arg-type]
    assert harness.leftovers() == {}


def test_the_document_goes_once_the_key_is_pinned(harness: KubernetesHarness) -> None:
    cloud = harness.worker()
    cloud.create_firewalls(FLEET, [harness.region])
    launched = cloud.launch(a_request(harness))  # type: ignore[arg-type]
    assert len(harness.left()["secrets"]) == 1
    cloud.pin_key(launched, "ab" * 20)
    cloud.pin_key(launched, "ab" * 20)
    assert "secrets" not in harness.left()


def test_a_pod_without_a_node_says_why(harness: KubernetesHarness) -> None:
    harness.kubelet.unschedulable = True
    cloud = harness.worker()
    launched = cloud.launch(a_request(harness))  # type: ignore[arg-type]

    def said() -> str:
        [one] = cloud.describe(FLEET.fleet_key, [harness.region])
        assert (one.state, one.address) == ("starting", "")
        return one.why_ended

    assert "0/1 nodes are available" in wait_until(said, "reason")
    cloud.terminate([launched])


def test_an_instance_has_the_address_of_its_load_balancer(harness: KubernetesHarness) -> None:
    region = ClusterRegion(
        USER,
        "virginia",
        cpu=1.0,
        memory_gib=1.0,
        load_balancer=True,
        egress_cidrs=("203.0.113.7/32",),
        load_balancer_sources=("198.51.100.0/24",),
    )
    options = harness.options(regions={harness.region: region})
    cloud = KubernetesCloud(options, None, replace(harness.clock.clock, wall=lambda: 1.7e9))
    launched = cloud.launch(a_request(harness))  # type: ignore[arg-type]
    [name] = harness.left()["services"]

    def address() -> str:
        [one] = cloud.describe(FLEET.fleet_key, [harness.region])
        return one.address if one.state == "running" else "starting"

    wait_until(lambda: address() == "", "Pod that runs")
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}}
    path = f"/api/v1/namespaces/virginia/services/{name}/status"
    harness.cluster.call("PATCH", path, status)
    assert address() == "192.0.2.7"
    cloud.terminate([launched])
    assert harness.leftovers() == {}


def test_the_check_names_what_the_role_lacks_and_leaves_nothing(
    harness: KubernetesHarness,
) -> None:
    assert [found.text for found in harness.worker().check() if not found.is_ok] == []
    harness.deny("delete")
    [found] = {
        found.text
        for found in harness.worker().check()
        if not found.is_ok and "virginia" in found.text
    }
    assert "delete networkpolicies" in found
    assert harness.left() == {}
