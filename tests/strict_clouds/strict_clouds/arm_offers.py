"""What a subscription may launch in the strict Resource Manager: sizes and quotas."""

from __future__ import annotations

from typing import Any, Final, Protocol

from strict_clouds.arm_state import LOCATIONS, SIZES, Conditions, Rule
from strict_clouds.arm_wire import ArmError, Reply, Request

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

    def check_room(self, body: Any) -> None:
        """Size, quota; capacity shows only later."""
        location, facts = body["location"], body["properties"]
        size = facts["hardwareProfile"]["vmSize"]
        if size not in SIZES:
            raise ArmError(400, "InvalidParameter", "hardwareProfile.vmSize")
        zones = body.get("zones") or []
        if not set(zones) <= set(LOCATIONS[location][1]):
            raise ArmError(400, "InvalidAvailabilityZone")
        if (location, size) in self._conditions.closed_sizes:
            raise ArmError(409, "SkuNotAvailable")
        family, vcpus, _ = SIZES[size]
        is_spot = facts.get("priority") == "Spot"
        for name in (SPOT,) if is_spot else ("cores", family):
            family_only = family if name == family else ""
            used = self._used(location, is_spot=is_spot, family=family_only)
            if used + vcpus > self._conditions.quota(location, name):
                raise ArmError(
                    409,
                    "OperationNotAllowed",
                    "Operation could not be completed as it results in exceeding approved quota.",
                )

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
