"""Callers and peers that are not of this fleet, and invalid requests, are refused."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import (
    buckets,
    content,
    copy_spec,
    memory_spec,
    route,
    uploads,
)

from skyplane_gateway.common.errors import (
    NotAuthorised,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.common.identifiers import gateway_uri
from skyplane_gateway.config import MIB, AttachOrder
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control.tls import client_context
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.handshake import Side
from skyplane_orchestration.security.authority import Authority, FleetSecret

# Callers and peers that are not of this fleet are refused; a running transfer is not hurt.


SECRET = FleetSecret(b"the secret of the service tests!!")
DAY_S = 86400.0

#: (another secret, another fleet, issued so long ago)
STRANGERS: dict[str, Callable[[str], Authority]] = {
    "another secret": lambda key: Authority(FleetSecret(b"the secret of quite another team"), key),
    "another job's fleet": lambda key: Authority(SECRET, "0" * 32),
    "run out": lambda key: Authority(SECRET, key, wall_clock=lambda: time.time() - 400 * DAY_S),
}


#: With TLS 1.3 a client sees the refusal when it reads: an alert, or the end.
REFUSALS = {
    "",
    "TLSV1_ALERT_UNKNOWN_CA",
    "TLSV1_ALERT_DECRYPT_ERROR",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED",
}


def careless(authority: Authority | None) -> ssl.SSLContext:
    """A caller that trusts anybody, so that all that refuses is the gateway."""
    if authority is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = authority.client_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask(port: int, context: ssl.SSLContext, path: str = "/v1/status") -> str:
    """What a gateway answers, or the alert with which it ends the connection."""
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        try:
            with context.wrap_socket(raw) as tls:
                tls.sendall(request)
                while data := tls.recv(65536):
                    answer += data
        except ssl.SSLError as error:
            assert not answer
            return str(error.reason)
        except ConnectionError:
            assert not answer
    return answer.decode(errors="replace")


def knock(port: int, identity: Identity) -> bytes:
    """Say hello at the data port, and send a forged proof whatever the answer is."""
    connection = Connection.dial(identity, route=0, side=Side.UPSTREAM, nonce=os.urandom(16))
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        for buffer in connection.data_to_send():
            raw.sendall(buffer)
        answer = raw.recv(65536)
        try:
            raw.sendall(bytes.fromhex("0300000200000020") + bytes(32))
            while data := raw.recv(65536):
                answer += data
        except ConnectionError:
            pass
    return answer


def push(port: int, data: bytes) -> bytes:
    """Speak without having said hello."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), 10) as raw:
        try:
            raw.sendall(data)
            while part := raw.recv(65536):
                answer += part
        except ConnectionError:
            pass
    return answer


def held_bytes(fleet: Any) -> dict[str, int]:
    return {node: fleet.service(node).sink.held_bytes for node in fleet.nodes}


async def in_mid_transfer(fleet_of: Any, gate: Any, visit: Callable[[Any], Any]) -> None:
    """Have strangers at the gateways while chunks are on their way; then all must be well."""
    bodies = {f"o{number}": bytes([number]) * (2 * MIB) for number in range(4)}
    source, destination = buckets(bodies)
    settings = {"assembly_mib": 8, "readers": 3, "store_threads": 4}
    async with fleet_of(route(0, "a", "r", "b"), over_tls=True, **settings) as fleet:
        transfer = "58" * 16
        await fleet.begin(transfer, copy_spec(source, destination, chunk_bytes=MIB))
        try:
            everything = {"a": 0, "r": 0, "b": sum(map(len, bodies.values()))}
            await fleet.until(lambda: held_bytes(fleet) == everything)
            await asyncio.to_thread(visit, fleet)
            assert held_bytes(fleet) == everything
        finally:
            gate.open()
        status = await fleet.ended(transfer)
        assert (status["state"], status["routes_down"]) == ("succeeded", {})
    assert content(destination) == bodies
    assert uploads(destination) == []


