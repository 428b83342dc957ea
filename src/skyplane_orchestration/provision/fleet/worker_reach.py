"""Whether this machine can open connections to instances on the internet, and by which address.

Nothing of ours listens before a fleet is there. So the ways out of this machine are tried on hosts
of the cloud, which tells of firewalls that let port 443 through only. A proxy is asked for a
connection with an address where nothing answers: it refuses at once what it does not allow.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from functools import partial
from http.client import BAD_REQUEST, INTERNAL_SERVER_ERROR
from ipaddress import ip_address
from typing import Final
from urllib.parse import SplitResult

from skyplane_gateway.common.dialing import ProxyRefused, proxy_for, through, without_credentials
from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.fleet.admission import Learn
from skyplane_orchestration.provision.fleet.egress_address import ANY_PUBLIC_ADDRESS, egress_address
from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    HTTPS_PORT,
    MOST_PROCESSES,
    Machines,
    PublicHosts,
    control_port,
)
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding

_TIMEOUT_S: Final = 5.0
_ALL: Final = f"ports {ENROLMENT_PORT} to {control_port(MOST_PROCESSES - 1)} of instances"
_BY_443: Final = f"set control_port: {HTTPS_PORT} in the clouds file"


def worker_findings(
    clouds: Iterable[Machines], options: InstanceOptions, learn: Learn = egress_address
) -> tuple[Finding, ...]:
    """What can be told; nothing of clouds whose instances have no public address."""
    public = {cloud.name: hosts for cloud in clouds if (hosts := cloud.public_hosts)}
    if not public:
        return ()
    port = options.control_port
    asks = [partial(_way_out, f"{name} worker", hosts, port) for name, hosts in public.items()]
    if options.control_cidrs is None:
        asks.append(partial(_address, options.egress_address_urls, learn))
    return tuple(finding for found in in_parallel(asks, lambda ask: ask()) for finding in found)


def _address(urls: Sequence[str], learn: Learn) -> tuple[Finding, ...]:
    """The address that firewalls let in, as two echoes tell it."""
    name = "worker address"
    try:
        seen = dict.fromkeys((learn(urls), learn(urls[::-1])))
    except CloudUnavailable as error:
        return (Finding(name, False, str(error)),)
    text = f"fleets let this machine in at {' and '.join(seen)}"
    more = "; if it gets out by another one with each connection, name the ranges in control_cidrs"
    if len(seen) > 1:
        more = (
            ": its address changes with the connection; name the ranges of all such addresses in"
            " control_cidrs, as 203.0.113.0/24"
        )
    return (Finding(name, True, text + more, is_warning=len(seen) > 1),)


def _way_out(name: str, hosts: PublicHosts, port: int) -> tuple[Finding, ...]:
    try:
        proxy = proxy_for(ANY_PUBLIC_ADDRESS)
    except ConnectionError as error:
        return (Finding(name, True, str(error), is_warning=True),)
    if proxy is not None:
        return (_by_proxy(name, proxy, hosts, port),)
    address = _answering(hosts.api, HTTPS_PORT)
    if not address or ip_address(address).is_private:
        return ()
    if port == HTTPS_PORT:
        return (Finding(name, True, f"it gets out by port {port}, which all its calls take"),)
    if _answering(hosts.web, 80):
        return (Finding(name, True, f"it gets out without a proxy; it needs TCP to {_ALL}"),)
    text = (
        f"this machine seems to get out by port {HTTPS_PORT} only ({hosts.web} does not answer at"
        f" port 80): {_BY_443}, or let it open TCP connections to {_ALL}"
    )
    return (Finding(name, True, text, is_warning=True),)


def _by_proxy(name: str, proxy: SplitResult, hosts: PublicHosts, port: int) -> Finding:
    text = f"it calls gateways by CONNECT through the proxy {without_credentials(proxy)}"
    try:
        through(proxy, hosts.api, HTTPS_PORT, _TIMEOUT_S).close()
        refusal = _refusal(proxy, port)
        if not refusal:
            return Finding(name, True, f"{text}, which lets calls to port {port} through")
        is_443_open = port != HTTPS_PORT and not _refusal(proxy, HTTPS_PORT)
    except OSError as error:
        return Finding(name, True, f"{text}, which cannot be checked: {error}", is_warning=True)
    wanted = f"port {port} of instances" if port == HTTPS_PORT else _ALL
    ways = f"let the proxy allow {wanted}, or let this machine connect without it (NO_PROXY)"
    if is_443_open:
        ways = f"it allows port {HTTPS_PORT}, so {_BY_443}; or {ways}"
    return Finding(name, True, f"{text}, which refuses: {refusal}; {ways}", is_warning=True)


def _refusal(proxy: SplitResult, port: int) -> str:
    """How the proxy refuses a port; empty if it tries to connect.

    Raises OSError: it does neither.
    """
    try:
        through(proxy, ANY_PUBLIC_ADDRESS, port, _TIMEOUT_S).close()
    except TimeoutError:
        # It has taken the request, and waits for the other end.
        return ""
    except ProxyRefused as error:
        if BAD_REQUEST <= error.status < INTERNAL_SERVER_ERROR:
            return str(error)
        if not error.status:
            raise
    return ""


def _answering(host: str, port: int) -> str:
    """The address that takes a direct connection; empty if none does."""
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            return str(connection.getpeername()[0])
    except OSError:
        return ""
