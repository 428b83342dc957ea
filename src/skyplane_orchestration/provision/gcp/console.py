"""The console output of instances, and their page in the web console."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from skyplane_orchestration.provision.gcp.describe import zone_and_id
from skyplane_orchestration.provision.gcp.errors import NOT_FOUND, NOT_READY, Refusal

if TYPE_CHECKING:
    from skyplane_orchestration.provision.fleet.machines import Instance
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: Of an instance that has not started, or has stopped for long.
_NONE: Final = NOT_FOUND | NOT_READY


def console_url(project: str) -> str:
    """The list of the project's instances; no filter is documented for its address."""
    return f"https://console.cloud.google.com/compute/instances?{urlencode({'project': project})}"


def console_tail(api: GcpApi, instance: Instance, max_bytes: int) -> str:
    """The end of the output of the first serial port; empty if Google has none."""
    try:
        answer = api.call(
            "instances.getSerialPortOutput",
            {**zone_and_id(instance), "port": 1},
            what=f"reading the console of {instance.instance}",
            where=instance.region,
            expected=_NONE,
        )
    except Refusal:
        return ""
    output = str(answer.contents).encode()
    return output[-max_bytes:].decode(errors="replace") if max_bytes > 0 else ""
