"""The provisioners that the conformance suite runs against.

To join: write a harness and add its fixture to `_HARNESSES`, or a cloud's harness to
`instances/cloud_harnesses.py`; every test of `test_conformance.py` then runs against it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import pytest
from tests.provision import ssh_server
from tests.provision.fleet import cloud_harnesses
from tests.provision.fleet.fleet_harness import CloudFleetHarness, cloud_fleets
from tests.provision.fleet.harness import InstancesHarness
from tests.provision.fleet.memory_cloud import StandInBoot
from tests.provision.samples import SECRET, A, B, C, make_plan
from tests.provision.situations import NO_CAPACITY, QUOTA, SLOW_VISIBILITY, THROTTLED_API

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.dialing import directly
from skyplane_gateway.common.identifiers import gateway_uri
from skyplane_gateway.config import GatewayConfig, Topology
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GatewayUnreachable,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import KUBERNETES, Fleet, GatewayHandle
from skyplane_orchestration.model.plan import (
    TransferPlan,
)
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.provision.provisioner import FleetSpec, Provisioner
from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
from skyplane_orchestration.security.authority import Authority

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tests.provision.fleet.cloud_harness import CloudHarness
    from tests.provision.kubernetes.cluster import Cluster

    from strict_clouds.machines import MachineBooter

FAKE_GATEWAY = Path(__file__).with_name("fake_gateway.py")
#: Of the supervisor of an instance, which needs the other one.
STAND_INS = (FAKE_GATEWAY, FAKE_GATEWAY.with_name("fake_supervisor.py"))
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

    def put_plan(self, plan: Mapping[str, Any]) -> None:
        self._call({})

    def plan(self) -> dict[str, Any]:
        return {}

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


_PROCESSES_LACK: Final = {
    SLOW_VISIBILITY: "a machine shows a process and its files as soon as they are there",
    NO_CAPACITY: "a machine starts every process; one that fails is a partial failure",
}


class LocalHarness:
    """The local provisioner with stand-ins for gateways.

    Each call of `provisioner` is a worker of its own, which knows nothing of the others.
    """

    #: Whether calls for the same fleet wait for each other, and `recorded` finds a fleet.
    locks_fleets = True
    records_fleets = True
    source, relay, sink = A, B, C
    #: See `tests/provision/situations.py`.
    lacks: Mapping[str, str] = {
        **_PROCESSES_LACK,
        QUOTA: "the provisioner has no quota: a machine has as many processes as a plan asks for",
        THROTTLED_API: "the provisioner calls the kernel, which counts no calls",
    }
    #: Verbs of an API that `throttle` knows.
    throttled_verbs: tuple[str, ...] = ()
    #: What `ensure` raises beyond a quota, and a word of its message.
    quota_error: type[SkyplaneError] = ConfigurationInvalid
    quota_name = ""
    fails = ("--crash", f"{B}/0")
    #: What the error of `failing` says.
    why_failed = "cannot bind"
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

    # Situations.

    def show_late(self) -> None:
        """Gateways that are started from now on show only after some looks."""
        raise _cannot(SLOW_VISIBILITY)

    def show_at_once(self) -> None:
        """The end of `show_late`."""
        raise _cannot(SLOW_VISIBILITY)

    def ending_slowly(self) -> Provisioner:
        """One whose gateways do not end when they are told to."""
        return self.provisioner("--stubborn", f"{B}/0", term_grace_s=0.05)

    def limited(self) -> Provisioner:
        """One whose quota is one instance of each region."""
        raise _cannot(QUOTA)

    def exhaust(self) -> None:
        """There is no capacity in the source's region."""
        raise _cannot(NO_CAPACITY)

    def replenish(self) -> None:
        """There is capacity again."""
        raise _cannot(NO_CAPACITY)

    def throttle(self, verb: str) -> None:
        """The next calls of a verb are refused for being too many."""
        raise _cannot(THROTTLED_API)

    def while_launched(self, act: Callable[[], object]) -> Provisioner:
        """One whose `ensure` meets `act` when its gateways run and are not connected yet."""
        raise AssertionError("a lock protects the fleet")


def _cannot(situation: str) -> AssertionError:
    return AssertionError(f"{situation} is in `lacks`")


