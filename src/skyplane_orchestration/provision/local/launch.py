"""What a gateway needs before it starts: open files, a certificate, a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import MAX_CONNECTIONS, GatewayConfig
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.gateway_settings import open_files
from skyplane_orchestration.provision.local.machine import open_files_limit
from skyplane_orchestration.provision.local.run_directory import GatewayFiles

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0


def require_open_files(settings: Mapping[str, Any], connections: int = 2 * MAX_CONNECTIONS) -> int:
    """The hard limit of open files; negative if there is none.

    Raises ConfigurationInvalid if it is too low for one gateway.
    """
    needed = open_files(settings, connections)
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