@pytest.mark.parametrize("who", sorted(STRANGERS))
async def test_a_certificate_of_another_fleet_or_expired_is_refused(
    who: str, fleet_of: Any, gate: Any
) -> None:
    def visit(fleet: Any) -> None:
        context = careless(STRANGERS[who](fleet.key))
        for node in fleet.nodes:
            assert ask(fleet.gateways[node].control[1], context) in REFUSALS
        # The very same caller with a certificate of the fleet is let in.
        own = careless(Authority(SECRET, fleet.key))
        assert ask(fleet.gateways["a"].control[1], own).startswith("HTTP/1.1 200")

    await in_mid_transfer(fleet_of, gate, visit)


async def test_a_caller_without_a_certificate_is_refused(fleet_of: Any, gate: Any) -> None:
    def visit(fleet: Any) -> None:
        for node in fleet.nodes:
            port = fleet.gateways[node].control[1]
            assert ask(port, careless(None)) in REFUSALS
            # Nor is there an answer without TLS.
            assert push(port, b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n") == b""

    await in_mid_transfer(fleet_of, gate, visit)


async def test_the_data_port_takes_nothing_without_this_fleets_key(
    fleet_of: Any, gate: Any
) -> None:
    """On the wire the place of the certificate is taken by the key of the two neighbours."""

    def visit(fleet: Any) -> None:
        wire_id = bytes.fromhex(fleet.key)[:8]
        for node in ("r", "b"):
            own = fleet.authority.hello_key("a", node)
            others = {
                who: Identity(wire_id, "a", {node: STRANGERS[who](fleet.key).hello_key("a", node)})
                for who in ("another secret", "another job's fleet")
            }
            others["another job"] = Identity(bytes(8), "a", {node: own})
            # A gateway of the fleet itself, in the name of its neighbour.
            relays = fleet.authority.hello_key("r", "b")
            others["another gateway"] = Identity(wire_id, "a", {node: relays})
            port = fleet.gateways[node].data_port
            for who, identity in others.items():
                answer = knock(port, identity)
                assert b"hello refused" in answer, who
            frame = bytes.fromhex("0400000200000100") + bytes(256)
            for data in (frame, os.urandom(4096)):
                answer = push(port, data)
                assert not answer or b"refused" in answer, answer
                assert own not in answer

    await in_mid_transfer(fleet_of, gate, visit)


async def test_a_gateway_may_only_do_what_a_lead_needs(fleet_of: Any) -> None:
    async with fleet_of(route(0, "a", "r", "b"), over_tls=True) as fleet:

        def as_node(node: str, target: str) -> ControlClient:
            context = client_context(fleet.service(node).config)
            port = fleet.gateways[target].control[1]
            return ControlClient("127.0.0.1", port, context, gateway_uri(fleet.key, target))

        # A source may lead: it renews and releases, but does not shut down.
        await asyncio.to_thread(as_node("a", "b").renew)
        for call in (as_node("a", "b").shutdown, as_node("a", "b").log_tail):
            with pytest.raises(NotAuthorised):
                await asyncio.to_thread(call)
        # Nobody but the orchestrator sends traffic that is no transfer.
        with pytest.raises(NotAuthorised):
            await asyncio.to_thread(as_node("a", "a").probe, 0, 0.2)
        for node in ("r", "b"):
            with pytest.raises(NotAuthorised):
                await asyncio.to_thread(as_node(node, "a").status)
            with pytest.raises(NotAuthorised):
                await asyncio.to_thread(as_node(node, "a").store_verb, "k", 1, "list", {})


# Invalid requests are refused with an error document.


KEY = "ab" * 16


def call(client: Any, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    response: tuple[int, bytes] = client._pool.exchange(method, path, body, 10.0)
    return response


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/nothing", None),
        ("GET", "/", None),
        ("DELETE", "/v1/status", None),
        ("PUT", "/v1/topology", b"{"),
        ("PUT", "/v1/topology", b"[]"),
        ("PUT", "/v1/topology", b"\xff"),
        ("PUT", "/v1/topology", b'{"routes": [1], "data_addresses": {}}'),
        ("PUT", "/v1/topology", b"x" * (17 << 20)),
        ("PUT", "/v1/plan", b"[]"),
        ("POST", "/v1/probe", b"{}"),
        ("POST", "/v1/probe", b'{"route": 0, "seconds": NaN}'),
        ("POST", "/v1/probe", b'{"route": 0, "seconds": "long"}'),
        ("POST", "/v1/renew", b'{"lease_s": "long"}'),
        ("POST", "/v1/renew", b'{"lease_s": NaN}'),
        ("POST", "/v1/renew", b'{"lease_s": -1}'),
        ("POST", "/v1/renew", b'{"lease_s": [1]}'),
        ("GET", "/v1/log?max_bytes=many", None),
        ("POST", f"/v1/transfers/{KEY}", b"{}"),
        ("POST", f"/v1/transfers/{KEY}", b'{"epoch": 1, "spec": []}'),
        ("POST", f"/v1/transfers/{KEY}", b'{"epoch": [], "spec": {}}'),
        ("POST", f"/v1/transfers/{KEY}/attach", b"{}"),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "source", "store": [], "credentials": null}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "source", "store": {"kind": "tape", "bucket": "b"}}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "middle", "store": {"kind": "memory", "bucket": "b"}}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "sink", "verify": "yes",'
            b' "store": {"kind": "memory", "bucket": "b"}}',
        ),
        (
            "POST",
            f"/v1/transfers/{KEY}/attach",
            b'{"epoch": 1, "side": "source", "store": {"kind": "memory", "bucket": "b"},'
            b' "credentials": "secret"}',
        ),
        (
            "POST",
            "/v1/transfers/not-hex/attach",
            b'{"epoch": 1, "side": "source", "store": {"kind": "memory", "bucket": "b"}}',
        ),
        ("GET", f"/v1/transfers/{KEY}/report?offset=x", None),
    ],
)
async def test_a_bad_request_is_the_callers_fault(
    method: str, path: str, body: bytes | None, fleet_of: Any
) -> None:
    async with fleet_of() as fleet:
        status, text = await asyncio.to_thread(call, fleet.client("a"), method, path, body)
        assert 400 <= status < 500
        document = json.loads(text)
        assert document["code"] in ("configuration-invalid", "unknown-transfer")
        assert document["is_permanent"]
        assert "secret" not in document["message"]
        after = await asyncio.to_thread(fleet.client("a").status)
        assert after["connected"]
        assert after["lease_remaining_s"] > 60


async def test_a_submit_before_its_attach_and_to_nobody(fleet_of: Any) -> None:
    spec = copy_spec(memory_spec(), memory_spec())
    async with fleet_of() as fleet:
        with pytest.raises(UnknownTransfer):
            await fleet.submit(KEY, spec)
        # Only the source was attached: the sink does not know what to do.
        client = fleet.client("a")
        await asyncio.to_thread(lambda: client.attach(KEY, AttachOrder(1, "source", spec.source)))
        with pytest.raises(UnknownTransfer, match="no sink"):
            await fleet.submit(KEY, spec)
        assert fleet.service("a").leads._runs == {}
        for wrong in (
            lambda: client.transfer_status("cd" * 16),
            lambda: client.report("cd" * 16),
            lambda: client.submit("zz", epoch=1, spec=spec),
        ):
            with pytest.raises(SkyplaneError):
                await asyncio.to_thread(wrong)
        # A cancel and a release of an unknown transfer succeed.
        await asyncio.to_thread(client.cancel, "cd" * 16)
        await asyncio.to_thread(client.release, "cd" * 16, 1)
