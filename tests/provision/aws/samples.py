"""A fleet and launches for the tests of AWS."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from skyplane_orchestration.provision.aws import AwsCloud
from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress, LaunchRequest

REGION: Final = "aws:eu-west-3"
ARM_TYPE, X86_TYPE = "c7gn.large", "c6in.xlarge"
FLEET: Final = FleetTags("0123456789abcdef" * 2, "prod", 0, 1_700_000_000, 1_700_086_400)
WORKERS: Final = Ingress(7600, 7601, "198.51.100.0/24")
REQUEST: Final = LaunchRequest(
    tags=FLEET,
    instance=f"{REGION}/0",
    region=REGION,
    instance_type=ARM_TYPE,
    launch_id="0" * 32,
    launch_number=0,
    user_data="#!/bin/sh\nexit 0\n",
    is_end=False,
)


def a_request(**changes: Any) -> LaunchRequest:
    return replace(REQUEST, **changes)


def prepared(cloud: AwsCloud) -> AwsCloud:
    """The cloud, with the fleet's firewall."""
    cloud.prepare(FLEET, [REGION], [WORKERS])
    return cloud
