"""The rule of the boot script, on the kernel: gateways reach the metadata service no more."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from tests.provision.fleet.launches import USES_IDENTITY

from skyplane_orchestration.provision.container import CONTAINER_USER
from skyplane_orchestration.provision.fleet.user_data import hiding_identity

pytestmark = pytest.mark.root

METADATA = "169.254.169.254"
SERVER = f"""
import socket
listening = [socket.create_server(("{METADATA}", port)) for port in (53, 80, 443)]
print("listening", flush=True)
input()
"""
CLIENT = f"""
import socket
for port in (53, 80, 443):
    try:
        socket.create_connection(("{METADATA}", port), 5).close()
        print(port, "open")
    except PermissionError:
        print(port, "prohibited")
"""


@pytest.fixture
def machine() -> Iterator[str]:
    """A network namespace that reaches a metadata service."""
    names = [f"sky{os.getpid()}{end}" for end in "mc"]
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the program ip")
    if subprocess.run(["ip", "netns", "add", names[0]], check=False).returncode != 0:
        pytest.skip("this machine does not allow network namespaces")
    machine, cloud = names
    try:
        for command in (
            f"ip netns add {cloud}",
            f"ip link add {machine} netns {machine} type veth peer name {cloud} netns {cloud}",
            f"ip -n {machine} addr add 169.254.1.1/16 dev {machine}",
            f"ip -n {machine} link set {machine} up",
            f"ip -n {cloud} addr add {METADATA}/16 dev {cloud}",
            f"ip -n {cloud} link set {cloud} up",
        ):
            subprocess.run(command.split(), check=True)
        program = ["ip", "netns", "exec", cloud, "python3", "-c", SERVER]
        with subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "listening\n"
            yield machine
            server.communicate("\n")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def within(machine: str, *command: str) -> str:
    done = subprocess.run(
        ["ip", "netns", "exec", machine, *command], check=True, capture_output=True, text=True
    )
    return done.stdout


def test_the_user_of_gateways_is_kept_from_the_metadata_service_and_root_is_not(
    machine: str,
) -> None:
    script = hiding_identity(USES_IDENTITY)
    rule = script[script.index("ip rule add") :].partition("prohibit\n")
    user = str(CONTAINER_USER)
    as_gateway = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups")
    ask = ("/usr/bin/python3", "-c", CLIENT)
    all_open = "53 open\n80 open\n443 open\n"
    assert within(machine, *as_gateway, *ask) == all_open
    within(machine, "sh", "-euc", "".join(rule[:2]))
    assert within(machine, *as_gateway, *ask) == "53 open\n80 prohibited\n443 prohibited\n"
    assert within(machine, *ask) == all_open
