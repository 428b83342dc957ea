"""The network of a fake machine, for its gateways: Python imports this module when it starts.

A machine dials others from its own address, and its firewall decides on each connection. A packet
that a firewall drops would time out at last; here the connection times out at once.

A file beside the machine's other ones holds the rules (`firewall.py`), another one notes the
connections. Everything that is no machine of the world is out of a firewall's reach.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import socket
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "127.77."

#: Bind to an address without a port, from <linux/in.h>. The port is chosen with the peer.
_IP_BIND_ADDRESS_NO_PORT: Final = 24


class _Network:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = directory.name
        self._connect = socket.socket.connect
        self._connect_ex = socket.socket.connect_ex
        self._accept = socket.socket.accept

    def install(self) -> None:
        network = self

        def connect(self: socket.socket, address: Any) -> None:
            if not network.may_dial(self, address):
                raise TimeoutError(errno.ETIMEDOUT, f"a firewall drops this: {address}")
            network._connect(self, address)

        def connect_ex(self: socket.socket, address: Any) -> int:
            if not network.may_dial(self, address):
                return errno.ETIMEDOUT
            return network._connect_ex(self, address)

        def accept(self: socket.socket) -> tuple[socket.socket, Any]:
            while True:
                connection, peer = network._accept(self)
                if network.may_enter(self, peer):
                    return connection, peer
                connection.close()

        for method in (connect, connect_ex, accept):
            setattr(socket.socket, method.__name__, method)

    def may_dial(self, dialing: socket.socket, address: Any) -> bool:
        if dialing.family != socket.AF_INET or not str(address[0]).startswith(_PREFIX):
            return True
        if dialing.getsockname()[0] == "0.0.0.0":
            dialing.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            dialing.bind((self._own, 0))
        host, port = address[:2]
        is_allowed = self._allows(host, port, self._own)
        if not is_allowed:
            self._note(self._directory.with_name(host) / "refused", self._own, port)
        return is_allowed

    def may_enter(self, listening: socket.socket, peer: Any) -> bool:
        if listening.family != socket.AF_INET or listening.getsockname()[0] != self._own:
            return True
        port = listening.getsockname()[1]
        is_allowed = self._allows(self._own, port, peer[0])
        name = "connections" if is_allowed else "refused"
        self._note(self._directory / name, peer[0], port)
        return is_allowed

    def _allows(self, host: str, port: int, peer: str) -> bool:
        try:
            rules = json.loads((self._directory.with_name(host) / "firewall.json").read_text())
        except FileNotFoundError:
            return True
        return any(
            first <= port <= last and ipaddress.ip_address(peer) in ipaddress.ip_network(cidr)
            for first, last, cidr in rules
        )

    def _note(self, path: Path, peer: str, port: int) -> None:
        if path.parent.is_dir():
            with path.open("a") as file:
                file.write(f"{peer} {port}\n")


if "SKYPLANE_FAKE_MACHINE" in os.environ:
    _Network(Path(os.environ["SKYPLANE_FAKE_MACHINE"])).install()
