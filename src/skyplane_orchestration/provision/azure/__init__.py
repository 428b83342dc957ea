"""Azure: virtual machines of one resource group per fleet. The extra is `azure`."""

from __future__ import annotations

from skyplane_orchestration.provision.azure.cloud import AzureCloud
from skyplane_orchestration.provision.azure.options import AzureOptions

__all__ = ["AzureCloud", "AzureOptions"]
