"""What a fleet has in a cluster, as it is sent to the API server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress, LaunchRequest
from skyplane_orchestration.provision.kubernetes import KubernetesOptions, manifests
from skyplane_orchestration.provision.kubernetes.describe import instances_of
from skyplane_orchestration.provision.kubernetes.options import ClusterRegion

GOLDEN: Final = Path(__file__).parent / "golden"
REGION: Final = "aws:eu-west-1"
IMAGE: Final = f"registry.example/skyplane-gateway@sha256:{'ab' * 32}"
TAGS: Final = FleetTags("ab" * 16, "prod eu=*", 1, 1_700_000_000, 1_700_086_400, 2)
REQUEST: Final = LaunchRequest(
    TAGS, f"{REGION}/0", REGION, "c7gn.large", "1a" * 16, 0, "the document", is_end=True
)
OPTIONS: Final = KubernetesOptions(
    {
        REGION: ClusterRegion(
            "production",
            "replication",
            service_account="gateway",
            store_identity="s3",
            node_selector={"pool": "transfer"},
            tolerations=({"key": "transfer", "operator": "Exists"},),
            pull_secrets=("registry",),
            egress_cidrs=("203.0.113.7/32",),
            load_balancer=True,
            load_balancer_sources=("198.51.100.0/24",),
            load_balancer_annotations={"example.com/scheme": "internal"},
        )
    },
    image=IMAGE,
    user_labels={"team": "data"},
)
OWNER: Final = {"name": "skyplane-1-0", "uid": "u-1"}


def test_all_that_an_instance_has_is_as_agreed() -> None:
    made = [
        manifests.job(REQUEST, OPTIONS, 0, 86_400),
        manifests.secret(REQUEST, OPTIONS, OWNER),
        manifests.service(REQUEST, OPTIONS, OWNER),
        manifests.policy(TAGS, REGION, OPTIONS),
    ]
    # As it is sent: YAML would name what several objects share.
    sent = json.loads(json.dumps(made))
    text = yaml.safe_dump_all(sent, sort_keys=False, width=100)
    assert text == (GOLDEN / "instance.yaml").read_text()


def test_an_image_with_a_python_runs_the_script_beside_the_document() -> None:
    options = replace(OPTIONS, image="", python_image=IMAGE)
    spec = manifests.job(REQUEST, options, 0, 1)["spec"]["template"]["spec"]
    container = spec["containers"][0]
    assert (container["command"], "args" in container) == (["sh", "/run/skyplane/boot"], False)
    assert {one["mountPath"] for one in container["volumeMounts"]} == {
        *("/tmp", "/var/tmp", "/run/skyplane")
    }
    request = replace(REQUEST, user_data="the document\nthe\nscript\n")
    assert manifests.secret(request, options, OWNER)["stringData"] == {
        "document": "the document",
        "boot": "the\nscript\n",
    }


def test_a_relay_has_no_identity() -> None:
    relay = LaunchRequest(TAGS, f"{REGION}/0", REGION, "", "", 0, "", is_end=False)
    spec = manifests.job(relay, OPTIONS, 0, 1)["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec


def test_the_name_of_a_job_is_the_same_for_all_workers_and_another_for_each_launch() -> None:
    one = manifests.job_name(TAGS.fleet_key, REQUEST.instance, 0)
    assert one == manifests.job_name(TAGS.fleet_key, REQUEST.instance, 0)
    others = {
        manifests.job_name(TAGS.fleet_key, REQUEST.instance, 1),
        manifests.job_name(TAGS.fleet_key, f"{REGION}/1", 0),
        manifests.job_name("cd" * 16, REQUEST.instance, 0),
    }
    assert len({one, *others}) == 4
    assert max(map(len, others)) < 57  # A Pod adds a hyphen and five letters; a label has 63.


def test_a_policy_names_peers_of_the_cluster_and_addresses_of_others() -> None:
    """Some networks take a range of addresses for what is outside of the cluster."""
    place = ClusterRegion()
    peers, *others = manifests.ingress_rules(TAGS, place, [Ingress(7601, 7602, "10.0.0.7/32")])
    assert [set(source) for source in peers["from"]] == [{"namespaceSelector", "podSelector"}]
    assert peers["ports"] == [{"protocol": "TCP", "port": 7601, "endPort": 7604}]
    assert others == [
        {
            "from": [{"ipBlock": {"cidr": "10.0.0.7/32"}}],
            "ports": [{"protocol": "TCP", "port": 7601, "endPort": 7602}],
        }
    ]


def found(status: dict[str, Any], pod: dict[str, Any] | None, **meta: Any) -> Any:
    job = manifests.job(REQUEST, OPTIONS, 0, 1)
    times = {"creationTimestamp": "2026-11-28T09:30:26Z"}
    job["metadata"] |= {"namespace": "replication", "uid": "u-1"} | times | meta
    label = {manifests.JOB_NAME: job["metadata"]["name"]}
    pods = [] if pod is None else [{"metadata": {"labels": label} | times, "status": pod}]
    [one] = instances_of([job | {"status": status}], pods, ())
    return one


FAILED: Final = {
    "conditions": [
        {
            "type": "Failed",
            "status": "True",
            "reason": "DeadlineExceeded",
            "message": "Job was active longer than specified deadline",
        }
    ]
}


@pytest.mark.parametrize(
    ("status", "pod", "meta", "state", "why"),
    [
        ({}, None, {}, "starting", ""),
        ({}, {"phase": "Pending"}, {}, "starting", ""),
        ({}, {"phase": "Running", "podIP": "10.0.0.7"}, {}, "running", ""),
        ({}, {"phase": "Running"}, {"deletionTimestamp": "x"}, "ending", ""),
        (FAILED, {"phase": "Running"}, {}, "ending", "DeadlineExceeded: Job was active longer"),
        (FAILED, None, {}, "ended", "DeadlineExceeded"),
        (
            {},
            {
                "phase": "Pending",
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available",
                    }
                ],
            },
            {},
            "starting",
            "Unschedulable: 0/3 nodes are available",
        ),
        (
            {},
            {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
            {},
            "starting",
            "ImagePullBackOff",
        ),
        (
            {},
            {
                "phase": "Failed",
                "containerStatuses": [
                    {"state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
                ],
            },
            {},
            "ended",
            "OOMKilled with status 137",
        ),
    ],
)
def test_the_state_of_an_instance(
    status: dict[str, Any], pod: dict[str, Any] | None, meta: dict[str, Any], state: str, why: str
) -> None:
    one = found(status, pod, **meta)
    assert (one.state, one.tags, one.instance, one.region) == (
        state,
        TAGS,
        REQUEST.instance,
        REGION,
    )
    assert one.why_ended.startswith(why)
    assert one.address == ("10.0.0.7" if state == "running" else "")
    assert one.launched_unix_s == 1795858226.0
