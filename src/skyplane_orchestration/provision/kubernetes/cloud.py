"""Clusters as a `Machines`."""

from __future__ import annotations

import math
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from typing import Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.dialing import Dial
from skyplane_orchestration.errors import (
    CloudUnavailable,
    ProvisionFailed,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, torn_down
from skyplane_orchestration.provision.fleet.launching import MOST_NUMBERS, none_alive, oldest_first
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    Machines,
    Reach,
    tail,
)
from skyplane_orchestration.provision.fleet.tags import KEY
from skyplane_orchestration.provision.kubernetes import manifests
from skyplane_orchestration.provision.kubernetes.checks import findings
from skyplane_orchestration.provision.kubernetes.client import (
    CONFLICT,
    EXISTS,
    FORBIDDEN,
    NOT_FOUND,
    ClusterApi,
    translate,
)
from skyplane_orchestration.provision.kubernetes.describe import instances_of
from skyplane_orchestration.provision.kubernetes.options import (
    ALPHABET,
    ClusterRegion,
    KubernetesOptions,
)
from skyplane_orchestration.provision.kubernetes.quotas import exhausted, instances_left, uses_of
from skyplane_orchestration.provision.parallel import in_parallel, in_regions
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources

_JOB: Final = "job"
#: A Job has its Pod within a second, unless nothing may make it.
_POD_WAITS_S: Final = (0.2, 0.3, 0.5, 1.0, 1.0, 2.0)


