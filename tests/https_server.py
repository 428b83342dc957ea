"""An HTTPS server on the loopback interface, with a certificate of its own."""

from __future__ import annotations

import contextlib
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"


@contextlib.contextmanager
def serving(
    handler: Callable[..., BaseHTTPRequestHandler], folder: Path
) -> Iterator[tuple[str, str]]:
    """Its address, and the path of a PEM file by which clients trust it."""
    path = certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with ThreadingHTTPServer((HOST, 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://{HOST}:{server.server_port}", str(path)
        finally:
            server.shutdown()
            thread.join()


def certificate(folder: Path) -> Path:
    """A new PEM file with a key and its certificate for `HOST`, by which clients trust it."""
    path = folder / "server.pem"
    path.write_bytes(_pair())
    return path


def _pair() -> bytes:
    """Key and certificate, PEM."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(1))
        .add_extension(names, False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return secret + certificate.public_bytes(Encoding.PEM)
