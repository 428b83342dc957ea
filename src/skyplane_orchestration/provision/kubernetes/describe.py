"""What Jobs and their Pods say of instances. Nothing here calls the API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from skyplane_orchestration.provision.fleet.machines import Instance, InstanceState
from skyplane_orchestration.provision.kubernetes.manifests import JOB_NAME, REGION
from skyplane_orchestration.provision.kubernetes.options import ALPHABET

Found = Mapping[str, Any]

#: Conditions of a Pod that tell why it does not run: it waits for a node, or is evicted.
_TOLD: Final = (("PodScheduled", "False"), ("DisruptionTarget", "True"))


def instances_of(
    jobs: Iterable[Found], pods: Iterable[Found], services: Iterable[Found]
) -> Iterator[Instance]:
    """The instances of fleets that Jobs are, with Pods and Services of their namespace.

    An instance with a Service of its own has the address of that.
    """
    by_job: dict[str, list[Found]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels") or {}
        by_job.setdefault(labels.get(JOB_NAME, ""), []).append(pod)
    balanced = {one["metadata"]["name"]: _balancer(one) for one in services}
    for job in jobs:
        its = by_job.get(job["metadata"]["name"], [])
        # Of two Pods, the newer one counts: a Job replaces one that its node has lost.
        its.sort(key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
        found = _instance_of(job, its)
        if found is not None:
            name = job["metadata"]["name"]
            is_placed = name in balanced and found.address
            yield replace(found, address=balanced[name]) if is_placed else found


def _balancer(service: Found) -> str:
    """Empty until its cloud has made it."""
    for one in service.get("status", {}).get("loadBalancer", {}).get("ingress") or []:
        return str(one.get("ip") or one.get("hostname") or "")
    return ""


def _instance_of(job: Found, pods: Sequence[Found]) -> Instance | None:
    meta = job["metadata"]
    pod = pods[-1] if pods else None
    state = _state(job, pod)
    is_there = pod is not None and state == "running"
    annotations = meta.get("annotations") or {}
    return ALPHABET.instance_of(
        annotations,
        ALPHABET.value(annotations, REGION),
        cloud_id=f"{meta['namespace']}/{meta['name']}/{meta['uid']}",
        state=state,
        address=pod["status"].get("podIP", "") if pod is not None and is_there else "",
        # As `2026-11-28T09:30:26Z`.
        launched_unix_s=datetime.fromisoformat(meta["creationTimestamp"]).timestamp(),
        why_ended="; ".join(_reasons(job, pod)),
    )


def _state(job: Found, pod: Found | None) -> InstanceState:
    if job["metadata"].get("deletionTimestamp"):
        return "ending"
    phase = "" if pod is None else pod["status"].get("phase", "")
    is_over = any(condition["type"] in ("Complete", "Failed") for condition in _true(job))
    if phase in ("Succeeded", "Failed") or (is_over and pod is None):
        return "ended"
    if is_over or (pod is not None and pod["metadata"].get("deletionTimestamp")):
        return "ending"
    return "running" if phase == "Running" else "starting"


def _true(item: Found) -> list[Found]:
    found = item.get("status", {}).get("conditions") or []
    return [condition for condition in found if condition["status"] == "True"]


def _reasons(job: Found, pod: Found | None) -> Iterator[str]:
    """Why an instance has ended, or does not start."""
    for condition in _true(job):
        if condition["type"] == "Failed":
            yield _said(condition)
    if pod is None:
        return
    status = pod["status"]
    if status.get("reason") or status.get("message"):
        yield _said(status)
    for condition in status.get("conditions") or []:
        if (condition["type"], condition["status"]) in _TOLD:
            yield _said(condition)
    for container in status.get("containerStatuses") or []:
        for kind in ("waiting", "terminated"):
            if found := container.get("state", {}).get(kind):
                code = f" with status {found['exitCode']}" if "exitCode" in found else ""
                yield _said(found) + code


def _said(item: Found) -> str:
    return ": ".join(filter(None, (item.get("reason", ""), item.get("message", ""))))
