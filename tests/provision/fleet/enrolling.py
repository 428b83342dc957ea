"""An instance that waits for its enrolment, a worker that enrols it, and other machines."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from skyplane_gateway.common.dialing import directly
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.listener import bound
from skyplane_gateway.enrolment.documents import Delivery, EnrolmentDocument
from skyplane_gateway.enrolment.identity import InstanceIdentity
from skyplane_gateway.enrolment.server import EnrolmentServer, enrolment_context
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.machines import FleetTags, Instance as Described
from skyplane_orchestration.provision.fleet.software import Software
from skyplane_orchestration.security.authority import Authority, FleetSecret

SECRET = FleetSecret.from_text("correct horse battery staple, thirty-two and more")
KEY = "ab" * 16
INSTANCE = "aws:us-east-1/0"
PEER = "gcp:us-east1/0"
LAUNCH = "1a" * 16
DAY_S = 86400.0
NOW = dt.datetime.now(dt.UTC)
HOST = "127.0.0.1"


def document_of(authority: Authority) -> EnrolmentDocument:
    return EnrolmentDocument(
        fleet_key=authority.fleet_key,
        instance=INSTANCE,
        port=0,
        start_within_s=900.0,
        authority_pem=authority.ca_certificate_pem(NOW.timestamp() + DAY_S),
        token_hex=authority.enrolment_token(INSTANCE, LAUNCH).hex(),
    )


def config_of(authority: Authority, node: str = INSTANCE) -> GatewayConfig:
    return GatewayConfig(
        node=node,
        fleet_key=authority.fleet_key,
        control_host="",
        data_host="",
        directory="",
        hello_keys_hex={PEER: authority.hello_key(node, PEER).hex()},
    )


@dataclass
class Instance:
    """An instance that waits for its enrolment."""

    document: EnrolmentDocument
    identity: InstanceIdentity
    port: int = 0
    deliveries: list[Delivery] = field(default_factory=list)


@contextmanager
def waiting_instance(
    authority: Authority,
    directory: Path,
    *,
    accept: Callable[[Delivery], None] | None = None,
    exchange_timeout_s: float = 60.0,
) -> Iterator[Instance]:
    """An instance on an event loop of its own."""
    instance = Instance(document_of(authority), InstanceIdentity.create(NOW))
    context = enrolment_context(instance.identity, instance.document.authority_pem, directory)

    listener = bound(HOST, 0)
    instance.port = listener.getsockname()[1]

    async def start() -> EnrolmentServer:
        return EnrolmentServer(
            instance.document,
            instance.identity,
            context,
            listener,
            accept or instance.deliveries.append,
            exchange_timeout_s,
        )

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result()
        try:
            yield instance
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def enrol_at(
    address: tuple[str, int],
    authority: Authority,
    instance: str,
    launch_id: str,
    gateways: Mapping[str, GatewayConfig],
    *,
    key_id: str = "",
    pin: Callable[[str], None] = lambda key_id: None,
    timeout_s: float = 10.0,
    software: Callable[[], Software | None] = lambda: None,
) -> str:
    """A worker's part in the enrolment of an instance at an address; the id of its key."""
    tags = FleetTags(authority.fleet_key, "test", 0, 0, int(NOW.timestamp() + DAY_S))
    described = Described(
        tags, instance, instance, "i-1", "running", address[0], launch_id, key_id, 0.0
    )
    boot = Boot(
        lambda *_: "",
        lambda _: partial(directly, *address),
        timeout_s=timeout_s,
        software=lambda _: software(),
    )
    return boot.enrol(authority, described, gateways, pin)


@dataclass
class Worker:
    """A worker of the fleet, with the tag of the instance's key that it writes."""

    authority: Authority = field(default_factory=lambda: Authority(SECRET, KEY))
    pinned: list[str] = field(default_factory=list)

    def enrol(
        self,
        port: int,
        *,
        gateways: dict[str, GatewayConfig] | None = None,
        pin: Callable[[str], None] | None = None,
        timeout_s: float = 10.0,
    ) -> str:
        return enrol_at(
            (HOST, port),
            self.authority,
            INSTANCE,
            LAUNCH,
            gateways or {INSTANCE: config_of(self.authority)},
            key_id="".join(self.pinned[-1:]),
            pin=pin or self.pinned.append,
            timeout_s=timeout_s,
        )


Talk = Callable[[ssl.SSLSocket], None]


@contextmanager
def other_machine(context: ssl.SSLContext, talk: Talk) -> Iterator[int]:
    """A machine that answers with TLS and then does as `talk` says; its port."""
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        while True:
            try:
                plain, _ = listener.accept()
            except OSError:
                return
            # Those who dial may leave at any time.
            with suppress(OSError), context.wrap_socket(plain, server_side=True) as stream:
                stream.settimeout(10)
                talk(stream)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def server_of(certificate_pem: str, key_pem: str, directory: Path) -> ssl.SSLContext:
    """A server's context that asks callers for a certificate and accepts each."""
    path = directory / "other.pem"
    path.write_text(certificate_pem + key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def read_line(stream: ssl.SSLSocket) -> bytes:
    """Up to the end of the line, or of the connection."""
    line = b""
    while not line.endswith(b"\n"):
        more = stream.recv(4096)
        if not more:
            break
        line += more
    return line


@contextmanager
def dialed(port: int, context: ssl.SSLContext) -> Iterator[ssl.SSLSocket]:
    """A TLS connection to an instance, which is never verified."""
    with (
        socket.create_connection((HOST, port), timeout=10) as plain,
        context.wrap_socket(plain) as stream,
    ):
        yield stream


def stranger_context() -> ssl.SSLContext:
    """Without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def context_named(authority: Authority, name_uri: str, directory: Path) -> ssl.SSLContext:
    """With a certificate of a fleet for any name."""
    own = authority.issue(name_uri, DAY_S)
    path = directory / "named.pem"
    path.write_text(own.certificate_pem + own.private_key_pem)
    context = stranger_context()
    context.load_cert_chain(path)
    return context
