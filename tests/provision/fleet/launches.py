"""A fleet and launches for the tests of each cloud."""

from __future__ import annotations

from typing import Final, TypeVar

from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.provision.fleet.machines import (
    FleetTags,
    Ingress,
    LaunchRequest,
    Machines,
)
from skyplane_orchestration.provision.fleet.user_data import BootSettings, user_data

M = TypeVar("M", bound=Machines)

#: A whole boot script, whose gateways may use the identity of their machine.
USES_IDENTITY: Final = user_data(
    BootSettings(image=f"registry.example/gateway@sha256:{'ab' * 32}"),
    EnrolmentDocument("ab" * 16, "aws:us-east-1/0", 7600, 900.0, "", "5e" * 32),
    86400.0,
)

FLEET: Final = FleetTags("0123456789abcdef" * 2, "prod", 0, 1_700_000_000, 1_700_086_400)
WORKERS: Final = Ingress(7600, 7601, "198.51.100.0/24")


def first_launch(region: str, instance_type: str) -> LaunchRequest:
    """Of a relay, the first of its region."""
    return LaunchRequest(
        tags=FLEET,
        instance=f"{region}/0",
        region=region,
        instance_type=instance_type,
        launch_id="0" * 32,
        launch_number=0,
        user_data="#!/bin/sh\nexit 0\n",
        is_end=False,
    )


def prepared_in(region: str, cloud: M) -> M:
    """The cloud, with what the fleet needs in a region before its launches."""
    cloud.create_firewalls(FLEET, [region])
    cloud.admit(FLEET, region, [WORKERS])
    return cloud
