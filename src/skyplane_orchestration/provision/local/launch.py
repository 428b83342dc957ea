"""What a gateway needs before it starts: open files, a certificate, a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import GatewayConfig, files_needed
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.local.machine import Machine
from skyplane_orchestration.provision.local.run_directory import GatewayFiles
from skyplane_orchestration.provision.provisioner import FleetSpec

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a gateway listens: for its orchestrator, and for other gateways if that differs.

    A port of 0 lets the machine choose.
    """

    control: str
    data: str = ""
    control_port: int = 0
    data_port: int = 0


def require_open_files(machine: Machine, connections: int, store_threads: int) -> int:
    """The hard limit of open files; negative if there is none.

    Raises ConfigurationInvalid if it is too low for one gateway.
    """
    needed = files_needed(connections, store_threads)
    limit = machine.open_files_limit()
    if 0 <= limit < needed:
        holder = f"a process of {machine.name}" if machine.name else "this process"
        raise ConfigurationInvalid(
            f"a gateway with {connections} connections needs {needed} open files, and {holder} may"
            f" have {limit} (`ulimit -Hn`); run it with a hard limit of at least {needed}: `ulimit"
            f" -n {needed}` as root, `nofile` in /etc/security/limits.conf, LimitNOFILE= of a"
            " systemd unit, or --ulimit of a container"
        )
    return limit


def write_files(
    files: GatewayFiles, config: GatewayConfig, authority: Authority, hard_end_unix_s: float
) -> None:
    """Write certificate, key and configuration of a gateway to its empty directory."""
    uri = authority.expected_uri(config.node)
    issued = authority.issue(uri, config.hard_end_s + _VALIDITY_MARGIN_S)
    files.fill(
        {
            config.certificate_path.name: issued.certificate_pem + issued.private_key_pem,
            config.authority_path.name: authority.ca_certificate_pem(
                hard_end_unix_s + _VALIDITY_MARGIN_S
            ),
            files.config_path.name: json.dumps(config.to_dict(), indent=1) + "\n",
        }
    )


def gateway_config(
    directory: Path,
    spec: FleetSpec,
    authority: Authority,
    *,
    node: str,
    addresses: Addresses,
    peers: frozenset[str],
    hard_end_s: float,
    settings: Mapping[str, Any],
) -> GatewayConfig:
    """The configuration of a gateway of the fleet, with the keys of its neighbours."""
    return GatewayConfig(
        node=node,
        fleet_key=spec.key,
        control_host=addresses.control,
        data_host=addresses.data or addresses.control,
        control_port=addresses.control_port,
        data_port=addresses.data_port,
        directory=str(directory),
        hello_keys_hex={peer: authority.hello_key(node, peer).hex() for peer in sorted(peers)},
        start_within_s=spec.times.start_within_s,
        lease_s=spec.times.lease_s,
        hard_end_s=hard_end_s,
        **settings,
    )
