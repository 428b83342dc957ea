"""The provisioners that the conformance suite runs against.

To join: write a harness and add its class to `_HARNESSES`; every test of
`test_conformance.py` then runs against it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.provision import ssh_server
from tests.provision.instances.harness import InstancesHarness
from tests.provision.samples import SECRET, A, B, C, make_plan

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.config import Topology
from skyplane_gateway.identifiers import gateway_uri
from skyplane_orchestration.errors import GatewayUnreachable
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.model.plan import (
    TransferPlan,
)
from skyplane_orchestration.provision.base import FleetSpec, Provisioner
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
from skyplane_orchestration.security.authority import Authority

FAKE_GATEWAY = Path(__file__).with_name("fake_gateway.py")
PlanMaker = Callable[..., TransferPlan]


class FakeSession:
    """A control session with `fake_gateway.py`."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext, expected_uri: str) -> None:
        self._address = (host, port)
        self._expected_uri = expected_uri

    def status(self) -> dict[str, Any]:
        return self._call({})

    def put_topology(self, topology: Topology) -> None:
        self._call({"topology": [topology.to_dict()]})

    def renew(self, lease_s: float | None = None) -> None:
        self._call({"renew": [lease_s]})

    def close(self) -> None:
        pass

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            answer = _ask(self._address, request)
        except (OSError, ValueError) as error:
            raise GatewayUnreachable(f"{self._address}: {error}") from error
        assert self._expected_uri.endswith(gateway_uri("", answer["node"]).rpartition("/")[2])
        return answer


def _ask(address: tuple[str, int], request: dict[str, Any]) -> dict[str, Any]:
    """One request to `fake_gateway.py`."""
    with (
        socket.create_connection(address, timeout=10.0) as connection,
        connection.makefile("rw") as stream,
    ):
        stream.write(json.dumps(request) + "\n")
        stream.flush()
        answer: dict[str, Any] = json.loads(stream.readline())
        return answer


