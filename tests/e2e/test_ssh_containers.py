"""Containers of hosts: a real sshd, the image, Podman or Docker of an account without rights."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e import image_registry
from tests.e2e.conftest import filled
from tests.e2e.container_tool import SEARCH_PATH
from tests.e2e.processes import processes_with
from tests.e2e.test_ssh_hosts import ORCHESTRATOR
from tests.provision import ssh_server

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.provision.container import CONTAINER_USER
from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner

if TYPE_CHECKING:
    from tests.e2e import image as images
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.image, pytest.mark.timeout(900)]

#: What works where no cgroup and no systemd is there.
_STORAGE = '[storage]\ndriver = "{2}"\nrunroot = "{0}/run{1}"\n{3} = "{0}/root{1}"\n'
_ENGINE = """
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
"""
#: Podman of root asks for more processes than some containers may have.
_PODMAN = f"""#!/bin/sh
PATH={SEARCH_PATH}
[ "$1" = run ] && shift && set -- run --ulimit nproc=1024:1024 "$@"
exec podman "$@"
"""
_REGISTRY = '[[registry]]\nlocation = "{}"\ninsecure = true\n'


@dataclass(frozen=True)
class Account:
    """The account of the hosts, with Podman or Docker.

    Each host has a Podman of its own, as if they were two machines: an image that one removes may
    be in use at the other, and Podman 4.3 without root then breaks its store now and then.

    Args:
        folder: Podman's files, and the only programs on the account's path.
        user: its name, which may be root.
    """

    server: ssh_server.Server
    folder: Path
    program: str
    user: str

    @property
    def inside(self) -> int:
        """The user of gateways inside a container."""
        return CONTAINER_USER if self.user == "root" else pwd.getpwnam(self.user).pw_uid

    @property
    def stores(self) -> tuple[int, ...]:
        """Numbers of the places where images and containers are: one of each host, or Docker's."""
        return (0, 1) if self.program == "podman" else (0,)

    def python(self, host: int) -> str:
        return str(self.folder / f"python{host}")

    def environment(self, store: int) -> dict[str, str]:
        names = {"CONTAINERS_CONF": "engine", "CONTAINERS_STORAGE_CONF": f"storage{store}"}
        names |= {"CONTAINERS_REGISTRIES_CONF": "registries"}
        files = {name: str(self.folder / f"{file}.conf") for name, file in names.items()}
        own = {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder / f"runtime{store}")}
        daemon = {"DOCKER_HOST": os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")}
        return {**files, **own, **daemon, "PATH": self.path}

    @property
    def path(self) -> str:
        # Docker is used where there is no Podman.
        others = [SEARCH_PATH] if self.program == "podman" else []
        return ":".join([str(self.folder / "bin"), *others])

    def engine(self, *arguments: str, stores: Sequence[int] = ()) -> str:
        """What the engine prints for the account, in all stores or in some."""
        output = ""
        for store in stores or self.stores:
            done = self.run_engine(store, *arguments)
            assert done.returncode == 0, done.stderr
            output += done.stdout
        return output

    def run_engine(self, store: int, *arguments: str) -> subprocess.CompletedProcess[str]:
        entry = pwd.getpwnam(self.user)
        return subprocess.run(
            [self.program, *arguments],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            cwd="/",
            env=self.environment(store),
            capture_output=True,
            text=True,
            check=False,
        )

    def prepare(self, registry: str) -> None:
        """Write its settings and its Python. Skips the test where its engine does not work."""
        entry = pwd.getpwnam(self.user)
        (self.folder / "engine.conf").write_text(_ENGINE)
        (self.folder / "registries.conf").write_text(_REGISTRY.format(registry))
        for name in ("runtime0", "runtime1", "bin"):
            (self.folder / name).mkdir(mode=0o700)
            os.chown(self.folder / name, entry.pw_uid, entry.pw_gid)
        if self.program == "podman":
            (self.folder / "bin" / "podman").write_text(_PODMAN)
            (self.folder / "bin" / "podman").chmod(0o755)
        for tool in ("docker", "sh", "python3"):
            if found := shutil.which(tool, path=SEARCH_PATH):
                (self.folder / "bin" / tool).symlink_to(found)
        for host in (0, 1):
            environment = self.environment(self.stores[host % len(self.stores)])
            words = " ".join(f"{name}='{value}'" for name, value in environment.items())
            python = Path(self.python(host))
            python.write_text(f'#!/bin/sh\nexec /usr/bin/env {words} python3 "$@"\n')
            python.chmod(0o755)
        if self.program == "podman":
            # The second copies the whole image for each container, and works everywhere.
            assert self._stores_by("overlay") or self._stores_by("vfs")
        elif not (self.folder / "bin" / "docker").exists() or self.run_engine(0, "ps").returncode:
            pytest.skip("no Docker daemon answers an account without privileges (DOCKER_HOST)")

    def _stores_by(self, driver: str) -> bool:
        place = "graphroot" if self.user == "root" else "rootless_storage_path"
        for store in self.stores:
            text = _STORAGE.format(self.folder, store, driver, place)
            (self.folder / f"storage{store}.conf").write_text(text)
        return all(self.run_engine(store, "info").returncode == 0 for store in self.stores)

    def has(self) -> tuple[list[str], list[str]]:
        """The containers and images of gateways."""
        images = self.engine("images", "--format", "{{.Repository}}").split()
        return self.containers(), sorted(name for name in images if "/skyplane-" in name)

    def containers(self, *stores: int) -> list[str]:
        listed = ("ps", "--all", "--quiet", "--filter", "label=skyplane:fleet")
        return self.engine(*listed, stores=stores).split()

    def clean(self) -> None:
        for store in self.stores:
            if numbers := self.containers(store):
                self.engine("rm", "--force", *numbers, stores=(store,))
        if self.program == "podman" and self.user != "root":
            # It keeps a process that holds the account's namespace.
            self.engine("system", "migrate")


@pytest.fixture(scope="module")
def reference(image: images.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("registry") / "image"
    image.podman("push", "--quiet", image.reference, f"dir:{folder}")
    with image_registry.serving(folder) as name:
        yield name


@pytest.fixture(scope="module", params=["podman", "podman of root", "docker"])
def account(reference: str, request: pytest.FixtureRequest) -> Iterator[Account]:
    with ssh_server.running_or_skip() as server:
        program, _, user = request.param.partition(" of ")
        made = Account(server, server.make_folder(), program, user or server.user)
        made.prepare(reference.partition("/")[0])
        yield made
        made.clean()


@pytest.fixture
def hosts_file(account: Account, reference: str, kit: ClientKit, tmp_path: Path) -> Path:
    """Source and destination have a host each, of which no Python has a requirement."""
    folder = account.server.make_folder()
    document: dict[str, Any] = {"defaults": {"image": reference}}
    for number, region in enumerate((kit.SOURCE, kit.SINK)):
        host = account.server.host(number, folder, user=account.user)
        names = ("address", "port", "user", "key_file", "host_key", "directory")
        entry = {name: getattr(host, name) for name in names}
        document[region] = [entry | {"python": account.python(number)}]
    path = tmp_path / "hosts.yaml"
    path.write_text(json.dumps(document))
    return path


def fleets_folder(hosts_file: Path, kit: ClientKit) -> Path:
    host = json.loads(hosts_file.read_text())[kit.SOURCE][0]
    return Path(host["directory"]).parent


def provisioner(hosts_file: Path) -> SshProvisioner:
    return SshProvisioner(SshOptions.from_file(hosts_file))


def is_confined(account: Account, store: int, container: str) -> None:
    """It is neither root nor privileged, and can write to `/tmp` and its own directory only."""
    (found,) = json.loads(account.engine("inspect", container, stores=(store,)))
    assert found["HostConfig"]["ReadonlyRootfs"] is True
    script = "id -u; grep -hE 'CapEff|NoNewPrivs' /proc/1/status; touch /opt/skyplane/x 2>&1; :"
    command = ("exec", container, "sh", "-c", script)
    said = account.engine(*command, stores=(store,)).splitlines()
    assert int(said[0]) == account.inside
    assert [line.split()[-1] for line in said[1:3]] == ["0" * 16, "1"]
    assert "Read-only file system" in said[3]


def test_two_hosts_copy_with_containers_and_keep_nothing(
    account: Account,
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    hosts_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = fleets_folder(hosts_file, kit)
    assert main(["doctor", "--provisioner", "ssh", "--hosts", str(hosts_file)]) == 0
    assert "and the image" in capsys.readouterr().out
    assert account.has() == ([], [])
    bucket = f"boxes-{account.program}-{account.inside}"
    job = filled(servers, bucket)
    client = kit.client(provisioner=provisioner(hosts_file))
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    containers, _ = account.has()
    assert len(containers) == len(fleet.gateways)
    for store in account.stores:
        for container in account.containers(store):
            is_confined(account, store, container)
    result = client.transfer(job, fleet)
    assert (result.objects, result.encrypted) == (3, True)
    source, destination = servers
    assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
    report = client.teardown(fleet)
    assert sorted(report.stopped) == sorted(gateway.node for gateway in fleet.gateways)
    assert all("is ready" in tail for tail in report.log_tails.values())
    assert account.has() == ([], [])
    assert list(folder.iterdir()) == []
    assert processes_with(str(folder)) == []
    assert client.teardown(fleet).stopped == ()
    assert account.has() == ([], [])


def test_an_image_that_was_there_before_stays(
    account: Account, kit: ClientKit, reference: str, hosts_file: Path
) -> None:
    account.engine("pull", "--quiet", reference)
    _, before = account.has()
    assert before != []
    client = kit.client(provisioner=provisioner(hosts_file))
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    client.teardown(fleet)
    assert account.has() == ([], before)
    account.engine("rmi", reference)


def test_a_killed_orchestrator_leaves_what_a_sweep_removes(
    account: Account, kit: ClientKit, hosts_file: Path
) -> None:
    folder = fleets_folder(hosts_file, kit)
    plan = kit.plan((kit.SOURCE, kit.SINK)).to_dict()
    with kit.home.orchestrator(ORCHESTRATOR, plan, str(hosts_file)) as lines:
        assert lines.readline() == "up\n"
        assert processes_with(str(folder)) != []
    kit.home.wait_until(lambda: not processes_with(str(folder)), "the leases end")
    assert list(folder.rglob("*.pem")) == []
    assert list(folder.rglob("config.json")) == []
    provisioner(hosts_file).sweep("tests")
    assert account.has() == ([], [])
    assert list(folder.iterdir()) == []
