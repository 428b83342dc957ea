"""A fleet and launches for the tests of Azure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from skyplane_orchestration.provision.azure import AzureCloud
from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress, LaunchRequest

REGION: Final = "azure:westeurope"
ARM_TYPE, X86_TYPE = "Standard_D4pls_v5", "Standard_D4s_v5"
FLEET: Final = FleetTags("0123456789abcdef" * 2, "prod", 0, 1_700_000_000, 1_700_086_400)
GROUP: Final = f"skyplane-{FLEET.fleet_key}"
WORKERS: Final = Ingress(7600, 7601, "198.51.100.0/24")
PEER: Final = Ingress(7602, 7602, "203.0.113.7/32")
REQUEST: Final = LaunchRequest(
    tags=FLEET,
    instance=f"{REGION}/0",
    region=REGION,
    instance_type=X86_TYPE,
    launch_id="0" * 32,
    launch_number=0,
    user_data="#!/bin/sh\nexit 0\n",
    is_end=False,
)


def a_request(**changes: Any) -> LaunchRequest:
    return replace(REQUEST, **changes)


def prepared(cloud: AzureCloud) -> AzureCloud:
    """The cloud, with group, firewall and network of the fleet."""
    cloud.prepare(FLEET, [REGION], [WORKERS])
    return cloud