class LocalHarness:
    """The local provisioner with stand-ins for gateways.

    Each call of `provisioner` is a worker of its own, which knows nothing of the others.
    """

    #: Whether calls for the same fleet wait for each other, and `recorded` finds a fleet.
    locks_fleets = True
    records_fleets = True
    fails = ("--crash", f"{B}/0")
    session = FakeSession

    def __init__(self, run_root: Path) -> None:
        self.run_root = run_root
        self.options = LocalOptions(
            run_root=run_root,
            command=(sys.executable, "-S", str(FAKE_GATEWAY)),
            ready_timeout_s=20.0,
            term_grace_s=5.0,
        )

    def provisioner(
        self, *extra: str, clock: Clock = SYSTEM_CLOCK, **options: Any
    ) -> LocalProvisioner:
        """With `extra` words for every stand-in, and options other than the usual."""
        chosen = replace(self.options, command=(*self.options.command, *extra))
        return LocalProvisioner(replace(chosen, **options), connect=FakeSession, clock=clock)

    def failing(self) -> Provisioner:
        """One for which gateway `B/0` does not come up."""
        return self.provisioner(*self.fails)

    def unusable(self) -> Provisioner:
        """One that can bring up no fleet."""
        link = self.run_root.parent / "link"
        link.symlink_to("/tmp")
        return self.provisioner(run_root=link)

    def late(self, seconds: float) -> Provisioner:
        """One that looks at the world so many seconds from now."""
        return self.provisioner(clock=Clock(wall=lambda: time.time() + seconds))

    def spec(self, key: str = "f1ee7", **changes: Any) -> FleetSpec:
        plan = make_plan([((A, C), 4.0), ((A, B, C), 2.0)], {A: 2, B: 1, C: 2})
        spec = FleetSpec(key=key, generation=0, deployment="test", plan=plan)
        return replace(spec, **changes)

    def authority(self, spec: FleetSpec) -> Authority:
        return Authority(SECRET, spec.key)

    def status(self, address: tuple[str, int]) -> dict[str, Any]:
        """All that a stand-in was told."""
        return _ask(address, {})

    def kill(self, gateway: GatewayHandle) -> None:
        """End it without warning, and wait until it is gone."""
        pid = int(gateway.details["pid"])
        os.kill(pid, signal.SIGKILL)
        while _command_line(pid):
            time.sleep(0.005)

    def crash_after_launch(self, spec: FleetSpec) -> None:
        """A worker that is killed when gateways run and nobody has recorded them."""
        worker = os.fork()
        if worker == 0:
            # The first wait of `ensure` is for gateways that it has just launched.
            doomed = self.provisioner(clock=Clock(sleep=_die))
            doomed.ensure(spec, self.authority(spec))
            os._exit(0)
        _, status = os.waitpid(worker, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL

    def running(self) -> dict[int, str]:
        """Process id -> command line of all that has to do with this harness."""
        lines = {
            int(entry): _command_line(int(entry))
            for entry in os.listdir("/proc")
            if entry.isdecimal()
        }
        return {pid: line for pid, line in lines.items() if f"{self.run_root}/" in line}

    def traces(self) -> list[str]:
        """What is left of any fleet: processes and files."""
        files = sorted(path.name for path in self.run_root.glob("*"))
        return [*self.running().values(), *files]


class SshHarness(LocalHarness):
    """The ssh provisioner, with two hosts of one sshd and stand-ins for gateways."""

    def __init__(self, server: ssh_server.Server) -> None:
        super().__init__(server.make_folder())
        one, other = (server.host(number, self.run_root) for number in range(2))
        fake = server.folder / FAKE_GATEWAY.name
        shutil.copyfile(FAKE_GATEWAY, fake)
        fake.chmod(0o644)
        self.ssh_options = SshOptions(
            {A: (one, other), B: (one,), C: (other, one)},
            command=(server.python, "-S", str(fake)),
            ready_timeout_s=30.0,
            term_grace_s=5.0,
        )

    def provisioner(  # type: ignore[override]
        self, *extra: str, clock: Clock = SYSTEM_CLOCK, **options: Any
    ) -> SshProvisioner:
        chosen = replace(self.ssh_options, command=(*self.ssh_options.command, *extra))
        return SshProvisioner(replace(chosen, **options), connect=FakeSession, clock=clock)

    def unusable(self) -> Provisioner:
        hosts = {
            region: tuple(replace(host, python="/no/such/python") for host in group)
            for region, group in self.ssh_options.hosts.items()
        }
        return self.provisioner(hosts=hosts)


def _die(_: float) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@pytest.fixture(scope="session", autouse=True)
def _nothing_outlives_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    base = f"{tmp_path_factory.getbasetemp()}/"
    lines = [_command_line(int(entry)) for entry in os.listdir("/proc") if entry.isdecimal()]
    assert [line for line in lines if base in line and "--fleet" in line] == []


@pytest.fixture(scope="session")
def plan_of() -> PlanMaker:
    return make_plan


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalHarness]:
    """A local harness; afterwards its gateways are ended, and none may resist."""
    harness = LocalHarness(tmp_path / "run")
    yield harness
    _end_all(harness)


def _end_all(harness: LocalHarness) -> None:
    for pid in harness.running():
        os.kill(pid, signal.SIGKILL)
    while harness.running():
        time.sleep(0.005)


@pytest.fixture(scope="session")
def sshd() -> Iterator[ssh_server.Server]:
    with ssh_server.running_or_skip() as server:
        yield server


@pytest.fixture
def ssh(sshd: ssh_server.Server) -> Iterator[SshHarness]:
    """An ssh harness; afterwards its gateways are ended."""
    harness = SshHarness(sshd)
    yield harness
    _end_all(harness)


@pytest.fixture
def instances() -> InstancesHarness:
    return InstancesHarness()


Harness = LocalHarness | InstancesHarness

_HARNESSES = {"instances": "instances", "local": "local", "ssh": "ssh"}


@pytest.fixture(params=sorted(_HARNESSES))
def harness(request: pytest.FixtureRequest) -> Harness:
    made: Harness = request.getfixturevalue(_HARNESSES[request.param])
    return made
