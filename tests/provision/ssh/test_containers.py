"""Gateways as containers of hosts: with a stand-in for podman and docker behind a real sshd."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.provision.samples import A, B, one_of_each
from tests.provision.ssh import stand_in_engine
from tests.provision.ssh.boxes import IMAGE, MARK
from tests.provision.ssh_server import ADDRESSES

from skyplane_orchestration.errors import ProvisionFailed
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.local.machine import PROXIES

if TYPE_CHECKING:
    from tests.provision.ssh.boxes import Box, ContainerHarness


@pytest.fixture
def box(boxes: ContainerHarness) -> Box:
    return boxes.box


def ensure(boxes: ContainerHarness) -> Fleet:
    """A fleet of three."""
    spec = one_of_each(boxes.spec())
    return boxes.provisioner().ensure(spec, boxes.authority(spec))


def refused(boxes: ContainerHarness, said: str) -> None:
    """Provision refuses the hosts, a check finds the same in one line, and nothing is left."""
    with pytest.raises(ProvisionFailed, match=f"(?s){said}"):
        ensure(boxes)
    found = boxes.provisioner().check()
    assert {one.is_ok for one in found} == {False}
    for one in found:
        assert re.search(said, one.text)
        assert "\n" not in one.text
    assert boxes.traces() == []


# -- the command


def test_a_container_is_confined_and_shows_no_secret(boxes: ContainerHarness, box: Box) -> None:
    fleet = ensure(boxes)
    node = f"{A}/0"
    _, _, directory = fleet.gateway(node).details["instance_id"].rpartition(":")
    (command,) = [call for call in box.calls("run") if directory in call]
    ulimit = command[command.index("--ulimit") + 1]
    ids = f"{Path(directory).stat().st_uid}:{Path(directory).stat().st_gid}"
    assert command == [
        *("podman", "run", "--interactive", "--pull", "never"),
        *("--rm", "--network", "host", "--read-only"),
        *("--tmpfs", "/tmp:rw,nosuid,nodev,noexec,mode=1777"),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--log-driver", "none", "--stop-timeout", "40"),
        *("--user", ids, "--ulimit", ulimit, "--no-healthcheck"),
        *("--http-proxy=false", "--userns", "keep-id"),
        *("--label", "skyplane:deployment=test", "--label", "skyplane:fleet=f1ee7"),
        *("--label", f"skyplane:instance={node}", "--label", f"skyplane:directory={directory}"),
        "--mount",
        f"type=bind,source={directory},destination={directory},relabel=private",
        *("--env", f"HOME={directory}"),
        # Names without values, and for ends only.
        *(word for name in sorted(PROXIES) for word in ("--env", name)),
        *(IMAGE, "enrol", "--address", ADDRESSES[0], "--port", str(fleet.gateway(node).data[1])),
        *("--directory", directory),
    ]
    (relay,) = [call for call in box.calls("run") if f"skyplane:instance={B}/0" in call]
    assert not [word for word in relay if "proxy" in word and word != "--http-proxy=false"]


# -- fleets


def test_a_fleet_of_containers_comes_up_twice_and_goes(boxes: ContainerHarness, box: Box) -> None:
    fleet = ensure(boxes)
    assert len(fleet.gateways) == len(boxes.running()) == 3
    assert box.has() == (3, [MARK, IMAGE])
    # Boot scripts that start together may each pull: engines take what another has brought.
    pulls = len(box.calls("pull"))
    assert 1 <= pulls <= 3
    assert ensure(boxes).gateways == fleet.gateways
    assert len(box.calls("pull")) == pulls
    assert sorted(boxes.provisioner().destroy(fleet.key)) == sorted(
        gateway.node for gateway in fleet.gateways
    )
    assert boxes.traces() == []
    assert boxes.provisioner().destroy(fleet.key) == ()


@pytest.mark.long
def test_an_image_that_was_there_before_is_neither_pulled_nor_removed(
    boxes: ContainerHarness, box: Box
) -> None:
    for address in ADDRESSES:
        with stand_in_engine.held_state(box.state, address) as state:
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
def test_a_container_from_before_a_restart_is_removed(boxes: ContainerHarness, box: Box) -> None:
    """Its directory may be gone with `/tmp`, and it is still listed."""
    with stand_in_engine.held_state(box.state, ADDRESSES[0]) as state:
        directory = boxes.run_root / "host-0" / "f1ee7" / "aws"
        labels = {"skyplane:directory": str(directory)}
        state["containers"]["old"] = {"image": "cd" * 32, "pid": 0, "labels": labels}
    ensure(boxes)
    with stand_in_engine.held_state(box.state, ADDRESSES[0]) as state:
        assert "old" not in state["containers"]


# -- what a host lacks


def test_a_good_host_is_described_and_keeps_nothing(boxes: ContainerHarness, box: Box) -> None:
    found = boxes.provisioner().check()
    assert [one.is_ok for one in found] == [True, True]
    assert " and the image, " in found[0].text
    assert boxes.traces() == []


@pytest.mark.long
def test_docker_is_used_where_podman_does_not_work(boxes: ContainerHarness, box: Box) -> None:
    box.install("docker")
    fleet = ensure(boxes)
    assert {call[0] for call in box.calls("run")} == {"docker"}
    boxes.provisioner().destroy(fleet.key)
    assert boxes.traces() == []


def test_a_host_without_podman_and_docker_is_refused(boxes: ContainerHarness, box: Box) -> None:
    box.install()
    refused(boxes, "neither podman nor docker works here; install podman, or omit image")


def test_an_image_that_cannot_be_pulled_is_named(boxes: ContainerHarness, box: Box) -> None:
    box.facts(registry=[])
    refused(boxes, f"unauthorized.*registry of {IMAGE}.*podman login")


def test_a_check_finds_that_no_container_runs(boxes: ContainerHarness, box: Box) -> None:
    box.facts(no_run="newuidmap: write to uid_map failed")
    found = boxes.provisioner().check()
    assert [one.is_ok for one in found] == [False, False]
    assert "newuidmap: write to uid_map failed" in found[0].text
    assert boxes.traces() == []
