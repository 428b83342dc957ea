"""Who may talk to a gateway, and who may not."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control.tls import client_context
from skyplane_gateway.errors import NotAuthorised
from skyplane_gateway.identifiers import gateway_uri
from skyplane_gateway.protocol import Connection, Identity, Side
from skyplane_orchestration.security.authority import Authority, FleetSecret


def test_another_fleets_orchestrator_is_refused(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            strangers = [
                Authority(FleetSecret(b"another secret of another team!!"), fleet.key),
                Authority(FleetSecret(b"the secret of the service tests!!"), "0" * 32),
            ]
            for stranger in strangers:
                with pytest.raises(NotAuthorised):
                    await asyncio.to_thread(fleet.client("a", stranger).status)

    asyncio.run(scenario())


def test_a_caller_without_certificate_gets_no_answer(fleet_of: Any, kit: Any) -> None:
    def ask(port: int) -> bytes:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), 10) as raw,
            context.wrap_socket(raw) as tls,
        ):
            tls.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
            return tls.recv(1000)

    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            # TLS 1.3 tells the client only after its handshake: an alert or an empty end.
            try:
                answer = await asyncio.to_thread(ask, fleet.gateways["a"].control_port)
            except (ssl.SSLError, ConnectionError):
                answer = b""
            assert answer == b""

    asyncio.run(scenario())


def test_a_gateway_may_only_do_what_a_lead_needs(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:

            def as_node(node: str, target: str) -> ControlClient:
                context = client_context(fleet.service(node).config)
                port = fleet.gateways[target].control_port
                return ControlClient("127.0.0.1", port, context, gateway_uri(fleet.key, target))

            # A source may be leading: it renews and releases, but does not steer.
            await asyncio.to_thread(as_node("a", "b").renew)
            for call in (as_node("a", "b").shutdown, as_node("a", "b").log_tail):
                with pytest.raises(NotAuthorised):
                    await asyncio.to_thread(call)
            # Relays and sinks ask nothing of anybody.
            for node in ("r", "b"):
                with pytest.raises(NotAuthorised):
                    await asyncio.to_thread(as_node(node, "a").status)
                with pytest.raises(NotAuthorised):
                    await asyncio.to_thread(as_node(node, "a").store_verb, "k", 1, "list", {})
            # And the orchestrator cannot be impersonated by address.
            wrong = ControlClient(
                "127.0.0.1",
                fleet.gateways["a"].control_port,
                fleet.authority.client_context(),
                gateway_uri(fleet.key, "b"),
            )
            with pytest.raises(NotAuthorised, match="not as"):
                await asyncio.to_thread(wrong.status)

    asyncio.run(scenario())


def test_a_hello_without_the_fleets_key_is_refused(fleet_of: Any, kit: Any) -> None:
    def knock(port: int, key: bytes, fleet_key: str) -> bytes:
        identity = Identity(bytes.fromhex(fleet_key)[:8], "a", {"b": key})
        connection = Connection.dial(identity, route=0, side=Side.UPSTREAM, nonce=os.urandom(16))
        with socket.create_connection(("127.0.0.1", port), 10) as raw:
            for buffer in connection.data_to_send():
                raw.sendall(buffer)
            answer = raw.recv(65536)
            connection.receive_data(answer)
            with pytest.raises(Exception, match="does not hold the key"):
                connection.next_event()
            # A forged proof is answered by the end of the connection.
            raw.sendall(bytes.fromhex("0300000100000020") + bytes(32))
            rest = b""
            while data := raw.recv(65536):
                rest += data
            return rest

    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            port = fleet.gateways["b"].data_port
            rest = await asyncio.to_thread(knock, port, os.urandom(32), fleet.key)
            assert b"hello refused" in rest
            assert fleet.service("b").router.is_connected

    asyncio.run(scenario())


OTHER_USER = textwrap.dedent(
    """
    import pathlib, socket, ssl, sys
    control, data, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    def refused(call):
        try:
            answer = call()
        except (OSError, ssl.SSLError) as error:
            return True
        return not answer
    def read_status():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with socket.create_connection(("127.0.0.1", control), 10) as raw:
            tls = context.wrap_socket(raw)
            tls.sendall(b"GET /v1/status HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            return tls.recv(10)
    def send_frame():
        with socket.create_connection(("127.0.0.1", data), 10) as raw:
            raw.sendall(bytes.fromhex("0400000100000100") + bytes(256))
            answer = b""
            while part := raw.recv(1000):
                answer += part
            return b"" if b"hello refused" in answer else answer or b"taken"
    def read_keys():
        return b"".join(p.read_bytes() for p in pathlib.Path(directory).rglob("*") if p.is_file())
    print([refused(read_status), refused(send_frame), refused(read_keys)])
    """
)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_another_user_of_the_machine_gets_nothing(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
            command = [
                *("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"),
                *(python, "-I", "-c", OTHER_USER),
                str(fleet.gateways["b"].control_port),
                str(fleet.gateways["b"].data_port),
                fleet.service("b").config.directory,
            ]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, check=False
            )
            assert done.stdout.strip() == "[True, True, True]", done.stderr
            assert fleet.service("b").sink.held_bytes == 0

    asyncio.run(scenario())
