"""Settings of gateways that all provisioners have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from skyplane_gateway.config import MAX_CONNECTIONS, GatewayConfig
from skyplane_orchestration.errors import ConfigurationInvalid

#: Most gateways of an instance if no option names a number: each needs memory of its own.
MOST_PROCESSES: Final = 8
PROCESSES_VARIABLE: Final = "SKYPLANE_PROCESSES_PER_INSTANCE"

#: Fields of a gateway's configuration that the provisioner sets; users may set the others.
_OWN_SETTINGS: Final = frozenset(
    {
        "node",
        "fleet_key",
        "control_host",
        "data_host",
        "directory",
        "hello_keys_hex",
        "control_port",
        "data_port",
        "start_within_s",
        "lease_s",
        "hard_end_s",
    }
)

#: Required fields of a gateway's configuration, to check the user's settings.
_ANY_GATEWAY: Final = {
    "node": "any",
    "fleet_key": "any",
    "control_host": "any",
    "data_host": "any",
    "directory": "any",
}


def check_gateway_settings(settings: Mapping[str, Any]) -> None:
    """Check more fields of gateways' configurations. Raises ConfigurationInvalid."""
    known = {entry.name for entry in fields(GatewayConfig)} - _OWN_SETTINGS
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigurationInvalid(
            f"gateway_settings cannot hold {', '.join(unknown)}; it can hold"
            f" {', '.join(sorted(known))}"
        )
    # Checked before a gateway starts and refuses the value.
    GatewayConfig.from_dict({**_ANY_GATEWAY, **settings})


def check_processes_per_instance(given: int | None) -> None:
    """Raises ConfigurationInvalid."""
    if given is not None and not 1 <= given <= MAX_CONNECTIONS:
        raise ConfigurationInvalid.about(
            "{processes_per_instance} must be a whole number from 1 to {most}, not {given}",
            most=MAX_CONNECTIONS,
            given=given,
        )


def processes_per_instance(given: int | None, instances: int, processors: int) -> int:
    """Gateways of each of the instances that share a machine's processors.

    Args:
        given: the user's number; None for `SKYPLANE_PROCESSES_PER_INSTANCE` or the default.

    Raises ConfigurationInvalid for a wrong `SKYPLANE_PROCESSES_PER_INSTANCE`.
    """
    if given is not None:
        return given
    text = os.environ.get(PROCESSES_VARIABLE, "")
    if not text:
        return max(1, min(processors // instances, MOST_PROCESSES))
    if not (text.isdecimal() and 1 <= int(text) <= MAX_CONNECTIONS):
        raise ConfigurationInvalid(
            f"{PROCESSES_VARIABLE} must be a whole number from 1 to {MAX_CONNECTIONS}, not {text!r}"
        )
    return int(text)