class SshStandIns:
    """See `EnrolsStandIns`: `fake_supervisor.py` on hosts, which is enrolled in the clear."""

    def enrol(
        self,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        # Two workers at the same time pin the same key.
        key_id = instance.key_id or instance.launch_id.ljust(40, "0")
        if not instance.key_id:
            pin(key_id)
        try:
            with directly(instance.address, instance.data(0)[1], 10.0) as stream:
                configs = {node: config.to_dict() for node, config in gateways.items()}
                stream.sendall(json.dumps(configs).encode() + b"\n")
                if not stream.recv(1):
                    raise ConnectionResetError
        except OSError as error:
            raise GatewayUnreachable(f"{instance.instance}: {error}") from error
        return key_id


class SshHarness(LocalHarness):
    """The ssh provisioner, with two hosts of one sshd and stand-ins for gateways."""

    locks_fleets = False
    records_fleets = False
    lacks: Mapping[str, str] = {
        **_PROCESSES_LACK,
        THROTTLED_API: "one session has all calls to a host, and sshd counts no calls",
    }
    quota_name = "add hosts"

    def __init__(self, server: ssh_server.Server) -> None:
        super().__init__(server.make_folder())
        one, other = (server.host(number, self.run_root) for number in range(2))
        self.stand_ins = server.folder
        self.interpreter = server.python
        for source in STAND_INS:
            (server.folder / source.name).write_text(source.read_text())
        self.ssh_options = SshOptions(
            {A: (one, other), B: (one,), C: (other, one)},
            processes_per_instance=1,
            term_grace_s=5.0,
        )

    def python(self, *words: str) -> str:
        """A Python whose supervisor is the stand-in with these words."""
        path = self.stand_ins / "-".join(["stand-in", *words]).replace("/", ":")
        fake = f"{self.stand_ins}/fake_supervisor.py {' '.join(words)}"
        ssh_server.write_program(
            path,
            '#!/bin/sh\nif [ "$1 $2" = "-m skyplane_gateway" ]; then shift 2; '
            f'set -- -S {fake} "$@"; fi\nexec {self.interpreter} "$@"\n',
        )
        return str(path)

    def provisioner(  # type: ignore[override]
        self,
        *extra: str,
        clock: Clock = SYSTEM_CLOCK,
        connect: SessionFactory = FakeSession,
        **options: Any,
    ) -> SshProvisioner:
        chosen = replace(self.ssh_options, **options)
        python = self.python(*extra)
        hosts = {
            region: tuple(
                replace(host, python=python) if host.python == self.interpreter else host
                for host in group
            )
            for region, group in chosen.hosts.items()
        }
        chosen = replace(chosen, hosts=hosts)
        return SshProvisioner(
            chosen,
            connect=connect,
            clock=clock,
            boot=StandInBoot(SshStandIns()),
        )

    def kill(self, gateway: GatewayHandle) -> None:
        self.end(gateway.details["instance_id"])

    def end(self, cloud_id: str) -> None:
        """End an instance without warning, also one that only begins; wait until it is gone."""
        while lines := self.processes_of(cloud_id):
            for pid, line in lines.items():
                if "--directory" in line:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)

    def processes_of(self, cloud_id: str) -> dict[int, str]:
        """Of an instance: its boot script and its supervisor."""
        _, _, path = cloud_id.rpartition(":")
        return {pid: line for pid, line in self.all_processes().items() if path in line}

    def running(self) -> dict[int, str]:
        found = super().running().items()
        return {pid: line for pid, line in found if "--directory" in line and "python" in line}

    def all_processes(self) -> dict[int, str]:
        """Boot scripts too."""
        return super().running()

    def traces(self) -> list[str]:
        files = sorted(path.name for path in self.run_root.glob("*"))
        return [*self.all_processes().values(), *files]

    def unusable(self) -> Provisioner:
        hosts = {
            region: tuple(replace(host, python="/no/such/python") for host in group)
            for region, group in self.ssh_options.hosts.items()
        }
        return self.provisioner(hosts=hosts)

    def limited(self) -> Provisioner:
        hosts = {region: group[:1] for region, group in self.ssh_options.hosts.items()}
        return self.provisioner(hosts=hosts)

    def while_launched(self, act: Callable[[], object]) -> Provisioner:
        done: list[object] = []

        class Meeting(FakeSession):
            def put_topology(self, topology: Topology) -> None:
                if not done:
                    done.append(topology)
                    act()
                super().put_topology(topology)

        return self.provisioner(connect=Meeting)


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
    while pids := LocalHarness.running(harness):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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


