"""Opens TCP connections: directly, or through the HTTP proxy that this machine has for HTTPS.

The proxy is that of `urllib`: HTTPS_PROXY or ALL_PROXY names it, NO_PROXY has the hosts that need
none. An address that is not of the internet never needs one.
"""

from __future__ import annotations

import base64
import re
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

#: (host, port, timeout in seconds) -> a connection. Raises OSError.
Dial: TypeAlias = Callable[[str, int, float], socket.socket]

_MOST_HEAD_BYTES: Final = 16 << 10
_DEFAULT_PORT: Final = 80
_STATUS: Final = re.compile(rb"HTTP/1\.[0-9] ([0-9]{3})([^\r\n]*)")
_HEAD_END: Final = b"\r\n\r\n"
_SHOWN_BYTES: Final = 100


class ProxyRefused(ConnectionError):
    """A proxy does not connect; `status` is that of its answer, 0 without one."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


def directly(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection without a proxy. Raises OSError."""
    stream = socket.create_connection((host, port), timeout_s)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection through the machine's proxy, if it needs one.

    Args:
        timeout_s: also of each later read and write.

    Raises OSError: neither the text nor its cause has the credentials of the proxy.
    """
    proxy = proxy_for(host)
    if proxy is None:
        return directly(host, port, timeout_s)
    return through(proxy, host, port, timeout_s)


def through(proxy: SplitResult, host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection through a proxy; see `dial`."""
    deadline_s = time.monotonic() + timeout_s
    shown = without_credentials(proxy)
    try:
        stream = directly(proxy.hostname or "", proxy.port or _DEFAULT_PORT, timeout_s)
    except OSError as error:
        raise ConnectionError(f"the proxy {shown} does not answer: {error}") from None
    try:
        stream.sendall(_request(proxy, host, port))
        head = _head(stream, deadline_s)
        found = _STATUS.match(head)
        if found is None or found[1][:1] != b"2" or not head.endswith(_HEAD_END):
            said = ascii((found[0] if found else head)[:_SHOWN_BYTES].decode("latin-1"))
            is_closed = found is not None and found[1] == b"407"
            needs = "HTTPS_PROXY needs its user and password"
            raise ProxyRefused(
                f"the proxy {shown} does not connect to {host}:{port}, it says {said};"
                f" {needs if is_closed else f'it has to allow CONNECT to port {port}'}",
                int(found[1]) if found else 0,
            )
        stream.settimeout(timeout_s)
    except TimeoutError:
        stream.close()
        raise TimeoutError(f"the proxy {shown} does not answer within {timeout_s:g} s") from None
    except OSError:
        stream.close()
        raise
    return stream


def proxy_for(host: str) -> SplitResult | None:
    """The proxy for HTTPS to a host, with its credentials; None if it needs none.

    Raises ConnectionError: the machine has a proxy of another kind than `http://`.
    """
    with suppress(ValueError):
        if not ip_address(host).is_global:
            return None
    known = getproxies()
    # What ALL_PROXY names of another kind is for other programs.
    shared = known.get("all") or ""
    address = known.get("https") or (shared if shared.startswith("http://") else "")
    if not address or proxy_bypass(host):
        return None
    try:
        proxy = urlsplit(address if "://" in address else f"http://{address}")
        is_usable = proxy.scheme == "http" and bool(proxy.hostname) and proxy.port != 0
    except ValueError:
        raise ConnectionError("HTTPS_PROXY is no address of a proxy") from None
    if not is_usable:
        raise ConnectionError(
            f"HTTPS_PROXY names {without_credentials(proxy)}; only a proxy that is reached as"
            " http://host:port can be used, so name one, or except the addresses with NO_PROXY"
        )
    return proxy


def without_credentials(proxy: SplitResult) -> str:
    """A proxy for messages."""
    return f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"


def _request(proxy: SplitResult, host: str, port: int) -> bytes:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {where} HTTP/1.1", f"Host: {where}"]
    if proxy.username is not None:
        pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
        lines.append(f"Proxy-Authorization: Basic {base64.b64encode(pair.encode()).decode()}")
    return "\r\n".join([*lines, "", ""]).encode()


def _head(stream: socket.socket, deadline_s: float) -> bytes:
    """The head of an answer, byte by byte: what follows it is of the other end."""
    head = b""
    while not head.endswith(_HEAD_END):
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError
        stream.settimeout(remaining_s)
        byte = stream.recv(1)
        head += byte
        if not byte or len(head) > _MOST_HEAD_BYTES:
            break
    return head
