"""Enrolment over real sockets, and those who attack it."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.enrolment.documents import Delivery, EnrolmentDocument
from skyplane_gateway.enrolment.identity import InstanceIdentity
from skyplane_gateway.enrolment.server import EnrolmentServer, enrolment_context
from skyplane_orchestration.provision.instances.enrolment import enrol
from skyplane_orchestration.security.authority import Authority, FleetSecret

SECRET = FleetSecret.from_text("correct horse battery staple, thirty-two and more")
KEY = "ab" * 16
INSTANCE = "aws:us-east-1/0"
PEER = "gcp:us-east1/0"
LAUNCH = "1a" * 16
DAY_S = 86400.0
NOW = dt.datetime.now(dt.UTC)


def document_of(authority: Authority, **changes: str) -> EnrolmentDocument:
    values = {"instance": INSTANCE, "launch_id": LAUNCH, **changes}
    return EnrolmentDocument(
        fleet_key=authority.fleet_key,
        instance=values["instance"],
        port=0,
        start_within_s=900.0,
        authority_pem=authority.ca_certificate_pem(NOW.timestamp() + DAY_S),
        token_hex=authority.enrolment_token(values["instance"], values["launch_id"]).hex(),
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
    """An instance that waits for its enrolment, on a loop of its own."""

    document: EnrolmentDocument
    identity: InstanceIdentity
    port: int
    deliveries: list[Delivery] = field(default_factory=list)


@contextmanager
def waiting_instance(
    document: EnrolmentDocument,
    directory: Path,
    *,
    identity: InstanceIdentity | None = None,
    accept: Callable[[Delivery], None] | None = None,
) -> Iterator[Instance]:
    identity = identity or InstanceIdentity.create(NOW)
    context = enrolment_context(identity, document.authority_pem, directory)
    instance = Instance(document, identity, 0)

    async def start() -> EnrolmentServer:
        return EnrolmentServer(
            document, identity, context, "127.0.0.1", accept or instance.deliveries.append
        )

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        server = asyncio.run_coroutine_threadsafe(start(), loop).result()
        instance.port = server.port
        yield instance
        asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class Orchestrator:
    """A worker of the fleet, and the instance's tag that it writes."""

    authority: Authority = field(default_factory=lambda: Authority(SECRET, KEY))
    pinned: list[str] = field(default_factory=list)

    def enrol(self, port: int, **changes: object) -> str:
        values: dict[str, object] = {
            "authority": self.authority,
            "instance": INSTANCE,
            "launch_id": LAUNCH,
            "pinned_key_id": "".join(self.pinned[-1:]),
            "pin": self.pinned.append,
            "gateways": {INSTANCE: config_of(self.authority)},
            "validity_s": DAY_S,
            "timeout_s": 10.0,
        }
        return enrol("127.0.0.1", port, **{**values, **changes})  # type: ignore[arg-type]


def test_an_instance_gets_a_certificate_for_its_own_key_and_its_configuration(
    tmp_path: Path,
) -> None:
    worker = Orchestrator()
    with waiting_instance(document_of(worker.authority), tmp_path) as instance:
        key_id = worker.enrol(instance.port)
    assert worker.pinned == [key_id]
    assert len(key_id) == 40
    (delivery,) = instance.deliveries
    assert delivery.gateways.keys() == {INSTANCE}
    delivered = delivery.gateways[INSTANCE]
    assert delivered.config == config_of(worker.authority)
    issued = x509.load_pem_x509_certificate(delivered.certificate_pem.encode())
    shown = x509.load_der_x509_certificate(instance.identity.certificate_der)
    assert issued.public_key() == shown.public_key()
    instance.identity.require_own(
        delivered.certificate_pem,
        authority_pem=instance.document.authority_pem,
        uri=worker.authority.expected_uri(INSTANCE),
    )
    assert not list(tmp_path.iterdir())
