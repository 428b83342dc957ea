"""What a gateway needs before it starts: open files, a certificate, a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import GatewayConfig, files_needed
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.local.machine import open_files_limit
from skyplane_orchestration.provision.local.run_directory import GatewayFiles
from skyplane_orchestration.provision.provisioner import FleetSpec

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0


def require_open_files(connections: int, store_threads: int) -> int:
    """The hard limit of open files; negative if there is none.

    Raises ConfigurationInvalid if it is too low for one gateway.
    """
    needed = files_needed(connections, store_threads)
    limit = open_files_limit()
    if 0 <= limit < needed:
        raise ConfigurationInvalid(
            f"a gateway with {connections} connections needs {needed} open files, and this process"
            f" may have {limit} (`ulimit -Hn`); run it with a hard limit of at least {needed}:"
            f" `ulimit -n {needed}` as root, `nofile` in /etc/security/limits.conf, LimitNOFILE="
            " of a systemd unit, or --ulimit of a container"
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
    address: str,
    peers: frozenset[str],
    hard_end_s: float,
    settings: Mapping[str, Any],
) -> GatewayConfig:
    """The configuration of a gateway of the fleet, with the keys of its neighbours."""
    return GatewayConfig(
        node=node,
        fleet_key=spec.key,
        control_host=address,
        data_host=address,
        directory=str(directory),
        hello_keys_hex={peer: authority.hello_key(node, peer).hex() for peer in sorted(peers)},
        start_within_s=spec.times.start_within_s,
        lease_s=spec.times.lease_s,
        hard_end_s=hard_end_s,
        **settings,
    )
