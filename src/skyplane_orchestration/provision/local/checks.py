"""Whether this machine can run gateways."""

from __future__ import annotations

import importlib.util
import os
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from skyplane_gateway.config import MAX_CONNECTIONS
from skyplane_orchestration.errors import ConfigurationInvalid, MissingExtra, SkyplaneError
from skyplane_orchestration.provision.gateway_settings import open_files
from skyplane_orchestration.provision.local.options import LocalOptions, loopback_address
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.provision.provisioner import Finding

#: Name of the finding about the gateway's requirements, which only planning does without.
GATEWAY: Final = "gateway"


def require_gateway(options: LocalOptions) -> None:
    """Raise MissingExtra if this interpreter is to run gateways and cannot."""
    is_own = not options.command and options.python == sys.executable
    if is_own and importlib.util.find_spec("aiohttp") is None:
        raise MissingExtra.of("a gateway on this machine", "gateway")


def require_open_files(settings: Mapping[str, Any], connections: int = 2 * MAX_CONNECTIONS) -> int:
    """The hard limit of open files.

    Raises ConfigurationInvalid if it is too low for one gateway.
    """
    needed = open_files(settings, connections)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise ConfigurationInvalid(
            f"a gateway with {connections} connections needs {needed} open files, and this process"
            f" may have {limit} (`ulimit -Hn`); run it with a hard limit of at least {needed}:"
            f" `ulimit -n {needed}` as root, `nofile` in /etc/security/limits.conf, LimitNOFILE="
            " of a systemd unit, or --ulimit of a container"
        )
    return limit


def local_findings(options: LocalOptions, root: RunRoot) -> tuple[Finding, ...]:
    return (
        _tried(GATEWAY, partial(_gateway, options)),
        _tried("run root", partial(_run_root, root)),
        _tried("open files", partial(_open_files, options)),
        *_addresses(options),
    )


def _tried(name: str, attempt: Callable[[], str]) -> Finding:
    """What an attempt says, or its error."""
    try:
        return Finding(name, True, attempt())
    except SkyplaneError as error:
        return Finding(name, False, error.message)


def _gateway(options: LocalOptions) -> str:
    require_gateway(options)
    return "this machine can run gateways"


def _run_root(root: RunRoot) -> str:
    path = root.path
    if os.path.lexists(path):
        root.prepare()
        return str(path)
    parent = next(parent for parent in path.parents if parent.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        return f"{path} will be created on first use"
    raise ConfigurationInvalid.about(
        "{path} cannot be created; choose another {run_root}", path=path
    )


def _open_files(options: LocalOptions) -> str:
    limit = require_open_files(options.gateway_settings)
    return "no limit" if limit == resource.RLIM_INFINITY else f"{limit} for each process"


def _addresses(options: LocalOptions) -> Iterator[Finding]:
    if options.launch_prefix:
        return  # It may lead to a network whose addresses are not those of this process.
    for region in options.address_map or ("local:this-machine",):
        address = options.address(region)
        name = "loopback" if address == loopback_address(region) else f"address of {region}"
        try:
            socket.create_server((address, 0)).close()
        except OSError as error:
            yield Finding(name, False, f"cannot listen on {address}: {error.strerror}")
        else:
            yield Finding(name, True, f"can listen on {address}")
