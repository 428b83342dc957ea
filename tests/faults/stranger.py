"""A TLS server of another owner at the address of a gateway."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from skyplane_orchestration.security.authority import Authority, FleetSecret


@contextmanager
def answering(address: tuple[str, int], directory: Path) -> Iterator[tuple[str, int]]:
    """Answer at that address, with port 0 at any, until the context ends."""
    other = Authority(FleetSecret(b"the secret of another team's fleet"), "ef" * 16)
    issued = other.issue(other.expected_uri("x"), 3600.0)
    pem = directory / "stranger.pem"
    pem.write_text(issued.certificate_pem + issued.private_key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(address) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context), daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[:2]
        finally:
            # Closing alone would not wake the thread that accepts.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    while True:
        try:
            raw, _ = listener.accept()
        except OSError:
            return
        raw.settimeout(5)
        try:
            context.wrap_socket(raw, server_side=True).close()
        except OSError:
            raw.close()
