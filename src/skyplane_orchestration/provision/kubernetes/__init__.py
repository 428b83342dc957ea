"""The kubernetes provisioner: gateways as Pods of clusters that one has."""

from __future__ import annotations

from skyplane_orchestration.provision.kubernetes.cloud import KubernetesCloud
from skyplane_orchestration.provision.kubernetes.options import KubernetesOptions

__all__ = ["KubernetesCloud", "KubernetesOptions"]
