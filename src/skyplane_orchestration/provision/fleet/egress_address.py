"""The IPv4 address by which this process gets out to the internet."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Final
from urllib.parse import SplitResult, urlsplit

from skyplane_gateway.common.dialing import directly, proxy_for, through
from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid

#: Each answers with the address of who asks, and knows IPv4 only. Three operators run them.
PUBLIC_ECHOES: Final = (
    "https://checkip.amazonaws.com",
    "https://api.ipify.org",
    "https://ipv4.icanhazip.com",
)
#: Names others, with spaces between them.
_VARIABLE: Final = "SKYPLANE_EGRESS_ADDRESS_URLS"
#: Stands for the addresses of instances, which are not known before they are launched.
ANY_PUBLIC_ADDRESS: Final = "8.8.8.8"
_TIMEOUT_S: Final = 5.0


def known_echoes() -> tuple[str, ...]:
    return tuple(os.environ.get(_VARIABLE, "").split()) or PUBLIC_ECHOES


def check_echoes(urls: Sequence[str]) -> None:
    """Raise ConfigurationInvalid for an address that is not HTTPS; this machine needs none."""
    for url in urls:
        parts = urlsplit(url)
        is_here = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
        try:
            _ = parts.port
        except ValueError as error:
            raise ConfigurationInvalid(f"egress_address_urls has {url!r}: {error}") from error
        if not parts.hostname or not (parts.scheme == "https" or is_here):
            raise ConfigurationInvalid(
                f"egress_address_urls has {url!r}, which is no HTTPS address, such as"
                f" {PUBLIC_ECHOES[0]}"
            )


def egress_address(urls: Sequence[str]) -> str:
    """What the first echo that answers says. The way is that of connections with instances.

    Those of `PUBLIC_ECHOES` have to tell an address of the internet; others may tell any.

    Raises CloudUnavailable: none answers with one.
    """
    failures = []
    for url in urls:
        said = ""
        try:
            said = _asked(urlsplit(url))
            address = IPv4Address(said)
            if address.is_global or url not in PUBLIC_ECHOES:
                return str(address)
            failures.append(f"{url} says {address}, which is no address of the internet")
        except (OSError, http.client.HTTPException) as error:
            failures.append(f"{url} does not answer ({error})")
        except ValueError:
            failures.append(f"{url} does not say an address of IPv4, but {said[:40]!r}")
    raise CloudUnavailable(
        "this worker cannot learn the address by which gateways see it:"
        f" {'; '.join(failures)}; try again, or name the addresses of your workers in"
        " control_cidrs, as 203.0.113.7/32, or an echo of yours in egress_address_urls"
    )


def _asked(url: SplitResult) -> str:
    """The answer of an echo. Raises OSError, HTTPException."""
    host = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    proxy = proxy_for(ANY_PUBLIC_ADDRESS)
    if proxy is not None and url.scheme == "https":
        stream = through(proxy, host, port, _TIMEOUT_S)
    else:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
        stream = directly(str(found[0][4][0]), port, _TIMEOUT_S)
    connection = http.client.HTTPConnection(host, port)
    try:
        if url.scheme == "https":
            stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
        connection.sock = stream
        connection.request("GET", url.path or "/", headers={"Connection": "close"})
        answer = connection.getresponse()
        said = answer.read(256).decode("ascii", "replace").strip()
        if answer.status != http.client.OK:
            raise ConnectionError(f"HTTP {answer.status}")
        return said
    finally:
        stream.close()
        connection.close()
