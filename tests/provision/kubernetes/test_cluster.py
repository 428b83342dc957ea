"""What clusters alone have: network policies, deadlines, load balancers, Pods without a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.provision.fleet.test_cloud_conformance import FLEET, PEER, a_request, tear_down
from tests.provision.kubernetes.cluster import USER, wait_until
from tests.provision.kubernetes.harness import (
    NAMESPACES,
    KubernetesHarness,
    kubernetes_harness,
)
from tests.provision.kubernetes.test_contexts import credential, write_kubeconfig

from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable, QuotaExceeded
from skyplane_orchestration.provision.kubernetes import KubernetesCloud
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion

if TYPE_CHECKING:
    from tests.provision.kubernetes.cluster import Cluster

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def harness(kubernetes_cluster: Cluster) -> Iterator[KubernetesHarness]:
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


@pytest.mark.parametrize("how", ["drained", "out of memory"])
def test_a_pod_that_leaves_its_node_is_not_started_again(
    harness: KubernetesHarness, how: str
) -> None:
    """Its fleet does that, or a Pod without a transfer would run on."""
    cloud, root = harness.worker(), f"/api/v1/namespaces/{NAMESPACES[harness.region]}/pods"
    cloud.launch(a_request(harness))  # type: ignore[arg-type]
    [pod] = wait_until(lambda: harness.cluster.items(root), "Pod")
    name = pod["metadata"]["name"]
    [running] = wait_until(harness.kubelet.running, "container")
    if how == "drained":
        harness.cluster.call("POST", f"{root}/{name}/eviction", {"metadata": {"name": name}})
    else:
        status = {"reason": "Evicted", "message": "The node was low on resource: memory."}
        harness.cluster.call("PATCH", f"{root}/{name}/status", {"status": status})
        running.end(0.0)

    def ended() -> str:
        [one] = cloud.describe(FLEET.fleet_key, [harness.region])
        return one.why_ended if one.state == "ended" else ""

    why = wait_until(ended, "end")
    # A drained Pod is gone soon, and its Job does not know why it has failed.
    told = ["EvictionByEvictionAPI", "BackoffLimitExceeded"]
    if how == "out of memory":
        told = ["Evicted: The node was low on resource: memory."]
    assert any(one in why for one in told)
    assert harness.launches() == 1
    tear_down(harness)  # type: ignore[arg-type]
    assert harness.leftovers() == {}


@pytest.mark.parametrize("resource", ["count/jobs.batch", "count/secrets", "count/pods"])
def test_a_quota_of_the_namespace_is_named_and_leaves_nothing(
    harness: KubernetesHarness, resource: str
) -> None:
    path = f"/api/v1/namespaces/{NAMESPACES[harness.region]}/resourcequotas"
    harness.cluster.call("POST", path, {"metadata": {"name": "q"}, "spec": {"hard": {resource: 0}}})
    wait_until(
        lambda: resource in harness.cluster.call("GET", f"{path}/q")["status"].get("hard", {}),
        "quota that counts",
    )
    with pytest.raises(QuotaExceeded, match=rf"ResourceQuota q \({resource}\)"):
        harness.worker().launch(a_request(harness))  # type: ignore[arg-type]
    assert harness.leftovers() == {}


def test_credentials_that_end_are_renewed_by_their_plugin(
    harness: KubernetesHarness, tmp_path: Path
) -> None:
    """Also those of which nothing has said when they end."""
    call, namespace = harness.cluster.call, NAMESPACES[harness.region]
    core, rights = f"/api/v1/namespaces/{namespace}", "rbac.authorization.k8s.io"
    account = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    role = {"apiGroup": rights, "kind": "Role", "name": USER}
    binding = {"metadata": {"name": "expiring"}, "roleRef": role, "subjects": [account]}
    call("POST", f"/apis/{rights}/v1/namespaces/{namespace}/rolebindings", binding)
    secret = call("POST", f"{core}/secrets", {"metadata": {"name": "expiring"}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "expiring"}
    answer, runs, file = tmp_path / "answer", tmp_path / "runs", tmp_path / "config"

    def token(**spec: object) -> str:
        path = f"{core}/serviceaccounts/default/token"
        return str(call("POST", path, {"spec": spec})["status"]["token"])

    old = token(boundObjectRef=bound | {"uid": secret["metadata"]["uid"]})
    answer.write_text(credential(old))
    cluster = {
        "server": harness.cluster.url,
        "certificate-authority": str(harness.cluster.folder / "apiserver.crt"),
    }
    write_kubeconfig(file, cluster, f"echo run >> {runs}; cat {answer}")
    region = ClusterRegion("production", namespace)
    options = harness.options(regions={harness.region: region}, kubeconfig=str(file))
    cloud = KubernetesCloud(options)

    def look() -> object:
        return cloud.describe(FLEET.fleet_key, [harness.region])

    wait_until(lambda: _answers(look), "binding of the Role")
    call("DELETE", f"{core}/secrets/expiring")

    # The API server knows a token for some seconds more.
    wait_until(lambda: not _answers(look), "end of the token")
    answer.write_text(credential(token()))
    runs.unlink()
    for _ in range(2):
        assert look() == ()
    assert runs.read_text() == "run\n"
    call("DELETE", f"/apis/{rights}/v1/namespaces/{namespace}/rolebindings/expiring")


def _answers(look: Callable[[], object]) -> bool:
    try:
        look()
    except CloudAccessDenied:
        return False
    return True


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
