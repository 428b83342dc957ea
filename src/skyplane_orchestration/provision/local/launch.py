"""Starts a gateway as a process that outlives its parent.

Airflow kills a task's process group and waits for its open pipes. So a gateway gets its own
session, and inherits no file descriptor and no environment.
"""

from __future__ import annotations

import os
import resource
import site
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import GatewayConfig, files_needed
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.base import FleetSpec
from skyplane_orchestration.provision.local.run_directory import (
    GatewayFiles,
    write_document,
    write_private,
)

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Certificates expire a little after their gateways, so that logs can be read at the end.
_VALIDITY_MARGIN_S: Final = 300.0

#: Variables that every process needs, or that coverage needs.
_PASSED_TO_ALL: Final = frozenset({"PATH", "LANG", "TZ", "VIRTUAL_ENV"})
_PREFIXES_PASSED_TO_ALL: Final = ("LC_", "COVERAGE_")

#: Variables for access to stores: trusted certificates and proxies, no credentials.
_PASSED_TO_ENDS: Final = frozenset(
    {
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        *(
            name
            for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
            for name in (lower, lower.upper())
        ),
    }
)


def gateway_environment(
    environment: Mapping[str, str], directory: Path, *, is_end: bool
) -> dict[str, str]:
    """The environment of a gateway, which gets its credentials over the control API alone.

    The home directory is the gateway's own, since SDKs look for profiles and tokens there.
    `is_end`: the gateway talks to object stores.
    """
    allowed = _PASSED_TO_ALL | _PASSED_TO_ENDS if is_end else _PASSED_TO_ALL
    scrubbed = {
        name: value
        for name, value in environment.items()
        if name in allowed or name.startswith(_PREFIXES_PASSED_TO_ALL)
    }
    search = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if search:
        # The gateway has another working directory, so entries must be absolute.
        scrubbed["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in search)
    scrubbed["HOME"] = str(directory)
    # Python would look for packages of `pip --user` in the new home.
    scrubbed["PYTHONUSERBASE"] = site.getuserbase()
    return scrubbed


def require_open_files(connections: int, store_threads: int) -> None:
    """Raise ConfigurationInvalid if the hard limit of open files is too low for one gateway."""
    needed = files_needed(connections, store_threads)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ConfigurationInvalid(
            f"a gateway of this plan needs {needed} open files, and this process may have"
            f" {limit} (`ulimit -Hn`); run it with a hard limit of at least {needed}: `ulimit -n"
            f" {needed}` as root, `nofile` in /etc/security/limits.conf, LimitNOFILE= of a systemd"
            " unit, or --ulimit of a container"
        )


def write_files(
    files: GatewayFiles,
    spec: FleetSpec,
    authority: Authority,
    *,
    node: str,
    address: str,
    peers: frozenset[str],
    hard_end_unix_s: float,
    now_unix_s: float,
    settings: Mapping[str, Any],
) -> GatewayConfig:
    """Write certificate, key and configuration of a gateway to its empty directory."""
    files.make_empty()
    remaining_s = hard_end_unix_s - now_unix_s
    issued = authority.issue(authority.expected_uri(node), remaining_s + _VALIDITY_MARGIN_S)
    write_private(files.certificate_path, issued.certificate_pem + issued.private_key_pem)
    write_private(
        files.authority_path, authority.ca_certificate_pem(hard_end_unix_s + _VALIDITY_MARGIN_S)
    )
    config = gateway_config(
        files.directory,
        spec,
        authority,
        node=node,
        address=address,
        peers=peers,
        hard_end_s=remaining_s,
        settings=settings,
    )
    write_document(files.config_path, config.to_dict())
    return config


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


def start(
    files: GatewayFiles, *, fleet_key: str, command_line: Sequence[str], is_end: bool
) -> subprocess.Popen[bytes]:
    """Start the gateway whose files are written; returns at once.

    With `--detach` the process only forks and exits, so nothing has to wait for the gateway.
    Raises OSError if the program cannot be run.
    """
    argv = [
        *command_line,
        "--config",
        str(files.config_path),
        "--fleet",
        fleet_key,
        "--detach",
    ]
    with files.log_path.open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            env=gateway_environment(os.environ, files.directory, is_end=is_end),
        )
