"""Gateways as containers of hosts: a real sshd, a rootless Podman of another user, the image."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e import image_registry
from tests.e2e.container_tool import SEARCH_PATH
from tests.e2e.test_ssh_hosts import ORCHESTRATOR, processes_of
from tests.provision import ssh_server

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner

if TYPE_CHECKING:
    from tests.e2e import image as images
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.image, pytest.mark.timeout(900)]

#: What works where no overlay file system, no cgroup and no systemd is there.
_STORAGE = '[storage]\ndriver = "vfs"\nrunroot = "{0}/run"\nrootless_storage_path = "{0}/root"\n'
_ENGINE = '[engine]\ncgroup_manager = "cgroupfs"\nruntime = "runc"\nevents_logger = "file"\n'
_REGISTRY = '[[registry]]\nlocation = "{}"\ninsecure = true\n'


@dataclass(frozen=True)
class Account:
    """The account of the hosts, with a Podman whose files are all in one folder."""

    server: ssh_server.Server
    folder: Path
    python: str

    @property
    def environment(self) -> dict[str, str]:
        names = {"CONTAINERS_CONF": "engine", "CONTAINERS_STORAGE_CONF": "storage"}
        names |= {"CONTAINERS_REGISTRIES_CONF": "registries"}
        files = {name: str(self.folder / f"{file}.conf") for name, file in names.items()}
        own = {"HOME": str(self.folder), "XDG_RUNTIME_DIR": str(self.folder / "runtime")}
        return {**files, **own, "PATH": SEARCH_PATH}

    def podman(self, *arguments: str) -> str:
        """What its Podman prints."""
        entry = pwd.getpwnam(self.server.user)
        done = subprocess.run(
            ["podman", *arguments],
            user=entry.pw_uid,
            group=entry.pw_gid,
            extra_groups=[],
            cwd="/",
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def has(self) -> tuple[list[str], list[str]]:
        """Its containers and its images."""
        containers = self.podman("ps", "--all", "--quiet").split()
        return containers, self.podman("images", "--format", "{{.Repository}}").split()


@pytest.fixture(scope="module")
def reference(image: images.Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("registry") / "image"
    image.podman("push", "--quiet", image.reference, f"dir:{folder}")
    with image_registry.serving(folder) as name:
        yield name


@pytest.fixture(scope="module")
def account(reference: str) -> Iterator[Account]:
    with ssh_server.running_or_skip() as server:
        folder = server.make_folder()
        entry = pwd.getpwnam(server.user)
        texts = {
            "storage": _STORAGE.format(folder),
            "engine": _ENGINE,
            "registries": _REGISTRY.format(reference.partition("/")[0]),
        }
        for name, text in texts.items():
            (folder / f"{name}.conf").write_text(text)
        (folder / "runtime").mkdir(mode=0o700)
        os.chown(folder / "runtime", entry.pw_uid, entry.pw_gid)
        python = folder / "python"
        made = Account(server, folder, str(python))
        words = " ".join(f"{name}='{value}'" for name, value in made.environment.items())
        python.write_text(f'#!/bin/sh\nexec env {words} python3 "$@"\n')
        python.chmod(0o755)
        yield made
        made.podman("rm", "--all", "--force")
        # Podman keeps a process that holds the account's namespace.
        made.podman("system", "migrate")


@pytest.fixture
def hosts_file(account: Account, reference: str, kit: ClientKit, tmp_path: Path) -> Path:
    """Source and destination have a host each, of which no Python has a requirement."""
    folder = account.server.make_folder()
    document: dict[str, Any] = {"defaults": {"image": reference, "python": account.python}}
    for number, region in enumerate((kit.SOURCE, kit.SINK)):
        host = account.server.host(number, folder)
        names = ("address", "port", "user", "key_file", "host_key", "directory")
        document[region] = [{name: getattr(host, name) for name in names}]
    path = tmp_path / "hosts.yaml"
    path.write_text(json.dumps(document))
    return path


def fleets_folder(hosts_file: Path, kit: ClientKit) -> Path:
    host = json.loads(hosts_file.read_text())[kit.SOURCE][0]
    return Path(host["directory"]).parent


def provisioner(hosts_file: Path) -> SshProvisioner:
    return SshProvisioner(SshOptions.from_file(hosts_file))


def job_of(servers: tuple[S3Server, S3Server], bucket: str) -> TransferJob:
    source, destination = servers
    for server in servers:
        server.make_bucket(bucket)
    source.fill(bucket, "p/", {"large": os.urandom(9 << 20), "a/b": b"x", "empty": b""})
    return TransferJob(
        Location(f"s3://{bucket}/p/", source.region, source.endpoint),
        Location(f"s3://{bucket}/q/", destination.region, destination.endpoint),
        limits=Limits(chunk_mib=5),
    )


def is_confined(account: Account, container: str) -> None:
    """It is neither root nor privileged, and can write to `/tmp` and its own directory only."""
    (found,) = json.loads(account.podman("inspect", container))
    assert found["HostConfig"]["ReadonlyRootfs"] is True
    assert found["EffectiveCaps"] in ([], None)
    script = "id -u; grep NoNewPrivs /proc/1/status; touch /opt/skyplane/x 2>&1 || true"
    user, privileges, refusal = account.podman("exec", container, "sh", "-c", script).splitlines()
    assert int(user) == pwd.getpwnam(account.server.user).pw_uid
    assert privileges.split()[-1] == "1"
    assert "Read-only file system" in refusal


def test_two_hosts_copy_with_containers_and_keep_nothing(
    account: Account,
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    hosts_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = fleets_folder(hosts_file, kit)
    assert main(["doctor", "--provisioner", "ssh", "--hosts", str(hosts_file)]) == 0
    assert "with the image" in capsys.readouterr().out
    assert account.has() == ([], [])
    job = job_of(servers, "boxes")
    client = kit.client(provisioner=provisioner(hosts_file))
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    containers, _ = account.has()
    assert len(containers) == len(fleet.gateways)
    for container in containers:
        is_confined(account, container)
    result = client.transfer(job, fleet)
    assert (result.objects, result.encrypted) == (3, True)
    source, destination = servers
    assert destination.objects("boxes", "q/") == source.objects("boxes", "p/")
    report = client.teardown(fleet)
    assert sorted(report.stopped) == sorted(gateway.node for gateway in fleet.gateways)
    assert all("is ready" in tail for tail in report.log_tails.values())
    assert account.has() == ([], [])
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    assert client.teardown(fleet).stopped == ()
    assert account.has() == ([], [])


def test_an_image_that_was_there_before_stays(
    account: Account, kit: ClientKit, reference: str, hosts_file: Path
) -> None:
    account.podman("pull", "--quiet", reference)
    _, before = account.has()
    client = kit.client(provisioner=provisioner(hosts_file))
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    client.teardown(fleet)
    assert account.has() == ([], before)
    account.podman("rmi", reference)


def test_a_killed_orchestrator_leaves_what_a_sweep_removes(
    account: Account, kit: ClientKit, hosts_file: Path
) -> None:
    folder = fleets_folder(hosts_file, kit)
    plan = kit.plan((kit.SOURCE, kit.SINK)).to_dict()
    with kit.home.orchestrator(ORCHESTRATOR, plan, str(hosts_file)) as lines:
        assert lines.readline() == "up\n"
        assert processes_of(folder) != []
    kit.home.wait_until(lambda: not processes_of(folder), "the leases end")
    assert list(folder.rglob("*.pem")) == []
    assert list(folder.rglob("config.json")) == []
    provisioner(hosts_file).sweep("tests")
    assert account.has() == ([], [])
    assert list(folder.iterdir()) == []


def test_a_sweep_finds_containers_of_a_machine_that_lost_its_directories(
    account: Account, kit: ClientKit, hosts_file: Path
) -> None:
    """As after a restart that empties `/tmp`."""
    client = kit.client(provisioner=provisioner(hosts_file))
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    places = {Path(gateway.details["directory"]).parent for gateway in fleet.gateways}
    for place in places:
        place.rename(f"{place}.lost")
    found = provisioner(hosts_file).sweep("tests", dry_run=True)
    assert {one.key for one in found.orphans} == {fleet.key}
    assert len(account.has()[0]) == len(fleet.gateways)
    assert provisioner(hosts_file).sweep("another deployment").orphans == ()
    report = provisioner(hosts_file).sweep("tests")
    assert report.left == ()
    assert sorted(node for one in report.orphans for node in one.gateways) == sorted(
        gateway.node for gateway in fleet.gateways
    )
    assert account.has() == ([], [])