class KubernetesCloud(Machines):
    """See `Machines`. An instance is a Job with one Pod. Threads may share it.

    Args:
        sources: not used: the kubeconfig file has the credentials.
        clock: of waits.
    """

    name = "kubernetes"
    public_hosts = None

    def __init__(
        self,
        options: KubernetesOptions,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._api = ClusterApi(options, clock)

    def store_identity(self, region: str) -> str:
        return self._options.of(region).store_identity

    @property
    def named_regions(self) -> frozenset[str]:
        return frozenset(self._options.regions)

    def regions(self) -> tuple[str, ...]:
        return tuple(self._options.regions)

    def vcpus(self, region: str, instance_type: str) -> int:
        """Of a Pod: the type that a plan has in mind does not matter."""
        return self._options.of(region).processors

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return self._instances(regions, fleet=fleet_key)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        instances = self._instances(regions, deployment=deployment)
        policies = self._policies(regions, deployment=deployment)
        return instances, (*policies, *_ended_jobs(instances))

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        in_parallel(regions, lambda region: self._create_policy(tags, region))

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Nothing: workers come through the API server, and no policy keeps that from a Pod."""

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        name, place = manifests.policy_name(tags.fleet_key, region), self._options.of(region)
        rules = manifests.ingress_rules(tags, place, ingress)
        try:
            self._api.call(
                f"opening the network policy {name}",
                place,
                "patch",
                "networkpolicies",
                name,
                body={"spec": {"ingress": rules}},
                expected=(NOT_FOUND,),
            )
        except CloudRefusal as refusal:
            raise torn_down(f"the network policy {name}") from refusal

    def launch(self, request: LaunchRequest) -> Instance:
        if alive := self._alive(request):
            return alive[0]
        place = self._options.of(request.region)
        left_s = request.tags.hard_end_unix_s - self._api.clock.wall()
        for number in islice(count(request.launch_number), MOST_NUMBERS):
            body = manifests.job(request, self._options, number, max(1, math.ceil(left_s)))
            job = self._create(request, place, "jobs", body)
            if job is not None:
                self._complete(request, place, job["metadata"])
                return next(instances_of([job], (), ()))
            if alive := self._alive(request):
                if alive[0].launch_id == request.launch_id:  # The answer of its launch was lost.
                    _, name, uid = alive[0].cloud_id.split("/")
                    self._complete(request, place, {"name": name, "uid": uid})
                return alive[0]
        raise none_alive("the cluster", request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        """The document of the enrolment has done its work, and goes."""
        place, name = self._place(instance)
        what = f"writing an annotation of {instance.instance}"
        try:
            self._api.call(
                what,
                place,
                "patch",
                "jobs",
                name,
                body={"metadata": {"annotations": {ALPHABET.name(KEY): key_id}}},
                expected=(NOT_FOUND,),
            )
            self._api.call(
                f"deleting the enrolment document of {instance.instance}",
                place,
                "delete",
                "secrets",
                name,
                expected=(NOT_FOUND,),
            )
        except CloudRefusal as refusal:
            if refusal.answer.action == "patch jobs":
                raise CloudUnavailable(
                    f"{what}: the cluster does not know its Job any more; try again"
                ) from refusal

    def terminate(self, instances: Sequence[Instance]) -> None:
        in_parallel(instances, lambda one: self._delete_job(one.region, one.cloud_id, one.instance))

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        left = in_parallel(resources, self._is_left)
        return tuple(one for one, is_left in zip(resources, left, strict=True) if is_left)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        policies = self._policies(regions, fleet=fleet_key)
        return (*policies, *_ended_jobs(self.describe(fleet_key, regions)))

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        place, job = self._place(instance)
        pod = next(self._pods_of(place, job), None)
        if pod is None:
            return ""
        what, name = f"reading the log of {instance.instance}", pod["metadata"]["name"]
        query = {"tailLines": "500"}
        # A container that waits has none.
        none = NOT_FOUND, "BadRequest"
        try:
            text = self._api.call(what, place, "get", "pods/log", name, query=query, expected=none)
        except CloudRefusal:
            return ""
        return tail(text.encode(), max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return tuple(
            quota
            for region in regions
            for quota in instances_left(region, self._options.of(region), self._limits(region))
        )

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        return tuple(use for region in regions for use in uses_of(region, self._limits(region)))

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return findings(self._api, self._options, deployment)

    def reach_of(self, region: str) -> Reach:
        place = self._options.of(region)
        return Reach(place.reach, place.load_balancer, place.egress_cidrs)

    def dial_to(self, fleet_key: str, instance: str) -> Dial:
        """Through the API server, so nothing of a Pod is open to workers."""
        place = self._options.of(instance.rpartition("/")[0])

        labels = manifests.selector(fleet=fleet_key, instance=instance)

        def forwarded(host: str, port: int, timeout_s: float) -> socket.socket:
            return self._api.port_forward(place, labels, port, timeout_s)

        return forwarded

    # -- requests

    def _instances(self, regions: Iterable[str], **labels: str) -> tuple[Instance, ...]:
        def of_region(region: str) -> list[Instance]:
            what, place = f"looking for fleets in {region}", self._options.of(region)
            query = manifests.selector(region=region, **labels)
            # A Pod that ends between the two lists is not missed: its Job stays.
            jobs = list(self._api.items(what, place, "jobs", labelSelector=query))
            if not jobs:
                return []
            pods = self._api.items(what, place, "pods", labelSelector=query)
            services: Iterable[Mapping[str, Any]] = ()
            if place.load_balancer:
                services = self._api.items(what, place, "services", labelSelector=query)
            return [
                one
                for one in instances_of(jobs, pods, services)
                # Labels are digests of some texts.
                if labels.items() <= {**one.tags.to_texts(), "instance": one.instance}.items()
            ]

        return tuple(one for found in in_regions(regions, of_region) for one in found)

    def _policies(self, regions: Iterable[str], **labels: str) -> tuple[FleetResource, ...]:
        def of_region(region: str) -> Iterator[FleetResource]:
            found = self._api.items(
                f"looking for network policies in {region}",
                self._options.of(region),
                "networkpolicies",
                labelSelector=manifests.selector(region=region, **labels),
            )
            for item in found:
                meta = item["metadata"]
                tags = ALPHABET.fleet_of(meta.get("annotations"))
                if tags is not None and labels.items() <= tags.to_texts().items():
                    yield FleetResource("network-policy", meta["name"], region, tags)

        found = in_regions(regions, lambda region: list(of_region(region)))
        return tuple(one for policies in found for one in policies)

    def _alive(self, request: LaunchRequest) -> list[Instance]:
        """The instances of the name of a request, the oldest first."""
        fleet = self._instances(
            [request.region], fleet=request.tags.fleet_key, instance=request.instance
        )
        return oldest_first(one for one in fleet if one.is_alive)

    def _create(
        self, request: LaunchRequest, place: ClusterRegion, resource: str, body: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """None: it is there. Raises QuotaExceeded."""
        what = f"launching {request.instance}"
        try:
            made: Mapping[str, Any] = self._api.call(
                what, place, "create", resource, body=body, expected=(EXISTS, FORBIDDEN)
            )
        except CloudRefusal as refusal:
            if refusal.code == EXISTS:
                return None
            # A quota and a missing permission have the same code.
            if quota := exhausted(place, self._limits(request.region), resource):
                raise _beyond(quota, request.region) from refusal
            raise translate(refusal.answer, what) from refusal
        return made

    def _complete(
        self, request: LaunchRequest, place: ClusterRegion, job: Mapping[str, Any]
    ) -> None:
        """Create what a Job owns, and await its Pod; after an error the Job is deleted.

        Args:
            job: its metadata.
        """
        owned = {"secrets": manifests.secret(request, self._options, job)}
        if place.load_balancer:
            owned["services"] = manifests.service(request, self._options, job)
        try:
            for resource, body in owned.items():
                self._create(request, place, resource, body)
            self._await_pod(request, place, job)
        except SkyplaneError:
            # A refusal says to callers that no instance can appear.
            cloud_id = f"{place.namespace}/{job['name']}/{job['uid']}"
            self._delete_job(request.region, cloud_id, request.instance)
            raise

    def _await_pod(
        self, request: LaunchRequest, place: ClusterRegion, job: Mapping[str, Any]
    ) -> None:
        """Raises QuotaExceeded, ProvisionFailed: nothing makes its Pod."""
        for wait_s in _POD_WAITS_S:
            if next(self._pods_of(place, job["name"]), None) is not None:
                return
            self._api.clock.sleep(wait_s)
        events = self._api.items(
            f"launching {request.instance}",
            place,
            "events",
            fieldSelector=f"involvedObject.uid={job['uid']},reason=FailedCreate",
        )
        said = [event.get("message", "") for event in events]
        if not said:
            return  # The controller of Jobs is slow.
        if quota := exhausted(place, self._limits(request.region), "pods"):
            raise _beyond(quota, request.region)
        raise ProvisionFailed(
            f"launching {request.instance}: the cluster makes no Pod in namespace"
            f" {place.namespace}: {said[-1]}"
        )

    def _pods_of(self, place: ClusterRegion, job: str) -> Iterator[Mapping[str, Any]]:
        return self._api.items(
            f"looking for the Pod of {job}",
            place,
            "pods",
            labelSelector=f"{manifests.JOB_NAME}={job}",
        )

    def _create_policy(self, tags: FleetTags, region: str) -> None:
        place = self._options.of(region)
        body = manifests.policy(tags, region, self._options)
        name = body["metadata"]["name"]
        what = f"creating the network policy {name}"
        try:
            self._api.call(what, place, "create", "networkpolicies", body=body, expected=(EXISTS,))
        except CloudRefusal:
            found = self._api.call(what, place, "get", "networkpolicies", name)
            ALPHABET.check_owner(
                f"network policy {name}", found["metadata"].get("annotations"), tags
            )

    def _is_left(self, resource: FleetResource) -> bool:
        """Delete an ended Job, or a policy unless Pods that it protects still run."""
        if resource.kind == _JOB:
            self._delete_job(resource.region, resource.cloud_id, resource.cloud_id)
            return False
        alive = self._instances([resource.region], fleet=resource.tags.fleet_key)
        if any(one.state != "ended" for one in alive):
            return True
        with suppress(CloudRefusal):
            self._api.call(
                f"deleting the network policy {resource.cloud_id}",
                self._options.of(resource.region),
                "delete",
                "networkpolicies",
                resource.cloud_id,
                expected=(NOT_FOUND,),
            )
        return False

    def _delete_job(self, region: str, cloud_id: str, instance: str) -> None:
        """It stays until its Pod has ended; a Job of the same name that follows it stays."""
        _, name, uid = cloud_id.split("/")
        with suppress(CloudRefusal):
            self._api.call(
                f"ending {instance}",
                self._options.of(region),
                "delete",
                "jobs",
                name,
                body={"propagationPolicy": "Foreground", "preconditions": {"uid": uid}},
                expected=(NOT_FOUND, CONFLICT),
            )

    def _place(self, instance: Instance) -> tuple[ClusterRegion, str]:
        """Where an instance is, and the name of its Job."""
        return self._options.of(instance.region), instance.cloud_id.split("/")[1]

    def _limits(self, region: str) -> list[Mapping[str, Any]]:
        """The ResourceQuotas of a region's namespace."""
        what = f"reading the quotas of {region}"
        return list(self._api.items(what, self._options.of(region), "resourcequotas"))


def _ended_jobs(instances: Iterable[Instance]) -> tuple[FleetResource, ...]:
    """Jobs that have ended by themselves stay, with the logs of their Pods."""
    return tuple(
        FleetResource(_JOB, one.cloud_id, one.region, one.tags)
        for one in instances
        if one.state == "ended"
    )


def _beyond(quota: str, region: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"{quota} in {region} is used up: end other Pods, plan with fewer instances, or ask who"
        " runs the cluster for more",
        quota=quota,
    )
