"""Gateways as containers of hosts: with a stand-in for podman and docker behind a real sshd."""

from __future__ import annotations

import re
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.provision.samples import A
from tests.provision.ssh import stand_in_engine
from tests.provision.ssh.boxes import DOCKER, IMAGE, MARK

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.local.run_directory import GatewayFiles
from skyplane_orchestration.provision.ssh.containers import ContainerProgram
from skyplane_orchestration.provision.ssh.engine import Engine

if TYPE_CHECKING:
    from tests.provision.ssh.boxes import Box, ContainerHarness


@pytest.fixture
def box(boxes: ContainerHarness) -> Box:
    return boxes.box


def ensure(boxes: ContainerHarness) -> Fleet:
    spec = boxes.spec()
    return boxes.provisioner().ensure(spec, boxes.authority(spec))


def refused(boxes: ContainerHarness, error: type[SkyplaneError], said: str) -> None:
    """Provision refuses the hosts, a check finds the same in one line, and nothing is left."""
    with pytest.raises(error, match=said):
        ensure(boxes)
    found = boxes.provisioner().check()
    assert {one.is_ok for one in found} == {False}
    for one in found:
        assert re.search(said, one.text)
        assert "\n" not in one.text
    assert boxes.traces() == []


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


def test_a_fleet_of_containers_comes_up_twice_and_goes(boxes: ContainerHarness, box: Box) -> None:
    fleet = ensure(boxes)
    assert len(fleet.gateways) == len(boxes.running()) == 5
    assert box.has() == (5, [MARK, IMAGE])
    assert ensure(boxes).gateways == fleet.gateways
    assert len(box.calls("pull")) <= 2, "both hosts may pull at once, and only the first time"
    assert fleet.gateways[0].details["podman"] == IMAGE
    secret = list(boxes.run_root.rglob("gateway.pem"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    assert sorted(boxes.provisioner().destroy(fleet.key)) == sorted(
        gateway.node for gateway in fleet.gateways
    )
    assert boxes.traces() == []
    assert boxes.provisioner().destroy(fleet.key) == ()


@pytest.mark.long
def test_an_image_that_was_there_before_is_neither_pulled_nor_removed(
    boxes: ContainerHarness, box: Box
) -> None:
    with stand_in_engine.held_state(box.state) as state:
        state["images"][IMAGE] = "ab" * 32
    fleet = ensure(boxes)
    assert box.calls("pull") == []
    boxes.provisioner().destroy(fleet.key)
    assert box.has() == (0, [IMAGE])


@pytest.mark.long
def test_an_image_stays_as_long_as_another_fleet_needs_it(
    boxes: ContainerHarness, box: Box
) -> None:
    first = ensure(boxes)
    spec = boxes.spec("5ec0d")
    second = boxes.provisioner().ensure(spec, boxes.authority(spec))
    boxes.provisioner().destroy(first.key)
    assert box.has() == (5, [MARK, IMAGE])
    boxes.provisioner().destroy(second.key)
    assert boxes.traces() == []


def test_containers_that_cannot_start_leave_nothing(boxes: ContainerHarness, box: Box) -> None:
    """The engine makes a container and cannot start it, as without a runtime."""
    box.facts(no_start="crun: cannot set up namespaces")
    with pytest.raises(ProvisionFailed, match="cannot set up namespaces"):
        ensure(boxes)
    assert boxes.traces() == []


@pytest.mark.long
def test_a_restart_of_the_machine_leaves_nothing_after_a_sweep(
    boxes: ContainerHarness, box: Box
) -> None:
    """Its directories may be gone with `/tmp`, and its containers are still listed."""
    fleet = ensure(boxes)
    for gateway in fleet.gateways:
        boxes.kill(gateway)
    with stand_in_engine.held_state(box.state) as state:
        labels = {"skyplane:deployment": "test", "skyplane:fleet": fleet.key}
        labels |= {"skyplane:node": f"{A}/0"}
        for number in range(2):
            place = boxes.run_root / f"host-{number}" / fleet.key
            shutil.rmtree(place)
            one = {"image": "ab" * 32, "pid": 0}
            state["containers"][f"{number}"] = {
                **one,
                "labels": {**labels, "skyplane:directory": str(place)},
            }
    assert boxes.provisioner().sweep("staging").orphans == ()
    found = boxes.provisioner().sweep("test", dry_run=True)
    assert [one.key for one in found.orphans] == [fleet.key] * 2
    assert box.has()[0] == 2
    assert boxes.provisioner().sweep("test").left == ()
    assert boxes.traces() == []


@pytest.mark.long
def test_an_engine_that_is_down_makes_the_teardown_fail(boxes: ContainerHarness, box: Box) -> None:
    fleet = ensure(boxes)
    box.facts(broken="Cannot connect to the daemon")
    with pytest.raises(TeardownIncomplete, match="podman does not work there: Cannot connect"):
        boxes.provisioner().destroy(fleet.key)
    box.facts()
    boxes.provisioner().destroy(fleet.key)
    assert boxes.traces() == []


# -- what a host lacks


def test_a_good_host_is_described_and_keeps_nothing(boxes: ContainerHarness, box: Box) -> None:
    found = boxes.provisioner().check()
    assert [one.is_ok for one in found] == [True, True]
    assert found[0].text.startswith("podman 5.4.0 with the image, ")
    assert boxes.traces() == []


@pytest.mark.long
def test_docker_is_used_where_podman_does_not_work(boxes: ContainerHarness, box: Box) -> None:
    box.install("docker")
    box.facts(info=DOCKER)
    fleet = ensure(boxes)
    assert {call[0] for call in box.calls("run")} == {"docker"}
    boxes.provisioner().destroy(fleet.key)
    assert boxes.traces() == []


def test_a_host_without_podman_and_docker_is_refused(boxes: ContainerHarness, box: Box) -> None:
    box.install()
    refused(boxes, ConfigurationInvalid, "neither podman nor docker.* install podman.* image")


def test_a_docker_that_does_not_answer_is_refused(boxes: ContainerHarness, box: Box) -> None:
    box.install("docker")
    box.facts(info={"ServerErrors": ["permission denied"], "ClientInfo": {}})
    said = "cannot run containers: docker does not work there: permission denied; .* omit image"
    refused(boxes, ConfigurationInvalid, said)


def test_an_image_that_cannot_be_pulled_is_named(boxes: ContainerHarness, box: Box) -> None:
    box.facts(registry=[])
    said = f"podman on host .* cannot pull image {IMAGE}: .*unauthorized.*podman login.* image"
    refused(boxes, ProvisionFailed, said)


def test_a_check_finds_that_no_container_runs(boxes: ContainerHarness, box: Box) -> None:
    box.facts(no_run="newuidmap: write to uid_map failed")
    found = boxes.provisioner().check()
    assert [one.is_ok for one in found] == [False, False]
    assert "cannot run a container of image" in found[0].text
    assert "newuidmap: write to uid_map failed" in found[0].text
    assert boxes.traces() == []
