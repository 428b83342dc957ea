"""Finds instances by the resource group of their fleet, and their power states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.provision.azure.error_mapping import NOT_FOUND
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    Resource,
    address_name,
    cloud_id,
    interface_name,
    properties_of,
    region_tag,
)
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.error_rules import Refusal
from skyplane_orchestration.provision.fleet.machines import Instance, InstanceState
from skyplane_orchestration.provision.fleet.tags import INSTANCE, KEY, LAUNCH

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

_POWER: Final = "PowerState/"
#: A machine that was shut down inside is billed as before, and one that was deallocated still has
#: a disk and an address that are billed. So neither has ended: somebody has to delete it.
_STATES: Final[Mapping[str, InstanceState]] = {
    "starting": "starting",
    "running": "running",
    "stopping": "ending",
    "stopped": "ending",
    "deallocating": "ending",
    "deallocated": "ending",
}
#: Azure has one list of power states for the whole subscription, which may be long.
_POWER_LIFE_S: Final = 10.0


class PowerStates:
    """The power states of the subscription's machines, asked again after some seconds."""

    def __init__(self, api: AzureApi) -> None:
        self._api = api
        self._known: AnswerCache[str, Mapping[str, str]] = AnswerCache(_POWER_LIFE_S, api.clock)

    def of_all(self) -> Mapping[str, str]:
        """Lower-case resource id -> `running`; without machines that Azure tells nothing of."""
        return self._known.get("the subscription", self._read)

    def _read(self) -> dict[str, str]:
        compute = self._api.compute
        found = self._api.listed(
            "looking for the states of the subscription's instances",
            "the subscription",
            lambda: compute.virtual_machines.list_all(status_only="true"),
        )
        return {one["id"].lower(): power for one in found if (power := power_of(one))}


def power_of(machine: Resource) -> str:
    """`running` and others; empty if its view is not there or tells nothing."""
    view = properties_of(machine).get("instanceView") or {}
    for status in view.get("statuses") or ():
        code = str(status.get("code", ""))
        if code.startswith(_POWER):
            return code.removeprefix(_POWER)
    return ""


def machines_of(api: AzureApi, group: str, regions: Collection[str]) -> list[Resource]:
    """The virtual machines of a group in some regions; none if there is no such group."""
    compute = api.compute
    try:
        found = list(
            api.listed(
                f"looking for instances in {group}",
                f"the resource group {group}",
                lambda: compute.virtual_machines.list(group),
                expected=NOT_FOUND,
            )
        )
    except Refusal:
        return []
    return [one for one in found if region_tag(one["location"]) in regions]


def ours(
    api: AzureApi,
    powers: PowerStates,
    group: str,
    regions: Collection[str],
    *,
    has_public_address: bool,
) -> Iterator[Instance]:
    """The instances of a group. Two calls besides the power states."""
    machines = machines_of(api, group, regions)
    if not machines:
        return
    addresses = _addresses(api, group, has_public_address=has_public_address)
    known = powers.of_all()
    for machine in machines:
        found = as_instance(
            machine,
            known.get(machine["id"].lower(), ""),
            addresses.get(machine["name"], ""),
        )
        if found is not None:
            yield found


def as_instance(machine: Resource, power: str, address: str) -> Instance | None:
    """An instance of ours; None without our tags."""
    named = machine.get("tags") or {}
    fleet = ALPHABET.fleet_of(named)
    if fleet is None:
        return None
    region = region_tag(machine["location"])
    facts = properties_of(machine)
    progress = facts.get("provisioningState") or ""
    state = _state(progress, power)
    return Instance(
        tags=fleet,
        instance=ALPHABET.value(named, INSTANCE) or f"{region}/?",
        region=region,
        cloud_id=cloud_id(machine["name"], facts.get("vmId") or ""),
        state=state,
        address=address,
        launch_id=ALPHABET.value(named, LAUNCH),
        key_id=ALPHABET.value(named, KEY),
        launched_unix_s=_unix_s(facts.get("timeCreated") or ""),
        why_ended="" if state in ("starting", "running") else power or progress.lower(),
    )


def _state(progress: str, power: str) -> InstanceState:
    """Of a machine. One that runs stays one when a later change of it has failed."""
    if progress == "Deleting":
        return "ending"
    if power:
        return _STATES.get(power, "ending")
    if progress == "Failed":
        return "ending"
    return "running" if progress == "Succeeded" else "starting"


def _addresses(api: AzureApi, group: str, *, has_public_address: bool) -> dict[str, str]:
    """Machine -> the address to dial. One call."""
    network = api.network
    what, where = f"looking for addresses in {group}", f"the resource group {group}"
    kind: Any = network.public_ip_addresses if has_public_address else network.network_interfaces
    suffix = address_name("") if has_public_address else interface_name("")
    try:
        found = list(api.listed(what, where, lambda: kind.list(group), expected=NOT_FOUND))
    except Refusal:
        return {}
    return {one["name"].removesuffix(suffix): _address(one) for one in found}


def _address(resource: Resource) -> str:
    """Of a public address, or of an interface."""
    facts = properties_of(resource)
    for configuration in facts.get("ipConfigurations") or ():
        facts = properties_of(configuration)
    return str(facts.get("ipAddress") or facts.get("privateIPAddress") or "")


def _unix_s(moment: str) -> float:
    """Of Azure's time, which may have seven decimals."""
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return 0.0
