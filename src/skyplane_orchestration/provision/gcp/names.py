"""Names of resources: at most 63 lower-case letters, digits and hyphens."""

from __future__ import annotations

import re
from typing import Final

from skyplane_orchestration.provision.gcp.options import region_name

_PREFIX: Final = "skyplane-"
#: 80 bits of a fleet's key. The whole key stands in labels and descriptions, which are compared.
_KEY_CHARACTERS: Final = 20
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def fleet_prefix(fleet_key: str) -> str:
    """The begin of all names of a fleet; of all fleets for an empty key."""
    return f"{_PREFIX}{fleet_key[:_KEY_CHARACTERS]}-" if fleet_key else _PREFIX


def network_tag(fleet_key: str, region: str) -> str:
    """The network tag of a fleet's instances in a region."""
    return fleet_prefix(fleet_key) + region_name(region)


def instance_name(fleet_key: str, instance: str, number: int) -> str:
    """The name of an instance: two of one zone cannot share it.

    Args:
        instance: its name in the fleet, `gcp:us-central1/0`.
        number: above 0 while names with smaller ones belong to instances that have stopped.
    """
    part = _OTHER.sub("-", instance.removeprefix("gcp:"))
    return f"{fleet_prefix(fleet_key)}{part}-{number}"
