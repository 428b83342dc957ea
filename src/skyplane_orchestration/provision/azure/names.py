"""Names of a fleet's resources. They are made of the fleet key, so every worker makes the same."""

from __future__ import annotations

import hashlib
from typing import Final

from skyplane_orchestration.provision.azure.options import region_name
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest

#: The only subnet of a fleet's own virtual network.
SUBNET: Final = "gateways"


def group_name(fleet_key: str) -> str:
    return f"skyplane-{fleet_key}"


def firewall_name(region: str) -> str:
    """The network security group of a region."""
    return f"firewall-{region_name(region)}"


def network_name(region: str) -> str:
    """The virtual network of a region."""
    return f"network-{region_name(region)}"


def machine_name(request: LaunchRequest, number: int, zone: str) -> str:
    """The virtual machine of a launch number in a zone, which is empty for none."""
    parts = (request.tags.fleet_key, request.instance, str(number), zone)
    return f"gw-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}"


def interface_name(machine: str) -> str:
    return f"{machine}-nic"


def address_name(machine: str) -> str:
    """The public address."""
    return f"{machine}-ip"


def disk_name(machine: str) -> str:
    return f"{machine}-disk"


def cloud_id(machine: str, unique_id: str) -> str:
    """Unique for each machine that ever was: Azure allows a name again once it is free."""
    return f"{machine}/{unique_id}"


def machine_of(instance: Instance) -> str:
    """The name of an instance's virtual machine."""
    return instance.cloud_id.partition("/")[0]
