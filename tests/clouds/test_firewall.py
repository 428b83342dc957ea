"""Firewalls between fake machines, with programs that run there as gateways do."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.clouds.gateways import needless_rules

from strict_clouds.firewall import IngressRule
from strict_clouds.world import NETWORK, Machine, World

PORT = 7600
ANYBODY = "0.0.0.0/0"
ORCHESTRATOR = "127.0.0.1"
IDLE = "exec sleep 600"

LISTENER = f"""
import os, socket
address = os.environ["STRICT_CLOUDS_MACHINE"].rpartition("/")[2]
with socket.create_server((address, {PORT})) as listener:
    print("listens", flush=True)
    while True:
        connection, peer = listener.accept()
        connection.sendall(peer[0].encode())
        connection.close()
"""

ASYNC_LISTENER = f"""
import asyncio, os

async def greet(reader, writer):
    writer.write(writer.get_extra_info("peername")[0].encode())
    writer.close()

async def main():
    address = os.environ["STRICT_CLOUDS_MACHINE"].rpartition("/")[2]
    server = await asyncio.start_server(greet, address, {PORT})
    print("listens", flush=True)
    await server.serve_forever()

asyncio.run(main())
"""

DIALER = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10) as connection:
        print(connection.recv(100).decode())
except TimeoutError:
    print("timed out")
"""

ASYNC_DIALER = """
import asyncio, sys

async def main():
    try:
        reader, _ = await asyncio.open_connection(sys.argv[1], int(sys.argv[2]))
        print((await reader.read()).decode())
    except TimeoutError:
        print("timed out")

asyncio.run(main())
"""


def start(machine: Machine, program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(NETWORK),
            "STRICT_CLOUDS_MACHINE": str(machine.directory),
        },
    )


def dial(machine: Machine, other: Machine, program: str = DIALER, port: int = PORT) -> str:
    """What the machine gets from the other one."""
    dialer = start(machine, program, other.address, str(port))
    output, _ = dialer.communicate(timeout=60)
    return output.strip()


def dial_from_here(other: Machine) -> bytes:
    with socket.create_connection((other.address, PORT), timeout=10) as connection:
        return connection.recv(100)


@contextmanager
def listening(machine: Machine, program: str) -> Iterator[None]:
    process = start(machine, program)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "listens\n"
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[World, Machine, Machine, Machine]]:
    with World(tmp_path) as world:
        yield world, world.boot(IDLE), world.boot(IDLE), world.boot(IDLE)


@pytest.mark.parametrize("dialer", [DIALER, ASYNC_DIALER])
@pytest.mark.parametrize("listener", [LISTENER, ASYNC_LISTENER])
def test_a_machine_lets_in_only_whom_a_rule_allows(
    dialer: str, listener: str, machines: tuple[World, Machine, Machine, Machine]
) -> None:
    _, one, other, stranger = machines
    with listening(one, listener):
        assert dial(other, one, dialer) == other.address
        one.firewall.allow([IngressRule(PORT, PORT, f"{other.address}/32")])
        assert dial(other, one, dialer) == other.address
        assert dial(stranger, one, dialer) == "timed out"
        assert dial_from_here(one) == b""
        assert dial(other, one, dialer, PORT + 1) == "timed out"
        one.firewall.allow([])
        assert dial(other, one, dialer) == "timed out"
        one.firewall.allow([IngressRule(PORT - 1, PORT + 1, f"{ORCHESTRATOR}/32")])
        assert dial_from_here(one) == ORCHESTRATOR.encode()
    assert one.firewall.connections == {(other.address, PORT), (ORCHESTRATOR, PORT)}
    assert one.firewall.refused == {
        (stranger.address, PORT),
        (ORCHESTRATOR, PORT),
        (other.address, PORT),
        (other.address, PORT + 1),
    }


def test_only_control_ports_may_be_open_to_a_machine_that_does_not_use_them(
    machines: tuple[World, Machine, Machine, Machine],
) -> None:
    world, one, other, _ = machines
    from_here = IngressRule(PORT, PORT, f"{ORCHESTRATOR}/32")
    from_other = IngressRule(PORT, PORT, f"{other.address}/32")
    one.firewall.allow([from_here, from_other])
    assert {wide.rule for wide in needless_rules(world)} == {from_here, from_other}
    with listening(one, LISTENER):
        dial_from_here(one)
        # The orchestrator has called the port, so the other machine may have to.
        assert [wide.rule for wide in world.wide_rules()] == [from_other]
        assert needless_rules(world) == ()
        no_machine = IngressRule(PORT, PORT, "192.0.2.1/32")
        two_ports = IngressRule(PORT, PORT + 1, f"{other.address}/32")
        one.firewall.allow([from_here, no_machine, two_ports])
        assert {wide.rule for wide in needless_rules(world)} == {no_machine, two_ports}
