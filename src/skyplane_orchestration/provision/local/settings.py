"""Settings that all provisioners have whose gateways are processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from skyplane_gateway.common.schema import check
from skyplane_gateway.common.wording import argument
from skyplane_gateway.config import DEFAULT_STORE_THREADS, MAX_CONNECTIONS, GatewayConfig
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessOptions:
    """How gateways run as processes, on whatever machine.

    Args:
        processes_per_instance: gateways of each instance, from 1 to 64; None for
            `SKYPLANE_PROCESSES_PER_INSTANCE`, or else for as many as give each processor of the
            smallest machine a gateway, up to `MOST_PROCESSES`. A fleet keeps the number that it
            began with.
        command: program and first arguments, in place of `python -m skyplane_gateway`.
        ready_timeout_s: timeout until all gateways are up and connected.
        term_grace_s: time from SIGTERM to SIGKILL; aborting uploads takes up to 30 s.
        kill_grace_s: time to wait after SIGKILL.
        gateway_settings: more fields of every gateway's configuration.

    Raises ConfigurationInvalid for an unknown setting or an invalid value.
    """

    processes_per_instance: int | None = None
    command: tuple[str, ...] = ()
    ready_timeout_s: float = 60.0
    term_grace_s: float = 35.0
    kill_grace_s: float = 5.0
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        check_gateway_settings(self.gateway_settings)
        check_processes_per_instance(self.processes_per_instance)

    @property
    def store_threads(self) -> int:
        """See `GatewayConfig`."""
        return int(self.gateway_settings.get("store_threads", DEFAULT_STORE_THREADS))

    @property
    def lock_timeout_s(self) -> float:
        """Longest time that another `ensure` can hold a fleet's lock."""
        return self.ready_timeout_s + 2 * (self.term_grace_s + self.kill_grace_s)


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
        raise ConfigurationInvalid(
            argument("processes_per_instance")
            + f" must be a whole number from 1 to {MAX_CONNECTIONS}, not"
            f" {given}"
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
