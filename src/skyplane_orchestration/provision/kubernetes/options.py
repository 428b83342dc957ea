"""Options of gateways in clusters: where they run, what a Pod gets, and how fleets are marked."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from skyplane_gateway.common.schema import check
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.provision.container import require_pinned
from skyplane_orchestration.provision.fleet.ingress_rules import joined_ranges
from skyplane_orchestration.provision.fleet.options import check_form
from skyplane_orchestration.provision.fleet.tags import TagAlphabet

#: A context that is none of a file: the cluster of the Pod that this process runs in.
IN_CLUSTER: Final = "in-cluster"

#: Names of namespaces and service accounts (RFC 1123).
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
#: "Labels and Selectors" and "Annotations" of the Kubernetes documentation, as read on 2026-11-28.
_LABEL_NAME: Final = re.compile(
    r"(?!skyplane-orchestration/)([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?\Z",
    re.ASCII,
)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?\Z", re.ASCII)

#: Annotations hold any text; labels, which are short and of few characters, find things.
ALPHABET: Final = TagAlphabet(
    cloud="Kubernetes",
    kind="annotation",
    user_names=_LABEL_NAME,
    user_values=_LABEL_VALUE,
    user_rule="63 letters, digits and -_. in names and values of labels",
    prefix="skyplane-orchestration/",
    most_characters=4096,
)


@dataclass(frozen=True, slots=True)
class ClusterRegion:
    """Where the gateways of one region run, and what each of their Pods gets.

    Args:
        context: of the kubeconfig file; `in-cluster` for the cluster of the Pod that this process
            runs in; empty for the file's current one.
        namespace: an existing one.
        network: regions with the same name of a network, and those of one context, dial each other
            by the addresses of Pods. Empty for the context alone.
        service_account: of Pods of sources and sinks, whose token they get: the identity by which
            they open stores. Relays have none.
        store_identity: the kind of stores that this identity opens.
        cpu: processors of a Pod, requested and at most.
        memory_gib: memory of a Pod, in GiB, requested and at most; 1 to 1.5 for each of its
            processors. Files of gateways are in memory and count.
        node_selector: labels of the nodes that may run it.
        tolerations: as a Pod's specification has them.
        pull_secrets: names of Secrets of the namespace, for the registry of the image.
        egress_cidrs: from where gateways of other networks see the connections of its Pods, such
            as the addresses of a NAT gateway.
        load_balancer: gateways of other networks reach each Pod at a Service of its own of the
            type LoadBalancer, which the cluster's cloud bills.
        load_balancer_sources: addresses that may, such as the `egress_cidrs` of other regions.
        load_balancer_annotations: of the Services, for an address of the internet or of a
            private network, as the cluster's cloud documents them.

    Raises ConfigurationInvalid for an invalid value.
    """

    context: str = ""
    namespace: str = "default"
    network: str = ""
    service_account: str = ""
    store_identity: Literal["", "s3", "gcs", "azure"] = ""
    cpu: float = 2.0
    memory_gib: float = 3.0
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    pull_secrets: tuple[str, ...] = ()
    egress_cidrs: tuple[str, ...] = ()
    load_balancer: bool = False
    load_balancer_sources: tuple[str, ...] = ()
    load_balancer_annotations: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        check_form("namespace of kubernetes", self.namespace, _NAME, "replication")
        if self.service_account:
            check_form("service_account of kubernetes", self.service_account, _NAME, "gateway")
        if bool(self.service_account) != bool(self.store_identity):
            raise ConfigurationInvalid(
                "service_account and store_identity of kubernetes belong together: name both, or"
                " none"
            )
        for name in ("egress_cidrs", "load_balancer_sources"):
            object.__setattr__(self, name, joined_ranges(getattr(self, name)))
        if self.load_balancer and not (self.load_balancer_sources and self.egress_cidrs):
            raise ConfigurationInvalid(
                "load_balancer of kubernetes needs load_balancer_sources, which may use it, and"
                " egress_cidrs, from which its own connections come"
            )
        if not 0.1 <= self.cpu <= 256 or not 0.5 <= self.memory_gib <= 4096:
            raise ConfigurationInvalid(
                f"cpu of kubernetes must be from 0.1 to 256 and memory_gib from 0.5 to 4096, not"
                f" {self.cpu:g} and {self.memory_gib:g}"
            )

    @property
    def reach(self) -> str:
        """What is the same for regions whose Pods dial each other by their addresses."""
        return self.network or f"context {self.context}"

    @property
    def processors(self) -> int:
        """Whole ones, at least one."""
        return max(1, int(self.cpu))


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    """How gateways run in clusters.

    Args:
        regions: region tag -> where its gateways run. The tag is that of the place of the nodes,
            such as `aws:eu-west-1`: plans have rates and prices for it.
        image: `registry.example/skyplane-gateway@sha256:...`, which nodes can pull; by default
            the setting of the same name of the whole file.
        python_image: in place of it, one with a Python from 3.11 to 3.13 and `sh`, pinned too:
            Pods get the gateway as the whole file says (`software`).
        kubeconfig: path of the file with the contexts; empty for `KUBECONFIG`, or the user's.
        user_labels: more labels of everything that a fleet has.

    Raises ConfigurationInvalid for an invalid value.
    """

    regions: Mapping[str, ClusterRegion]
    image: str = ""
    python_image: str = ""
    kubeconfig: str = ""
    user_labels: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        if not self.regions:
            raise ConfigurationInvalid(
                "regions of kubernetes is empty; name a context for each, as"
                " `aws:eu-west-1: {context: production}`"
            )
        for region in self.regions:
            parse_region_tag(region)
        if bool(self.image) == bool(self.python_image):
            raise ConfigurationInvalid(
                "Pods run either image (`registry/name@sha256:...`), the gateway's, or python_image"
            )
        require_pinned(self.image or self.python_image)
        ALPHABET.check_user_tags("user_labels of kubernetes", self.user_labels)

    def of(self, region: str) -> ClusterRegion:
        """Raises ConfigurationInvalid: the region is in no cluster."""
        if region not in self.regions:
            raise ConfigurationInvalid(
                f"regions of kubernetes does not have {region}; it has"
                f" {', '.join(sorted(self.regions))}"
            )
        return self.regions[region]


def label_of(text: str) -> str:
    """The value of a label that stands for a text of any length and alphabet."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]
