"""A real API server for the conformance suites of clouds."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import urllib3
from kubernetes.client.exceptions import ApiException
from tests.manual_clock import ManualClock
from tests.provision.fleet.cloud_harness import (
    DELETE,
    DESCRIBE,
    DISKS,
    FIREWALLS,
    LAUNCH,
    NO_SUCH_TYPE,
    OPEN,
    TERMINATE,
    ZONES,
)
from tests.provision.kubernetes.cluster import USER, Cluster, cluster, wait_until
from tests.provision.kubernetes.kubelet import Kubelet
from tests.provision.kubernetes.pods import MachinePods
from tests.provision.situations import NO_CAPACITY, SLOW_VISIBILITY

from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)
from skyplane_orchestration.provision.kubernetes import KubernetesCloud, KubernetesOptions
from skyplane_orchestration.provision.kubernetes.checks import OF_BALANCERS, PERMISSIONS
from skyplane_orchestration.provision.kubernetes.client import GROUPS
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion
from strict_clouds.machines import MachineBooter

IMAGE: Final = "registry.example/skyplane-gateway@sha256:" + "ab" * 32
NAMESPACES: Final = {
    "aws:us-east-1": "virginia",
    "aws:eu-west-3": "paris",
    "gcp:us-central1": "iowa",
}
_OTHER: Final = {"name": "other", "image": "other"}
_ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
_POLICIES: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
#: Before the hard end of the suite's fleets.
_BEFORE_UNIX_S: Final = 1_700_000_000.0
#: Seconds that pass here for each second of a wait: the cluster's controllers take real time.
_PACE: Final = 0.2
_LONGEST_S: Final = 0.4

#: Verb of a harness -> verb and resource of the API.
_CALLS: Final = {
    LAUNCH: ("create", "jobs"),
    DESCRIBE: ("list", "jobs"),
    TERMINATE: ("delete", "jobs"),
    OPEN: ("create", "networkpolicies"),
    DELETE: ("delete", "networkpolicies"),
}
_METHODS: Final = {"create": "post", "list": "get", "delete": "delete"}


class PacedClock(ManualClock):
    """Moves on by the whole of a wait, and really waits a part of it."""

    def advance(self, seconds: float) -> None:
        time.sleep(min(_PACE * seconds, _LONGEST_S))
        super().advance(seconds)


class Worker(KubernetesCloud):
    """`terminate` waits for the end of Pods, unless the node holds them.

    The hard end of the suite's fleets is past, and the controllers know the time of day.
    """

    def __init__(self, harness: KubernetesHarness, options: KubernetesOptions) -> None:
        early = replace(harness.clock.clock, wall=lambda: _BEFORE_UNIX_S)
        super().__init__(options, None, early)
        self._harness = harness
        inner = self._api._dynamic

        def disturbed(context: str) -> Any:
            return _Disturbed(inner(context), harness)

        self._api._dynamic = disturbed  # type: ignore[method-assign]

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        found = super().describe(fleet_key, regions)
        self._harness.described()
        return found

    def terminate(self, instances: Sequence[Instance]) -> None:
        super().terminate(instances)
        if not self._harness.kubelet.holds_ending:
            wait_until(
                lambda: not any(self._harness.job_of(one) for one in instances), "end of Jobs"
            )


class _Disturbed:
    """The client library, whose server throttles, or whose network loses an answer."""

    def __init__(self, library: Any, harness: KubernetesHarness) -> None:
        self._library, self._harness, self.client = library, harness, library.client

    def request(self, method: str, path: str, **more: Any) -> Any:
        harness = self._harness
        for verb, left in harness.throttled.items():
            if left and _is_call(verb, method, path):
                harness.throttled[verb] -= 1
                raise ApiException(status=429, reason="Too Many Requests")
        answer = self._library.request(method, path, **more)
        for verb in harness.lost:
            # The firewall is opened by another verb than it is made.
            if _is_call(verb, method, path) or (verb == OPEN and method == "PATCH"):
                harness.lost.remove(verb)
                raise urllib3.exceptions.ProtocolError("the connection broke")
        return answer


def _is_call(verb: str, method: str, path: str) -> bool:
    name, resource = _CALLS[verb]
    return method.lower() == _METHODS[name] and f"/{resource}" in path


class KubernetesHarness:
    """See `CloudHarness`."""

    region, other_region, third_region = NAMESPACES
    closed_region = "aws:af-south-1"
    instance_type = "c7gn.large"
    vcpus = 1
    quota_name = "requests.cpu"
    lacks: Mapping[str, str] = {
        SLOW_VISIBILITY: "etcd shows a thing to everybody as soon as it is there",
        NO_CAPACITY: "a Pod without a node waits for one, and its fleet's deadline tells",
        ZONES: "a scheduler chooses the node",
        NO_SUCH_TYPE: "a Pod gets what the options say",
        FIREWALLS: "workers need no rule, and `test_policies.py` has the others",
        DISKS: "a Pod's volumes end with it",
    }

    def __init__(self, made: Cluster, kubelet: Kubelet) -> None:
        self.cluster, self.kubelet = made, kubelet
        self.clock = PacedClock(time.time())
        self.throttled: dict[str, int] = {}
        self.lost: list[str] = []
        self._ends_after = 0
        self._seen_before = len(kubelet.seen)
        self.grant({**PERMISSIONS, **OF_BALANCERS})

    def options(self, **changes: Any) -> KubernetesOptions:
        regions = {
            region: ClusterRegion(USER, namespace, cpu=1.0, memory_gib=1.0)
            for region, namespace in NAMESPACES.items()
        }
        return KubernetesOptions(
            **{"regions": regions, "image": IMAGE, "kubeconfig": str(self.cluster.kubeconfig)}
            | changes
        )

    def worker(self) -> Machines:
        return Worker(self, self.options())

    def grant(self, permissions: Mapping[str, Sequence[str]]) -> None:
        """The Role of who provisions, once the API server goes by it."""
        rules = [
            {
                "apiGroups": [GROUPS.get(resource.partition("/")[0], "")],
                "resources": [resource],
                "verbs": list(verbs),
            }
            for resource, verbs in permissions.items()
        ]
        for namespace in NAMESPACES.values():
            self.cluster.make_namespace(namespace)
            self._put(namespace, "roles", {"metadata": {"name": USER}, "rules": rules})
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER}
            subject = {"apiGroup": reference["apiGroup"], "kind": "User", "name": USER}
            binding = {"metadata": {"name": USER}, "roleRef": reference, "subjects": [subject]}
            self._put(namespace, "rolebindings", binding)
            for verb, resource in _CALLS.values():
                wanted = verb in permissions.get(resource, ())

                def is_so(
                    place: str = namespace,
                    what: tuple[str, str] = (verb, resource),
                    wanted: bool = wanted,
                ) -> bool:
                    return self._may(place, *what) == wanted

                wait_until(is_so, f"permission to {verb} {resource}")

    def _put(self, namespace: str, resource: str, body: Mapping[str, Any]) -> None:
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{resource}"
        name = body["metadata"]["name"]
        if self.cluster.call("GET", f"{path}/{name}") is None:
            self.cluster.call("POST", path, body)
        elif resource == "roles":
            self.cluster.call("PATCH", f"{path}/{name}", body)

    def _may(self, namespace: str, verb: str, resource: str) -> bool:
        attributes = {
            **{"namespace": namespace, "verb": verb, "resource": resource},
            "group": GROUPS.get(resource, ""),
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        answer = self.cluster.call("POST", path, {"spec": {"resourceAttributes": attributes}}, USER)
        return bool(answer["status"]["allowed"])

    # -- disturbances

    def hide_new(self, calls: int) -> None:
        """Nothing: see `lacks`."""

    def end_slowly(self, calls: int) -> None:
        self.kubelet.holds_ending = True
        self._ends_after = calls

    def described(self) -> None:
        if self.kubelet.holds_ending and self._is_ending():
            self._ends_after -= 1
            if self._ends_after <= 0:
                self.kubelet.holds_ending = False
                wait_until(lambda: not self._is_ending(), "end of Jobs")

    def _is_ending(self) -> bool:
        return any("deletionTimestamp" in job["metadata"] for job in self._all("jobs"))

    def lose_reply(self, verb: str) -> None:
        self.lost.append(verb)

    def throttle(self, verb: str, times: int) -> None:
        self.throttled[verb] = times

    def deny(self, verb: str) -> str:
        name, resource = _CALLS[verb]
        left = tuple(one for one in PERMISSIONS[resource] if one != name)
        self.grant({**PERMISSIONS, resource: left})
        return f"{name} {resource}"

    def forbid_launches(self) -> str:
        """The cluster has a policy for what Jobs may be."""
        said = "Pods with these images are not allowed here"
        rule = {
            "apiGroups": ["batch"],
            **{"apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]},
        }
        policy = {
            "metadata": {"name": USER},
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "false", "message": said}],
            },
        }
        binding = {
            "metadata": {"name": USER},
            "spec": {"policyName": USER, "validationActions": ["Deny"]},
        }
        for kind, body in zip(_POLICIES, (policy, binding), strict=True):
            self.cluster.call("POST", f"{_ADMISSION}/{kind}", body)
        template = {"spec": {"restartPolicy": "Never", "containers": [_OTHER]}}
        job = {"metadata": {"name": "trial"}, "spec": {"template": template}}
        path = f"/apis/batch/v1/namespaces/{NAMESPACES[self.region]}/jobs?dryRun=All"

        def is_in_force() -> bool:
            try:
                self.cluster.call("POST", path, job)
            except AssertionError as error:
                return said in str(error)
            return False

        wait_until(is_in_force, "policy that is in force")
        return said

    def set_quota(self, vcpus: int) -> None:
        for namespace in NAMESPACES.values():
            path = f"/api/v1/namespaces/{namespace}/resourcequotas"
            body = {"metadata": {"name": "pods"}, "spec": {"hard": {"requests.cpu": str(vcpus)}}}
            if self.cluster.call("GET", f"{path}/pods") is None:
                self.cluster.call("POST", path, body)
            else:
                self.cluster.call("PATCH", f"{path}/pods", body)

            def is_known(path: str = path) -> bool:
                found = self.cluster.call("GET", f"{path}/pods")["status"]
                return str(found.get("hard", {}).get("requests.cpu")) in (str(vcpus), "1k")

            wait_until(is_known, f"quota of {namespace}")

    def unknown_id(self, instance: Instance) -> str:
        return f"{instance.cloud_id}0".replace("skyplane-", "skyplane-0")

    def end_by_hand(self, instance: Instance) -> None:
        namespace, job, _ = instance.cloud_id.split("/")
        for pod in self._all("pods"):
            if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") == job:
                name = pod["metadata"]["name"]
                self.cluster.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}")

        def is_over() -> bool:
            found = self.job_of(instance)
            conditions = (found or {}).get("status", {}).get("conditions", [])
            return found is None or any(one["type"] == "Failed" for one in conditions)

        wait_until(is_over, "failure of its Job")

    def launch_foreign(self, name: str) -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [_OTHER]}}
        job = {"metadata": {"name": "foreign"}, "spec": {"suspend": True, "template": template}}
        policy = {"metadata": {"name": "foreign"}, "spec": {"podSelector": {}}}
        namespace = NAMESPACES[self.region]
        self.cluster.call("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", job)
        path = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        self.cluster.call("POST", path, policy)

    def foreign_is_there(self) -> bool:
        return all(
            "foreign" in [one["metadata"]["name"] for one in self._all(kind)]
            for kind in ("jobs", "networkpolicies")
        )

    # -- looks

    def job_of(self, instance: Instance) -> dict[str, Any] | None:
        namespace, name, uid = instance.cloud_id.split("/")
        found: dict[str, Any] | None
        found = self.cluster.call("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}")
        return found if found is not None and found["metadata"]["uid"] == uid else None

    def firewall(self, region: str) -> set[Ingress]:
        found: set[Ingress] = set()
        for policy in self._all("networkpolicies", NAMESPACES[region]):
            for rule in policy["spec"].get("ingress", []):
                for source in rule["from"]:
                    if "ipBlock" in source:
                        ports = rule["ports"][0]
                        cidr = source["ipBlock"]["cidr"]
                        found.add(Ingress(ports["port"], ports["endPort"], cidr))
        return found

    def name_of(self, resource: FleetResource) -> str:
        return "firewall"

    def launches(self) -> int:
        uids = {pod["metadata"]["uid"] for pod in self._all("pods")}
        wait_until(lambda: uids <= self.kubelet.seen, "start of Pods")
        return len(self.kubelet.seen) - self._seen_before

    def leftovers(self) -> dict[str, list[str]]:
        """What is left once the cluster has had time to collect what Jobs owned."""
        deadline_s = time.monotonic() + 15
        while (left := self.left()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return left

    def left(self) -> dict[str, list[str]]:
        found = {
            kind: [one["metadata"]["name"] for one in self._all(kind)]
            for kind in ("jobs", "pods", "secrets", "networkpolicies", "services")
        }
        return {kind: names for kind, names in found.items() if names}

    def _all(self, kind: str, namespace: str = "") -> list[dict[str, Any]]:
        group = GROUPS.get(kind, "")
        root = f"/apis/{group}/v1" if group else "/api/v1"
        chosen = [namespace] if namespace else list(NAMESPACES.values())
        return [
            one
            for place in chosen
            for one in self.cluster.items(f"{root}/namespaces/{place}/{kind}")
        ]

    def clear(self) -> None:
        """Delete all that a test has left."""
        self.kubelet.holds_ending = self.kubelet.unschedulable = False
        self.kubelet.unpullable = False
        for kind in _POLICIES:
            self.cluster.call("DELETE", f"{_ADMISSION}/{kind}/{USER}")
        for namespace in NAMESPACES.values():
            for root, kind in (
                ("/apis/batch/v1", "jobs"),
                ("/apis/networking.k8s.io/v1", "networkpolicies"),
                ("/api/v1", "resourcequotas"),
            ):
                body = {"propagationPolicy": "Foreground"}
                self.cluster.call("DELETE", f"{root}/namespaces/{namespace}/{kind}", body)
        wait_until(lambda: not self.left(), "empty cluster")


@contextmanager
def shared_cluster() -> Iterator[Cluster]:
    """One for the tests of a process: it takes seconds to start."""
    folder = tempfile.mkdtemp(prefix="cluster-", dir="/dev/shm")
    try:
        with cluster(Path(folder)) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def kubernetes_harness(
    made: Cluster, machines: MachineBooter | None = None
) -> Iterator[KubernetesHarness]:
    """A harness on a cluster whose Pods are these machines; for None they only are there."""
    with ExitStack() as stack:
        kubelet = Kubelet(made, MachinePods(machines), made.folder)
        kubelet.start()
        stack.callback(kubelet.stop)
        harness = KubernetesHarness(made, kubelet)
        stack.callback(harness.clear)
        yield harness
