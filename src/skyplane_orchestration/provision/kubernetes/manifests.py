"""What a fleet has in a cluster, as objects of the API. Nothing here calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from skyplane_orchestration.provision.container import CONTAINER_USER
from skyplane_orchestration.provision.fleet.ingress_rules import by_ports, normal
from skyplane_orchestration.provision.fleet.machines import (
    FleetTags,
    Ingress,
    LaunchRequest,
    control_port,
    data_port,
)
from skyplane_orchestration.provision.fleet.tags import INSTANCE, LAUNCH
from skyplane_orchestration.provision.kubernetes.options import (
    ALPHABET,
    ClusterRegion,
    KubernetesOptions,
    label_of,
)
from skyplane_orchestration.units import BYTES_PER_GIB, BYTES_PER_MIB, SECONDS_PER_HOUR

#: The annotation with the region tag.
REGION: Final = "region"
#: A Job's Pods carry its name under this label since Kubernetes 1.27.
JOB_NAME: Final = "batch.kubernetes.io/job-name"
CONTAINER: Final = "gateway"

#: The two parts of the user data: a line, and for an image without a gateway a script.
_DOCUMENT: Final = "document"
_SCRIPT: Final = "boot"
_ENROLMENT: Final = "/run/skyplane"
_NAME_CHARACTERS: Final = 20

Manifest = dict[str, Any]


def selector(**texts: str) -> str:
    """The selector of what has these labels: `fleet`, `deployment`, `region`, `instance`."""
    return ",".join(f"{name}={value}" for name, value in _labels(**texts).items())


def job_name(fleet_key: str, instance: str, number: int) -> str:
    """The same for every worker, so that two of them cannot launch an instance twice."""
    return f"skyplane-{label_of(f'{fleet_key} {instance}')[:_NAME_CHARACTERS]}-{number}"


def policy_name(fleet_key: str, region: str) -> str:
    return f"skyplane-{label_of(f'{fleet_key} {region}')[:_NAME_CHARACTERS]}"


def job(
    request: LaunchRequest, options: KubernetesOptions, number: int, deadline_s: int
) -> Manifest:
    """The Job of an instance: one Pod, which is never started again.

    Args:
        number: of the launch, a part of its name.
        deadline_s: after its start, whatever happens.
    """
    region = options.of(request.region)
    tags, labels = request.tags, _of_instance(request, options)
    more = {INSTANCE: request.instance, REGION: request.region, LAUNCH: request.launch_id}
    name = job_name(tags.fleet_key, request.instance, number)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": ALPHABET.written(tags, {}, **more),
        },
        "spec": {
            "activeDeadlineSeconds": deadline_s,
            # So long an ended Job stays, for the end of its log.
            "ttlSecondsAfterFinished": int(SECONDS_PER_HOUR),
            "backoffLimit": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": _pod_spec(options, region, name, has_identity=request.is_end),
            },
        },
    }


def _pod_spec(
    options: KubernetesOptions, region: ClusterRegion, secret: str, *, has_identity: bool
) -> Manifest:
    account = region.service_account if has_identity else ""
    resources = {
        "cpu": f"{round(region.cpu * 1000)}m",
        "memory": f"{round(region.memory_gib * BYTES_PER_GIB / BYTES_PER_MIB)}Mi",
    }
    spec: Manifest = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": bool(account),
        # A gateway gives its cleanup 30 s before it leaves.
        "terminationGracePeriodSeconds": 40,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": CONTAINER_USER,
            "runAsGroup": CONTAINER_USER,
            # Files of volumes are root's, and readable for this group.
            "fsGroup": CONTAINER_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": CONTAINER,
                **_program(options),
                "resources": {"requests": resources, "limits": resources},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "tmp", "mountPath": "/tmp"},
                    {"name": "enrolment", "mountPath": _ENROLMENT, "readOnly": True},
                ],
            }
        ],
        "volumes": [
            # Keys are in memory only.
            {"name": "tmp", "emptyDir": {"medium": "Memory"}},
            {"name": "enrolment", "secret": {"secretName": secret, "defaultMode": 0o440}},
        ],
    }
    if options.python_image:
        spec["volumes"].append({"name": "software", "emptyDir": {}})
        mount = {"name": "software", "mountPath": "/var/tmp"}
        spec["containers"][0]["volumeMounts"].append(mount)
    if account:
        spec["serviceAccountName"] = account
    if region.node_selector:
        spec["nodeSelector"] = dict(region.node_selector)
    if region.tolerations:
        spec["tolerations"] = [dict(one) for one in region.tolerations]
    if region.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in region.pull_secrets]
    return spec


def _program(options: KubernetesOptions) -> Manifest:
    """A port-forward arrives at the loopback address of the Pod, peers at its own."""
    if options.python_image:
        return {"image": options.python_image, "command": ["sh", f"{_ENROLMENT}/{_SCRIPT}"]}
    words = ("enrol", "--address", "0.0.0.0", "--document", f"{_ENROLMENT}/{_DOCUMENT}")
    environment = [{"name": "TMPDIR", "value": "/tmp"}]
    return {"image": options.image, "args": list(words), "env": environment}


def secret(
    request: LaunchRequest, options: KubernetesOptions, owner: Mapping[str, Any]
) -> Manifest:
    """The enrolment document of an instance, which ends with its Job.

    Args:
        owner: metadata of the Job.
    """
    texts = zip((_DOCUMENT, _SCRIPT), request.user_data.partition("\n")[::2], strict=True)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _owned(request, options, owner),
        "immutable": True,
        "stringData": {name: text for name, text in texts if text},
    }


def service(
    request: LaunchRequest, options: KubernetesOptions, owner: Mapping[str, Any]
) -> Manifest:
    """The load balancer of an instance, which ends with its Job; the enrolment is not behind it.

    Args:
        owner: metadata of the Job.
    """
    place, processes = options.of(request.region), request.tags.processes
    metadata = _owned(request, options, owner)
    metadata["annotations"] = dict(place.load_balancer_annotations)
    # A teardown waits for its end: a cloud may take minutes, and bills it so long.
    metadata["ownerReferences"][0]["blockOwnerDeletion"] = True
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "type": "LoadBalancer",
            # The network policy then sees who calls.
            "externalTrafficPolicy": "Local",
            "loadBalancerSourceRanges": list(place.load_balancer_sources),
            "selector": {JOB_NAME: owner["name"]},
            "ports": [
                {"name": f"p{port}", "protocol": "TCP", "port": port, "targetPort": port}
                for port in range(control_port(0), data_port(processes - 1, processes) + 1)
            ],
        },
    }


def _owned(
    request: LaunchRequest, options: KubernetesOptions, owner: Mapping[str, Any]
) -> Manifest:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner["name"]}
    return {
        "name": owner["name"],
        "labels": _of_instance(request, options),
        "ownerReferences": [reference | {"uid": owner["uid"]}],
    }


def _of_instance(request: LaunchRequest, options: KubernetesOptions) -> dict[str, str]:
    """The labels of what an instance has."""
    return {
        **options.user_labels,
        **_of_fleet(request.tags, request.region),
        **_labels(instance=request.instance),
    }


def policy(tags: FleetTags, region: str, options: KubernetesOptions) -> Manifest:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": policy_name(tags.fleet_key, region),
            "labels": {**options.user_labels, **_of_fleet(tags, region)},
            "annotations": ALPHABET.written(tags, {}, **{REGION: region}),
        },
        "spec": {
            "podSelector": {"matchLabels": _labels(fleet=tags.fleet_key, region=region)},
            "policyTypes": ["Ingress"],
            "ingress": ingress_rules(tags, options.of(region), ()),
        },
    }


def ingress_rules(
    tags: FleetTags, place: ClusterRegion, ingress: Iterable[Ingress]
) -> list[Manifest]:
    """Who reaches the Pods: gateways of the fleet in this cluster, and these addresses.

    A port-forward needs no rule. Some networks take a range of addresses for what is outside of
    the cluster, so that Pods of it are named by their labels.

    Raises ConfigurationInvalid: a source is no range of addresses.
    """
    peers = {"namespaceSelector": {}, "podSelector": {"matchLabels": _labels(fleet=tags.fleet_key)}}
    last = data_port(tags.processes - 1, tags.processes)
    rules = [_rule([peers], control_port(0), last)]
    outside = [Ingress(control_port(0), last, one) for one in place.load_balancer_sources]
    for (first, last), sources in by_ports(normal((*ingress, *outside))).items():
        rules.append(_rule([{"ipBlock": {"cidr": one}} for one in sources], first, last))
    return rules


def _rule(sources: list[Manifest], first: int, last: int) -> Manifest:
    return {"from": sources, "ports": [{"protocol": "TCP", "port": first, "endPort": last}]}


def _of_fleet(tags: FleetTags, region: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/managed-by": "skyplane-orchestration",
        **_labels(fleet=tags.fleet_key, deployment=tags.deployment, region=region),
    }


def _labels(**texts: str) -> dict[str, str]:
    """A fleet's key stands for itself, other texts have characters that labels cannot have."""
    return {
        ALPHABET.name(name): text if name == "fleet" and len(text) <= 63 else label_of(text)
        for name, text in texts.items()
    }