@pytest.fixture(scope="module")
def ssh_fleet(sshd: ssh_server.Server) -> Iterator[tuple[SshHarness, Fleet]]:
    """An ssh harness whose fleet runs, for tests that only look at it."""
    harness = SshHarness(sshd)
    spec = harness.spec()
    yield harness, harness.provisioner().ensure(spec, harness.authority(spec))
    _end_all(harness)


@pytest.fixture
def boxes(sshd: ssh_server.Server) -> Iterator[SshHarness]:
    """As `ssh`, with gateways in containers of a stand-in for podman."""
    from tests.provision.ssh.boxes import ContainerHarness

    harness = ContainerHarness(sshd)
    yield harness
    _end_all(harness)


#: Only `make test-kubernetes` has the programs of a cluster.
KUBERNETES_PARAM: Final = pytest.param(KUBERNETES, marks=pytest.mark.kubernetes)


def open_cloud_of(request: pytest.FixtureRequest) -> cloud_harnesses.OpensCloud:
    """Opens the strict fake, or the cluster, that a test asks for."""
    if request.param != KUBERNETES:
        return cloud_harnesses.HARNESSES[request.param]
    from tests.provision.kubernetes.harness import kubernetes_harness

    made: Cluster = request.getfixturevalue("kubernetes_cluster")

    def opened(
        machines: MachineBooter | None = None,
    ) -> AbstractContextManager[CloudHarness]:
        return cast("AbstractContextManager[CloudHarness]", kubernetes_harness(made, machines))

    return opened


Harness = LocalHarness | CloudFleetHarness | InstancesHarness

_HARNESSES = {"local": "local", "ssh": "ssh", "ssh-containers": "boxes"}


#: What is in the short suite of whole fleets of clouds, by harness. Only a cloud throttles.
_LATE: Final = "test_gateways_that_show_late_are_started_once"
_SHORT: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(cloud_harnesses.HARNESSES, (_LATE,)),
    "gcp": (_LATE, "test_a_throttled_api_delays_a_fleet_and_its_end"),
    "ssh": ("test_ensure_after_a_crash_gives_one_whole_fleet",),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole fleets of clouds and hosts are long.

    What happens to fleets is tested with a cloud in memory, and what clouds and hosts do in
    `fleet/test_cloud_conformance.py`. Containers differ from processes over ssh in little, which
    has short tests of its own.
    """
    ours = str(Path(__file__).with_name("test_conformance.py"))
    for item in items:
        if str(item.path) != ours or not isinstance(item, pytest.Function):
            continue
        name = str(item.callspec.params["harness"]) if hasattr(item, "callspec") else "memory"
        if name not in ("local", "memory", KUBERNETES) and item.originalname not in _SHORT.get(
            name, ()
        ):
            item.add_marker("long")


@pytest.fixture(scope="session")
def kubernetes_cluster() -> Iterator[Cluster]:
    """A real API server, without its nodes."""
    from tests.provision.kubernetes.harness import shared_cluster

    with shared_cluster() as made:
        yield made


@pytest.fixture(
    params=[*sorted([*_HARNESSES, *cloud_harnesses.HARNESSES, "memory"]), KUBERNETES_PARAM]
)
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "memory":
        memory = InstancesHarness()
        _skip_what_it_lacks(request, memory)
        yield memory
        return
    if request.param in (*cloud_harnesses.HARNESSES, KUBERNETES):
        with cloud_fleets(open_cloud_of(request)) as made:
            _skip_what_it_lacks(request, made)
            yield made
        return
    harness_class = LocalHarness if request.param == "local" else SshHarness
    _skip_what_it_lacks(request, harness_class)
    yield request.getfixturevalue(_HARNESSES[request.param])


def _skip_what_it_lacks(
    request: pytest.FixtureRequest, harness: Harness | type[LocalHarness]
) -> None:
    mark = request.node.get_closest_marker("situation")
    situation = mark.args[0] if mark is not None else ""
    if reason := harness.lacks.get(situation):
        pytest.skip(f"{situation} cannot occur with {request.param}, because {reason}")
