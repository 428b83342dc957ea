"""What a subscription may launch in the strict Resource Manager: sizes and quotas."""

from __future__ import annotations

from typing import Any, Final, Protocol

from tests.clouds.arm_state import LOCATIONS, SIZES, Conditions, Rule
from tests.clouds.arm_wire import Reply, Request

#: The quota of spot machines.
SPOT: Final = "lowPriorityCores"


class Used(Protocol):
    """vCPUs of a location that are counted."""

    def __call__(self, location: str, *, is_spot: bool, family: str = "") -> int: ...


class OfferRules:
    """Sizes, and the use of quotas."""

    def __init__(self, conditions: Conditions, used: Used) -> None:
        self._conditions = conditions
        self._used = used
        self.rules: dict[str, Rule] = {"skus.list": self._skus, "usages.list": self._usages}

    def _skus(self, request: Request) -> Reply:
        location = request.query["$filter"].partition("'")[2].rstrip("'")
        rows: list[dict[str, Any]] = [
            {
                "resourceType": "virtualMachines",
                "name": name,
                "family": family,
                "locations": [location],
                "locationInfo": [{"location": location, "zones": list(LOCATIONS[location][1])}],
                "capabilities": [
                    {"name": "vCPUs", "value": str(vcpus)},
                    {"name": "CpuArchitectureType", "value": architecture},
                    {"name": "AcceleratedNetworkingEnabled", "value": "True"},
                ],
                "restrictions": [],
            }
            for name, (family, vcpus, architecture) in SIZES.items()
        ]
        rows.append({"resourceType": "disks", "name": "Premium_LRS", "locations": [location]})
        return Reply(body={"value": rows})

    def _usages(self, request: Request) -> Reply:
        location = request.path["location"]
        families = sorted({family for family, _, _ in SIZES.values()})
        shown = {"cores": "Total Regional vCPUs", SPOT: "Total Regional Spot vCPUs"}
        rows = [
            {
                "unit": "Count",
                "name": {"value": name, "localizedValue": shown.get(name, name)},
                "currentValue": self._used(
                    location, is_spot=name == SPOT, family=name if name in families else ""
                ),
                "limit": self._conditions.quota(location, name),
            }
            for name in ("cores", SPOT, *families)
        ]
        return Reply(body={"value": rows})
