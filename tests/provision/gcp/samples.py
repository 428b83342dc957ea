"""A fleet and launches for the tests of Google Cloud."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress, LaunchRequest
from skyplane_orchestration.provision.gcp import GcpCloud

REGION: Final = "gcp:us-central1"
X86_TYPE, ARM_TYPE = "n2-standard-4", "t2a-standard-2"
FLEET: Final = FleetTags("0123456789abcdef" * 2, "prod", 0, 1_700_000_000, 1_700_086_400)
WORKERS: Final = Ingress(7600, 7601, "198.51.100.0/24")
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


def prepared(cloud: GcpCloud) -> GcpCloud:
    """The cloud, with the fleet's firewall."""
    cloud.prepare(FLEET, [REGION], [WORKERS])
    return cloud
