"""Gateways as containers of hosts: with a stand-in for podman and docker behind a real sshd."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.provision.conftest import FAKE_GATEWAY, FakeSession, SshHarness
from tests.provision.samples import A
from tests.provision.ssh import stand_in_engine

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.processes.run_directory import GatewayFiles
from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
from skyplane_orchestration.provision.ssh.containers import ContainerProgram
from skyplane_orchestration.provision.ssh.engine import Engine

if TYPE_CHECKING:
    from tests.provision.ssh_server import Server

IMAGE = "registry.example/skyplane-gateway@sha256:" + "ab" * 32
DOCKER = {"ServerVersion": "28.2.2", "SecurityOptions": ["name=seccomp,profile=builtin"]}


def podman_info(*, cgroups: str = "cgroupfs") -> dict[str, Any]:
    host = {"security": {"rootless": True}, "cgroupManager": cgroups}
    return {"host": host, "version": {"Version": "5.4.0"}}


@dataclass
class Box:
    """A host whose account has a stand-in engine."""

    state: Path
    python: str

    def facts(self, **changed: Any) -> None:
        facts = {"info": podman_info(), "registry": [IMAGE], **changed}
        (self.state / "facts.json").write_text(json.dumps(facts))

    def install(self, *programs: str) -> None:
        """Exactly these programs are on its path."""
        shutil.rmtree(self.state / "bin", ignore_errors=True)
        (self.state / "bin").mkdir()
        for program in programs:
            path = self.state / "bin" / program
            words = f"python3 -I -S {self.state}/stand_in_engine.py {self.state} {program}"
            path.write_text(f'#!/bin/sh\nexec {words} {self.state}/fake_gateway.py "$@"\n')
            path.chmod(0o755)

    def has(self) -> tuple[int, list[str]]:
        """The number of its containers, and its images."""
        with stand_in_engine.held_state(self.state) as state:
            return len(state["containers"]), sorted(state["images"])

    def calls(self, verb: str) -> list[list[str]]:
        lines = (self.state / "calls").read_text().splitlines()
        return [call for call in map(json.loads, lines) if call[1] == verb]


@pytest.fixture
def box(ssh: SshHarness, sshd: Server) -> Box:
    state = sshd.make_folder()
    for source in (FAKE_GATEWAY, Path(stand_in_engine.__file__)):
        shutil.copyfile(source, state / source.name)
    python = state / "python"
    # Real engines of this machine are not to be found.
    python.write_text(f'#!/bin/sh\nPATH={state}/bin:{state}/tools exec {sshd.python} "$@"\n')
    python.chmod(0o755)
    (state / "tools").mkdir()
    for tool in ("sh", "python3"):
        found = shutil.which(tool, path="/usr/bin:/bin")
        assert found is not None
        (state / "tools" / tool).symlink_to(found)
    (state / "calls").touch(0o666)
    (state / "state.json").touch(0o666)
    for path in (state / "calls", state / "state.json"):
        path.chmod(0o666)
    made = Box(state, str(python))
    made.facts()
    made.install("podman")
    return made


def provisioner(ssh: SshHarness, box: Box, **changes: Any) -> SshProvisioner:
    hosts = {
        region: tuple(replace(host, image=IMAGE, python=box.python, **changes) for host in group)
        for region, group in ssh.ssh_options.hosts.items()
    }
    options = SshOptions(hosts, ready_timeout_s=30.0, term_grace_s=5.0)
    return SshProvisioner(options, connect=FakeSession)


def ensure(ssh: SshHarness, box: Box, **changes: Any) -> Fleet:
    spec = ssh.spec()
    return provisioner(ssh, box, **changes).ensure(spec, ssh.authority(spec))


def refused(ssh: SshHarness, box: Box, error: type[SkyplaneError], said: str) -> None:
    """Provision refuses the hosts, a check finds the same, and nothing is left."""
    with pytest.raises(error, match=said):
        ensure(ssh, box)
    found = provisioner(ssh, box).check()
    assert {one.is_ok for one in found} == {False}
    for one in found:
        assert "\n" not in one.text
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(found[0].text)
    assert box.has() == (0, [])
    assert ssh.traces() == []


# -- the command


def test_a_container_is_confined_and_shows_no_secret() -> None:
    program = ContainerProgram(
        Engine("podman", "5.4.0", "1000:1000", ("--userns", "keep-id")), IMAGE, "prod", 20000
    )
    files = GatewayFiles(Path("/tmp/fleets/f1ee7/aws:us-east-1%2F0"))
    command = program.command(files, "f1ee7", is_end=False)
    assert command == [
        *("podman", "run", "--detach", "--pull", "never"),
        *("--rm", "--network", "host", "--read-only"),
        *("--tmpfs", "/tmp:rw,nosuid,nodev,noexec,mode=1777"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--log-driver", "none", "--stop-timeout", "40"),
        *("--user", "1000:1000", "--ulimit", "nofile=20000:20000", "--userns", "keep-id"),
        "--no-healthcheck",
        *("--label", "skyplane:deployment=prod", "--label", "skyplane:fleet=f1ee7"),
        *("--label", "skyplane:node=aws:us-east-1/0"),
        *("--label", "skyplane:directory=/tmp/fleets/f1ee7"),
        "--mount",
        f"type=bind,source={files.directory},destination={files.directory},relabel=private",
        *("--env", f"HOME={files.directory}", IMAGE),
        *("--config", f"{files.directory}/config.json", "--fleet", "f1ee7"),
        *("--log-file", f"{files.directory}/gateway.log"),
    ]


def test_only_ends_get_the_proxies_of_the_account_and_by_name() -> None:
    program = ContainerProgram(Engine("docker", "28.2.2", "1000:1000"), IMAGE, "prod")
    files = GatewayFiles(Path("/tmp/fleets/f1ee7/n"))
    plain = program.command(files, "f1ee7", is_end=False)
    end = program.command(files, "f1ee7", is_end=True)
    more = [word for word in end if word not in plain]
    assert "https_proxy" in more
    assert not [word for word in more if "=" in word]
    assert not [word for word in end if "relabel" in word]


# -- fleets


def test_a_fleet_of_containers_comes_up_twice_and_goes(ssh: SshHarness, box: Box) -> None:
    fleet = ensure(ssh, box)
    assert len(fleet.gateways) == len(ssh.running()) == 5
    assert box.has() == (5, [f"localhost/skyplane-brought:{'ab' * 32}", IMAGE])
    assert ensure(ssh, box).gateways == fleet.gateways
    assert len(box.calls("pull")) <= 2, "both hosts may pull at once, and only the first time"
    assert fleet.gateways[0].details["podman"] == IMAGE
    secret = list(ssh.run_root.rglob("gateway.pem"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert sorted(provisioner(ssh, box).destroy(fleet.key)) == sorted(
        gateway.node for gateway in fleet.gateways
    )
    assert box.has() == (0, [])
    assert ssh.traces() == []
    assert provisioner(ssh, box).destroy(fleet.key) == ()


def test_an_image_that_was_there_before_is_neither_pulled_nor_removed(
    ssh: SshHarness, box: Box
) -> None:
    with stand_in_engine.held_state(box.state) as state:
        state["images"][IMAGE] = "ab" * 32
    fleet = ensure(ssh, box)
    assert box.calls("pull") == []
    provisioner(ssh, box).destroy(fleet.key)
    assert box.has() == (0, [IMAGE])


def test_an_image_stays_as_long_as_another_fleet_needs_it(ssh: SshHarness, box: Box) -> None:
    first = ensure(ssh, box)
    spec = ssh.spec("5ec0d")
    second = provisioner(ssh, box).ensure(spec, ssh.authority(spec))
    provisioner(ssh, box).destroy(first.key)
    assert box.has() == (5, [f"localhost/skyplane-brought:{'ab' * 32}", IMAGE])
    provisioner(ssh, box).destroy(second.key)
    assert box.has() == (0, [])
    assert ssh.traces() == []


def test_containers_that_cannot_start_leave_nothing(ssh: SshHarness, box: Box) -> None:
    """The engine makes a container and cannot start it, as without a runtime."""
    box.facts(no_start="crun: cannot set up namespaces")
    with pytest.raises(ProvisionFailed, match="cannot set up namespaces"):
        ensure(ssh, box)
    assert box.has() == (0, [])
    assert ssh.traces() == []


def test_a_restart_of_the_machine_leaves_nothing_after_a_sweep(ssh: SshHarness, box: Box) -> None:
    """Its directories may be gone with `/tmp`, and its containers are still listed."""
    fleet = ensure(ssh, box)
    for gateway in fleet.gateways:
        ssh.kill(replace(gateway, details={"pid": pid_of(ssh, gateway.node)}))
    with stand_in_engine.held_state(box.state) as state:
        labels = {"skyplane:deployment": "test", "skyplane:fleet": fleet.key}
        labels |= {"skyplane:node": f"{A}/0"}
        for number in range(2):
            place = ssh.run_root / f"host-{number}" / fleet.key
            shutil.rmtree(place)
            one = {"image": "ab" * 32, "pid": 0}
            state["containers"][f"{number}"] = {
                **one,
                "labels": {**labels, "skyplane:directory": str(place)},
            }
    assert provisioner(ssh, box).sweep("staging").orphans == ()
    found = provisioner(ssh, box).sweep("test", dry_run=True)
    assert [one.key for one in found.orphans] == [fleet.key] * 2
    assert box.has()[0] == 2
    assert provisioner(ssh, box).sweep("test").left == ()
    assert box.has() == (0, [])
    assert ssh.traces() == []


def pid_of(ssh: SshHarness, node: str) -> str:
    name = node.replace("/", "%2F")
    (pid,) = [str(pid) for pid, line in ssh.running().items() if f"/{name}/config.json" in line]
    return pid


def test_an_engine_that_is_down_makes_the_teardown_fail(ssh: SshHarness, box: Box) -> None:
    fleet = ensure(ssh, box)
    box.facts(broken="Cannot connect to the daemon")
    with pytest.raises(TeardownIncomplete, match="podman does not work there: Cannot connect"):
        provisioner(ssh, box).destroy(fleet.key)
    box.facts()
    provisioner(ssh, box).destroy(fleet.key)
    assert box.has() == (0, [])
    assert ssh.traces() == []


# -- what a host lacks


def test_a_good_host_is_described_and_keeps_nothing(ssh: SshHarness, box: Box) -> None:
    found = provisioner(ssh, box).check()
    assert [one.is_ok for one in found] == [True, True]
    assert found[0].text.startswith("podman 5.4.0 with the image, ")
    assert box.has() == (0, [])
    assert ssh.traces() == []


def test_docker_is_used_where_podman_does_not_work(ssh: SshHarness, box: Box) -> None:
    box.install("docker")
    box.facts(info=DOCKER)
    fleet = ensure(ssh, box)
    assert {call[0] for call in box.calls("run")} == {"docker"}
    provisioner(ssh, box).destroy(fleet.key)
    assert box.has() == (0, [])


def test_a_host_without_podman_and_docker_is_refused(ssh: SshHarness, box: Box) -> None:
    box.install()
    refused(ssh, box, ConfigurationInvalid, "neither podman nor docker.* install podman.* image")


def test_a_docker_that_does_not_answer_is_refused(ssh: SshHarness, box: Box) -> None:
    box.install("docker")
    box.facts(info={"ServerErrors": ["permission denied"], "ClientInfo": {}})
    said = "cannot run containers: docker does not work there: .*permission denied.* omit image"
    refused(ssh, box, ConfigurationInvalid, said)


def test_an_image_that_cannot_be_pulled_is_named(ssh: SshHarness, box: Box) -> None:
    box.facts(registry=[])
    said = f"podman on host .* cannot pull image {IMAGE}: .*unauthorized.*podman login.* image"
    refused(ssh, box, ProvisionFailed, said)


def test_a_check_finds_that_no_container_runs(ssh: SshHarness, box: Box) -> None:
    box.facts(no_run="newuidmap: write to uid_map failed")
    found = provisioner(ssh, box).check()
    assert [one.is_ok for one in found] == [False, False]
    assert "cannot run a container of image" in found[0].text
    assert "newuidmap: write to uid_map failed" in found[0].text
    assert box.has() == (0, [])
