"""The console output of instances, which Azure keeps by itself, and their page in the portal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from skyplane_orchestration.provision.azure.errors import NOT_FOUND, Refusal
from skyplane_orchestration.provision.azure.names import group_name, machine_of

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.fleet.machines import Instance

#: Codes for a machine that has no output yet, or none any more.
_NONE: Final = NOT_FOUND | {"BlobNotFound", "BootDiagnosticsNotEnabled", "Conflict"}
#: How long the address of the output can be read.
_ADDRESS_MINUTES: Final = 5


def console_url(subscription_id: str, fleet_key: str) -> str:
    """The resource group of the fleet, which has its instances in all regions."""
    group = (
        f"subscriptions/{quote(subscription_id, safe='')}/resourceGroups/{group_name(fleet_key)}"
    )
    return f"https://portal.azure.com/#resource/{group}/overview"


def console_tail(api: AzureApi, instance: Instance, max_bytes: int) -> str:
    """The end of the console output; empty if Azure has none, or not any more."""
    if max_bytes <= 0:
        return ""
    compute = api.compute
    what = f"reading the console of {instance.instance}"
    try:
        found = api.call(
            what,
            instance.region,
            lambda: compute.virtual_machines.retrieve_boot_diagnostics_data(
                group_name(instance.tags.fleet_key),
                machine_of(instance),
                sas_uri_expiration_time_in_minutes=_ADDRESS_MINUTES,
            ),
            expected=_NONE,
        )
    except Refusal:
        return ""
    address = found.serial_console_log_blob_uri
    if not address:
        return ""
    output = api.download(what, instance.region, address, most_bytes=max_bytes)
    return output[-max_bytes:].decode(errors="replace")
