"""Whether this machine can open connections to instances on the internet.

Nothing of ours listens before a fleet is there. So the ways out of this machine are tried on hosts
of the cloud, which tells of proxies and of firewalls that let port 443 through only.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    HTTPS_PORT,
    MOST_PROCESSES,
    PublicHosts,
    control_port,
)
from skyplane_orchestration.provision.provisioner import Finding

_TIMEOUT_S: Final = 5.0
_PORTS: Final = f"{ENROLMENT_PORT} to {control_port(MOST_PROCESSES - 1)}"


def worker_findings(cloud: str, hosts: PublicHosts) -> tuple[Finding, ...]:
    """What can be told; nothing within a network of the cloud, or without any way out.

    Args:
        cloud: its name.
    """
    name = f"{cloud} worker"
    address = _answering(hosts.api, 443)
    if not address:
        known = getproxies()
        parts = urlsplit(known.get("https") or known.get("all") or "")
        # Without credentials.
        proxy = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""
        return (Finding(name, True, _behind(proxy, hosts.api), True),) if proxy else ()
    if ip_address(address).is_private:
        return ()
    if not _answering(hosts.web, 80):
        text = (
            f"this machine seems to get out by port 443 only ({hosts.web} does not answer at port"
            f" 80): set control_port: {HTTPS_PORT} in the clouds file, or let it open TCP"
            f" connections to ports {_PORTS} of instances"
        )
        return (Finding(name, True, text, is_warning=True),)
    text = f"it gets out without a proxy; it needs TCP to ports {_PORTS} of instances"
    return (Finding(name, True, text),)


def _behind(proxy: str, host: str) -> str:
    return (
        f"this machine reaches {host} only through the proxy {proxy}, and calls gateways through"
        f" it too: the proxy has to allow CONNECT to ports {_PORTS} of instances, which is not"
        " checked; if it does not, let this machine open TCP connections to these ports"
        " (NO_PROXY), or give instances addresses in your own network (public_address: false)"
    )


def _answering(host: str, port: int) -> str:
    """The address that takes a direct connection; empty if none does."""
    try:
        with socket.create_connection((host, port), _TIMEOUT_S) as connection:
            return str(connection.getpeername()[0])
    except OSError:
        return ""
