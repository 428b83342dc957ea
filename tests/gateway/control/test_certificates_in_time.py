"""Certificates that are not valid now: the error names the clocks, on either side."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.provision.samples import SECRET

from skyplane_gateway.common.errors import GatewayError
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.security.authority import Authority

KEY, NODE = "ab" * 16, "aws:us-east-1/0"
DAY_S = 86_400.0
CLOCKS = "the clocks of the two machines differ by an hour or more"


def authority(ahead_s: float = 0.0) -> Authority:
    return Authority(SECRET, KEY, wall_clock=lambda: time.time() + ahead_s)


@contextmanager
def gateway(tmp_path: str, ahead_s: float) -> Iterator[int]:
    """A server with a certificate of a clock; its port. It ends connections after the handshake."""
    owner = authority(ahead_s)
    issued = owner.issue(owner.expected_uri(NODE), 3600.0)
    path = f"{tmp_path}/gateway.pem"
    with open(path, "w") as file:
        file.write(issued.certificate_pem + issued.private_key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(path)
    context.load_verify_locations(cadata=authority().ca_certificate_pem(time.time() + DAY_S))
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(
    ("gateways", "ours"),
    [(DAY_S, 0.0), (-DAY_S, 0.0), (0.0, DAY_S)],
    ids=["its-future", "its-past", "our-future"],
)
def test_the_clocks_are_named(tmp_path: str, gateways: float, ours: float) -> None:
    with gateway(tmp_path, gateways) as port:
        own = authority(ours)
        context = own.client_context()
        context.load_verify_locations(cadata=authority().ca_certificate_pem(time.time() + DAY_S))
        client = ControlClient("127.0.0.1", port, context, own.expected_uri(NODE), 5.0)
        with pytest.raises(GatewayError) as caught:
            client.status()
        client.close()
    assert CLOCKS in caught.value.message
