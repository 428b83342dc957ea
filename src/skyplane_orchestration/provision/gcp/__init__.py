"""Google Cloud: instances, labels and firewall rules of Compute Engine. The extra is `gcp`."""

from __future__ import annotations

from skyplane_orchestration.provision.gcp.cloud import GcpCloud
from skyplane_orchestration.provision.gcp.options import GcpOptions

__all__ = ["GcpCloud", "GcpOptions"]
