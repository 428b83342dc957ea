"""The local provisioner with real gateways: certificates, control API, connections."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.provision.samples import one_of_each

from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import GatewayUnreachable, NotAuthorised
from skyplane_orchestration.provision.local import LocalProvisioner
from skyplane_orchestration.security.authority import Authority, FleetSecret

if TYPE_CHECKING:
    from tests.provision.conftest import LocalHarness, PlanMaker

A, B, C = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"
KEY = "0f1ee70f1ee70f1ee70f1ee70f1ee700"

pytestmark = pytest.mark.e2e


@pytest.fixture
def real(local: LocalHarness) -> LocalProvisioner:
    return LocalProvisioner(replace(local.options, command=(), python=sys.executable))


def test_a_health_check_finds_the_gateway_that_does_not_answer(
    local: LocalHarness, real: LocalProvisioner
) -> None:
    """Before the enrolment of an instance there is none."""
    spec = one_of_each(local.spec(KEY))
    fleet = real.ensure(spec, local.authority(spec))
    places = {g.node: Path(g.details["directory"]) / "config.json" for g in fleet.gateways}

    def health(*configs: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "skyplane_gateway", "health", *map(str, configs)]
        environment = {**os.environ, "TMPDIR": str(local.run_root)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    well = health(*places.values())
    assert (well.returncode, well.stdout) == (0, "gateways that answer: 3\n"), well
    none = health()
    assert (none.returncode, none.stdout) == (0, "gateways that answer: 0\n")
    local.kill(fleet.gateway(f"{B}/0"))
    ill = health(*places.values())
    assert ill.returncode == 1
    (silent,) = ill.stdout.splitlines()
    assert silent.startswith(f"{B}/0: ")
    assert health(local.run_root / "none.json").returncode == 1


def test_a_fleet_of_real_gateways_lives_is_repaired_and_ends(
    local: LocalHarness, real: LocalProvisioner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    spec = one_of_each(local.spec(KEY))
    authority = local.authority(spec)
    first = real.ensure(spec, authority)
    for gateway in first.gateways:
        process = Path(f"/proc/{gateway.details['pid']}")
        assert b"do-not-tell" not in (process / "environ").read_bytes()
        limits = (process / "limits").read_text().splitlines()
        # A core file would hold keys and credentials.
        (core,) = (line.split()[-3:-1] for line in limits if line.startswith("Max core"))
        assert core == ["0", "0"]
        (files,) = (line.split()[-3:-1] for line in limits if line.startswith("Max open files"))
        assert files[0] == files[1]
        context, uri = authority.client_context(), authority.expected_uri(gateway.node)
        with ControlClient(*gateway.control, context, uri) as session:
            status = session.status()
            assert (status["node"], status["connected"]) == (gateway.node, True)
            assert 0 < status["lease_remaining_s"] <= spec.times.start_within_s
    assert real.ensure(spec, authority).gateways == first.gateways

    relay = first.gateway(f"{B}/0")
    local.kill(relay)
    second = real.ensure(spec, authority)
    assert [g.node for g in second.gateways if g != first.gateway(g.node)] == [relay.node]

    stranger = Authority(FleetSecret(b"another secret of 32 bytes or more"), KEY)
    with pytest.raises(NotAuthorised):
        real.ensure(spec, stranger)
    assert len(local.running()) == 3

    assert len(real.destroy(KEY)) == 3
    assert local.traces() == []
    with (
        ControlClient(*relay.control, authority.client_context(), "") as session,
        pytest.raises(GatewayUnreachable),
    ):
        session.status()


def test_a_gateway_that_ends_after_sigterm_can_be_replaced(
    local: LocalHarness, real: LocalProvisioner, plan_of: PlanMaker
) -> None:
    """A spot notice took the fleet's directory away, and so nobody brought it up again."""
    spec = local.spec(KEY, plan=plan_of([(("local:here",), 4.0)], {"local:here": 1}))
    authority = local.authority(spec)
    (before,) = real.ensure(spec, authority).gateways
    os.kill(int(before.details["pid"]), signal.SIGTERM)
    (second,) = real.ensure(replace(spec, must_exist=True), authority).gateways
    assert second.details["pid"] != before.details["pid"]
    # Nor is one adopted that takes no new transfer.
    context, uri = authority.client_context(), authority.expected_uri(second.node)
    with ControlClient(*second.control, context, uri) as session:
        assert session.drain(unless_leading=True)
    (after,) = real.ensure(spec, authority).gateways
    assert after.details["pid"] != second.details["pid"]
    assert [str(pid) for pid in local.running()] == [after.details["pid"]]
    assert real.destroy(KEY) == ("local:here/0",)
    assert local.traces() == []


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace, joined to ours by a pair of addresses 10.231.7.1 and .2."""
    name = f"sky{os.getpid()}"  # Names of interfaces have 15 characters at most.
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("a network namespace needs root and the program ip")
    if subprocess.run(["ip", "netns", "add", name], check=False).returncode != 0:
        pytest.skip("this machine does not allow network namespaces")
    try:
        for command in (
            f"ip link add {name}a type veth peer name {name}b netns {name}",
            f"ip addr add 10.231.7.1/30 dev {name}a",
            f"ip link set {name}a up",
            f"ip -n {name} addr add 10.231.7.2/30 dev {name}b",
            f"ip -n {name} link set {name}b up",
        ):
            subprocess.run(command.split(), check=True)
        yield name
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.root
def test_a_relay_in_a_network_namespace(
    local: LocalHarness, real: LocalProvisioner, namespace: str
) -> None:
    options = replace(
        real.options,
        address_map={A: "10.231.7.1", B: "10.231.7.2", C: "10.231.7.1"},
        launch_prefix={B: ("ip", "netns", "exec", namespace)},
        max_instances_per_region=1,
    )
    provisioner = LocalProvisioner(options)
    spec = local.spec(KEY)
    fleet = provisioner.ensure(spec, local.authority(spec))
    network = {g.node: os.readlink(f"/proc/{g.details['pid']}/ns/net") for g in fleet.gateways}
    assert network[f"{A}/0"] == network[f"{C}/0"] == os.readlink("/proc/self/ns/net")
    assert network[f"{B}/0"] != network[f"{A}/0"]
    assert provisioner.destroy(KEY) == (f"{A}/0", f"{C}/0", f"{B}/0")
    assert local.traces() == []
