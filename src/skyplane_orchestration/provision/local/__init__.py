"""The local provisioner: gateways as processes on this machine."""

from __future__ import annotations

from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.provisioner import LocalProvisioner

__all__ = ["LocalOptions", "LocalProvisioner"]
