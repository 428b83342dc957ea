"""Options of the local provisioner."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyplane_gateway.common.schema import check
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.gateway_settings import (
    check_gateway_settings,
    check_processes_per_instance,
)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How gateways run on this machine.

    Args:
        run_root: directory of all local fleets, private to this user; None for
            `$XDG_RUNTIME_DIR/skyplane-orch` or `/tmp/skyplane-orch-<uid>`. Workers that share
            fleets share it.
        address_map: region tag -> address to listen on; default: one loopback address each.
        launch_prefix: region tag -> words in front of the command line, for example
            `("ip", "netns", "exec", "a")`. The prefix must end by executing the rest.
        max_instances_per_region: limit per region; one machine gains little from more of them.
        python: interpreter that has `skyplane_gateway`.
        processes_per_instance: gateways of each instance, from 1 to 64; None for
            `SKYPLANE_PROCESSES_PER_INSTANCE`, or else for as many as give each processor of the
            machine a gateway, up to `MOST_PROCESSES`. A fleet keeps the number that it began with.
        command: program and first arguments, in place of `python -m skyplane_gateway`.
        ready_timeout_s: timeout until all gateways are up and connected.
        term_grace_s: time from SIGTERM to SIGKILL; aborting uploads takes up to 30 s.
        kill_grace_s: time to wait after SIGKILL.
        gateway_settings: more fields of every gateway's configuration.

    Raises ConfigurationInvalid for an unknown setting or an invalid value.
    """

    run_root: Path | None = None
    address_map: Mapping[str, str] = field(default_factory=dict)
    launch_prefix: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_instances_per_region: int = 2
    python: str = sys.executable
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
        if self.max_instances_per_region < 1:
            raise ConfigurationInvalid("max_instances_per_region must be at least 1")

    @property
    def lock_timeout_s(self) -> float:
        """Longest time that another `ensure` can hold a fleet's lock."""
        return self.ready_timeout_s + 2 * (self.term_grace_s + self.kill_grace_s)

    def address(self, region: str) -> str:
        """The address that gateways of a region listen on."""
        return self.address_map.get(region) or loopback_address(region)


def loopback_address(region: str) -> str:
    """A fixed address in 127.0.0.0/8 for a region tag.

    Linux answers on the whole block without set-up (RFC 6890 reserves it for loopback).
    """
    first, second, third = hashlib.sha256(region.encode()).digest()[:3]
    # 0 and 255 at the ends look like network and broadcast addresses to some tools.
    return f"127.{1 + first % 254}.{second}.{1 + third % 254}"
