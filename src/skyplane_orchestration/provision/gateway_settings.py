"""Settings of gateways that all provisioners have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import (
    DEFAULT_STORE_THREADS,
    MAX_CONNECTIONS,
    GatewayConfig,
    files_needed,
)
from skyplane_orchestration.errors import ConfigurationInvalid

if TYPE_CHECKING:
    from skyplane_orchestration.provision.provisioner import FleetSpec
    from skyplane_orchestration.security.authority import Authority

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
    one.name: "any"
    for one in fields(GatewayConfig)
    if one.default is MISSING and one.default_factory is MISSING
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


def open_files(settings: Mapping[str, Any], connections: int = 2 * MAX_CONNECTIONS) -> int:
    """Open files that a gateway with these settings needs for its data connections."""
    return files_needed(connections, int(settings.get("store_threads", DEFAULT_STORE_THREADS)))


def check_processes_per_instance(given: int | None, most: int = MAX_CONNECTIONS) -> None:
    """Raises ConfigurationInvalid."""
    if given is not None and not 1 <= given <= most:
        raise ConfigurationInvalid.about(
            "{processes_per_instance} must be a whole number from 1 to {most}, not {given}",
            most=most,
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


def gateway_config(
    spec: FleetSpec,
    authority: Authority,
    node: str,
    peers: Iterable[str],
    hard_end_s: float,
    settings: Mapping[str, Any],
    **places: Any,
) -> GatewayConfig:
    """The configuration of a gateway of a fleet, with the keys that it shares with its peers.

    Args:
        hard_end_s: from its start.
        settings: of users, see `check_gateway_settings`.
        places: its directory, its hosts and its ports.
    """
    return GatewayConfig(
        node=node,
        fleet_key=spec.key,
        hello_keys_hex={peer: authority.hello_key(node, peer).hex() for peer in sorted(peers)},
        start_within_s=spec.times.start_within_s,
        lease_s=spec.times.lease_s,
        hard_end_s=hard_end_s,
        **places,
        **settings,
    )
