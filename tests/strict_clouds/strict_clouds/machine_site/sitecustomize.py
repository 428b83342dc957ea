"""The network of a fake machine, for its program: Python imports this module when it starts.

A machine dials others from its own address, and its firewall decides on each connection. A packet
that a firewall drops would time out at last; here the connection times out at once.

A file beside the machine's other ones holds the rules (`firewall.py`), another one notes the
connections. Everything that is no machine of the world is out of a firewall's reach.

A file per process, `sent.PID.json`, has the bytes that were sent to other machines, by address, as
the kernel counts them: those that the other end has acknowledged, with what is still on its way
when a socket closes. It is written several times a second, since a process may be killed.
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import ipaddress
import json
import os
import socket
import struct
import termios
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, Final

#: Bind to an address without a port, from <linux/in.h>. The port is chosen with the peer.
_IP_BIND_ADDRESS_NO_PORT: Final = 24

#: Seconds between two looks at the counters.
_EVERY_S: Final = 0.1
#: Offset of `tcpi_bytes_acked` in `struct tcp_info` of <linux/tcp.h>: 8 bytes, 24 numbers of 32
#: bits, and two of 64 bits come before.
_ACKED_AT: Final = 8 + 24 * 4 + 2 * 8
_INFO_BYTES: Final = _ACKED_AT + 8


class _Network:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._own = directory.name
        # Of the addresses of machines: the first two numbers of this one's.
        self._prefix = ".".join([*self._own.split(".")[:2], ""])
        self._connect = socket.socket.connect
        self._connect_ex = socket.socket.connect_ex
        self._accept = socket.socket.accept
        self._close = socket.socket.close
        self._detach = socket.socket.detach
        self._dup = socket.socket.dup
        self._sent = _SentBytes(directory)

    def install(self) -> None:
        network = self

        def connect(self: socket.socket, address: Any) -> None:
            if not network.may_dial(self, address):
                raise TimeoutError(errno.ETIMEDOUT, f"a firewall drops this: {address}")
            network.follow(self, address)
            network._connect(self, address)

        def connect_ex(self: socket.socket, address: Any) -> int:
            if not network.may_dial(self, address):
                return errno.ETIMEDOUT
            network.follow(self, address)
            return network._connect_ex(self, address)

        def accept(self: socket.socket) -> tuple[socket.socket, Any]:
            while True:
                connection, peer = network._accept(self)
                if network.may_enter(self, peer):
                    network.follow(connection, peer)
                    return connection, peer
                connection.close()

        def close(self: socket.socket) -> None:
            network._sent.end(self)
            network._close(self)

        def detach(self: socket.socket) -> int:
            network._sent.end(self)
            return network._detach(self)

        def dup(self: socket.socket) -> socket.socket:
            made = network._dup(self)
            network._sent.move(self, made)
            return made

        for method in (connect, connect_ex, accept, close, detach, dup):
            setattr(socket.socket, method.__name__, method)

    def follow(self, connection: socket.socket, address: Any) -> None:
        """Count what is sent to another machine."""
        if connection.family == socket.AF_INET and str(address[0]).startswith(self._prefix):
            self._sent.follow(connection, address[0])

    def may_dial(self, dialing: socket.socket, address: Any) -> bool:
        if dialing.family != socket.AF_INET or not str(address[0]).startswith(self._prefix):
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
        if peer == host:
            return True  # Within the machine.
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


class _SentBytes:
    """The counters of one process. `follow` each connection, and `end` it before its close."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._open: weakref.WeakKeyDictionary[socket.socket, str] = weakref.WeakKeyDictionary()
        self._ended: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._written: dict[str, int] = {}
        self._process = 0

    def follow(self, connection: socket.socket, peer: str) -> None:
        with self._lock:
            self._open[connection] = peer
            if self._process != os.getpid():
                self._process = os.getpid()
                atexit.register(self._write)
                threading.Thread(target=self._write_often, daemon=True).start()

    def move(self, connection: socket.socket, duplicate: socket.socket) -> None:
        """Follow the duplicate in place of the connection, which may be closed before it."""
        with self._lock:
            peer = self._open.pop(connection, None)
            if peer is not None:
                self._open[duplicate] = peer

    def end(self, connection: socket.socket) -> None:
        with self._lock:
            peer = self._open.pop(connection, None)
            if peer is not None:
                self._ended[peer] += _acknowledged(connection) + _unacknowledged(connection)
                self._write()

    def _write_often(self) -> None:
        pause = threading.Event()
        while not pause.wait(_EVERY_S):
            self._write()

    def _write(self) -> None:
        with self._lock:
            sent = Counter(self._ended)
            for connection, peer in list(self._open.items()):
                sent[peer] += _acknowledged(connection)
            if dict(sent) == self._written or not self._directory.is_dir():
                return
            partial = self._directory / f"sent.{self._process}.partial"
            partial.write_text(json.dumps(sent))
            partial.rename(self._directory / f"sent.{self._process}.json")
            self._written = dict(sent)


def _acknowledged(connection: socket.socket) -> int:
    """0 for a socket that is closed, or not connected yet."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    except OSError:
        return 0
    (acked,) = struct.unpack_from("=Q", info, _ACKED_AT)
    return max(int(acked) - 1, 0)  # The kernel counts the SYN.


def _unacknowledged(connection: socket.socket) -> int:
    """What lies in the socket's send queue."""
    try:
        queued = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    (size,) = struct.unpack("=i", queued)
    return int(size)


if "STRICT_CLOUDS_MACHINE" in os.environ:
    _Network(Path(os.environ["STRICT_CLOUDS_MACHINE"])).install()
