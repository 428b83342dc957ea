"""Machines boot the user data of real fleets."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clouds.gateways import GATEWAY, IMAGE, PUSH
from tests.provision.fleet.enrolling import enrol_at

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.enrolment.documents import EnrolmentDocument
from skyplane_orchestration.errors import GatewayUnreachable
from skyplane_orchestration.provision.fleet.machines import (
    ENROLMENT_PORT,
    control_port,
    data_port,
)
from skyplane_orchestration.provision.fleet.registries import Registry
from skyplane_orchestration.provision.fleet.user_data import (
    BootSettings,
    hiding_identity,
    user_data,
)
from skyplane_orchestration.security.authority import Authority, FleetSecret
from strict_clouds.stand_ins import PROCESSOR
from strict_clouds.world import (
    AMAZON_LINUX,
    DEBIAN,
    DEBIAN_12,
    FEDORA,
    Distribution,
    Machine,
    World,
)

AUTHORITY = Authority(FleetSecret(b"the secret of all tests of this file"), "ab" * 16)
HARD_END_S = 3600.0
REPOSITORY = Path(__file__).parents[2]
TIMEOUT_S = 60.0
#: An own image of a machine, with Podman in it.
WITH_PODMAN: Distribution = (("podman", "python3"), {})

pytestmark = [pytest.mark.e2e, pytest.mark.long]


def script(
    instance: str,
    settings: BootSettings = IMAGE,
    *,
    start_within_s: float = TIMEOUT_S,
    registry: Registry | None = None,
) -> str:
    document = EnrolmentDocument(
        fleet_key=AUTHORITY.fleet_key,
        instance=instance,
        port=ENROLMENT_PORT,
        start_within_s=start_within_s,
        authority_pem=AUTHORITY.ca_certificate_pem(time.time() + HARD_END_S),
        token_hex=AUTHORITY.enrolment_token(instance, "launch").hex(),
    )
    return user_data(settings, document, HARD_END_S, registry=registry)


def wait_until(is_done: Callable[[], object], machine: Machine) -> None:
    def is_done_or_over() -> object:
        assert machine.is_running, machine.console()
        return is_done()

    wait_for(is_done_or_over)


def wait_for(is_done: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def enrolled(machine: Machine, instance: str, settings: BootSettings = IMAGE) -> ControlClient:
    """The gateway of a machine, which answers."""
    config = GatewayConfig(
        node=instance,
        fleet_key=AUTHORITY.fleet_key,
        control_host="",
        data_host="",
        directory="",
        control_port=control_port(0),
        data_port=data_port(0, 1),
    )

    def try_to_enrol() -> str:
        try:
            return enrol_at(
                (machine.address, ENROLMENT_PORT),
                AUTHORITY,
                instance,
                "launch",
                {instance: config},
                software=settings.pushed,
            )
        except GatewayUnreachable:
            return ""

    wait_until(try_to_enrol, machine)
    gateway = ControlClient(
        machine.address,
        control_port(0),
        AUTHORITY.client_context(),
        AUTHORITY.expected_uri(instance),
    )

    def does_answer() -> bool:
        try:
            return bool(gateway.status()["state"] == "running")
        except GatewayUnreachable:
            return False

    wait_until(does_answer, machine)
    return gateway


def test_two_machines_boot_and_are_enrolled_and_one_ends(tmp_path: Path) -> None:
    ended: list[Machine] = []
    has_ended = threading.Event()

    def on_end(machine: Machine) -> None:
        ended.append(machine)
        has_ended.set()

    names = ("aws:us-east-1/0", "gcp:us-east1/0")
    with World(tmp_path, GATEWAY) as world:
        machines = [world.boot(script(name), on_end=on_end) for name in names]
        first, second = (enrolled(m, name) for m, name in zip(machines, names, strict=True))
        for machine in machines:
            wait_until(lambda: machine.hard_end_minutes == 60, machine)  # noqa: B023
        first.shutdown()
        assert has_ended.wait(TIMEOUT_S)
        machines[0].wait_ended()
        assert ended == [machines[0]]
        assert machines[0].why_ended == "shutdown -P now"
        assert f"{names[0]} has ended" in machines[0].console()
        assert second.status()["state"] == "running"
        first.close()
        second.close()
    assert not any(machine.is_running for machine in machines)
    assert machines[1].why_ended == ""


@pytest.mark.parametrize(
    ("settings", "distribution"),
    [
        (IMAGE, DEBIAN_12),
        (IMAGE, DEBIAN),
        (IMAGE, AMAZON_LINUX),
        (IMAGE, FEDORA),
        (PUSH, DEBIAN),
    ],
)
def test_a_machine_installs_what_it_lacks(
    settings: BootSettings, distribution: Distribution, tmp_path: Path
) -> None:
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(script("aws:us-east-1/0", settings), distribution=distribution)
        enrolled(machine, "aws:us-east-1/0", settings).close()
        machine.shut_down()
        machine.wait_ended()
        assert "ending: SIGTERM" in machine.console()


def write_image(path: Path, **processors: str) -> None:
    """What `docker save` writes of an image, as far as it is looked at."""
    images = []
    with tarfile.open(path, "w") as archive:

        def add(name: str, content: object) -> None:
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))

        for tag, processor in processors.items():
            add(f"{tag}.json", {"architecture": processor})
            images.append({"Config": f"{tag}.json", "RepoTags": [f"skyplane-gateway:{tag}"]})
        add("manifest.json", images)


def archived(path: Path) -> str:
    """The boot script of a machine that reads the file as if it were at an address."""
    address = "https://files.example/gateway.tar"
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    settings = BootSettings(image=address, image_sha256=sha256)
    return script("aws:us-east-1/0", settings).replace(address, path.as_uri())


@pytest.mark.parametrize("distribution", [DEBIAN, WITH_PODMAN])
def test_a_machine_runs_the_image_of_an_archive_that_is_for_its_processor(
    distribution: Distribution, tmp_path: Path
) -> None:
    other = {"amd64": "arm64", "arm64": "amd64"}[PROCESSOR]
    write_image(tmp_path / "image.tar", a=other, b=PROCESSOR, c=other)
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(archived(tmp_path / "image.tar"), distribution=distribution)
        enrolled(machine, "aws:us-east-1/0").close()
        machine.shut_down()
        machine.wait_ended()
    assert not list((machine.directory / "tmp").glob("*/received"))


def test_a_machine_for_which_an_archive_has_no_image_says_so_and_ends(tmp_path: Path) -> None:
    write_image(tmp_path / "image.tar", a={"amd64": "arm64", "arm64": "amd64"}[PROCESSOR])
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(archived(tmp_path / "image.tar"))
        machine.wait_ended()
    assert machine.why_ended == "shutdown -P now"
    assert f"the archive has no image for {PROCESSOR}" in machine.console()


def test_a_machine_runs_no_other_archive_than_the_one_of_the_checksum(tmp_path: Path) -> None:
    write_image(tmp_path / "image.tar", a=PROCESSOR)
    boot = archived(tmp_path / "image.tar").replace("-ge 6", "-ge 1")
    write_image(tmp_path / "image.tar", b=PROCESSOR)
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(boot)
        machine.wait_ended()
    assert not (machine.directory / "loaded").exists()


@pytest.mark.parametrize("distribution", [DEBIAN, WITH_PODMAN])
def test_a_machine_logs_in_before_it_pulls_and_its_console_has_no_password(
    distribution: Distribution, tmp_path: Path
) -> None:
    registry = Registry("aws", "123456789012.dkr.ecr.eu-west-3.amazonaws.com", "AWS")
    login = {"cloud": "aws", "host": registry.host, "user": "AWS", "password": "pass'word %s"}
    boot = hiding_identity(script("aws:us-east-1/0", registry=registry))
    with World(tmp_path, replace(GATEWAY, login=login)) as world:
        machine = world.boot(boot, distribution=distribution)
        enrolled(machine, "aws:us-east-1/0").close()
        assert "pass'word" not in machine.console()
        assert (machine.directory / "metadata_hidden").exists()
        machine.shut_down()
        machine.wait_ended()


def test_a_machine_whose_identity_may_not_log_in_ends_by_itself(tmp_path: Path) -> None:
    registry = Registry("azure", "myteam.azurecr.io", "0")
    boot = script("azure:westeurope/0", registry=registry).replace("-ge 6", "-ge 1")
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(boot)
        machine.wait_ended()
    assert machine.why_ended == "shutdown -P now"
    assert "no identity for myteam.azurecr.io" in machine.console()
    assert "skyplane: failed 1 times: log_in" in machine.console()


def test_a_machine_that_nobody_enrols_ends_by_itself(tmp_path: Path) -> None:
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(script("aws:us-east-1/0", start_within_s=0.1))
        machine.wait_ended()
    assert machine.why_ended == "shutdown -P now"
    assert "no orchestrator came within 0.1 s" in machine.console()
    assert "the boot script ended with status 1; powering off" in machine.console()


def test_a_machine_whose_boot_fails_ends_by_itself(tmp_path: Path) -> None:
    nothing_to_install: Distribution = (("dnf",), {})
    without_retries = script("aws:us-east-1/0").replace("-ge 6", "-ge 1")
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(without_retries, distribution=nothing_to_install)
        machine.wait_ended()
    assert machine.why_ended == "shutdown -P now"
    assert "skyplane: failed 1 times: dnf" in machine.console()


def test_a_reboot_ends_a_machine(tmp_path: Path) -> None:
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(script("aws:us-east-1/0"))
        wait_until(lambda: "waits for its orchestrator" in machine.console(), machine)
        machine.reboot()
        assert not machine.is_running


STUBBORN = """
    trap '' TERM
    ( trap '' TERM HUP; echo "child $(/bin/sh -c 'echo $PPID')"; while :; do sleep 60; done ) &
    echo "parent $$"
    wait
"""


def pids_of(console: str) -> list[int]:
    return [int(line.split()[1]) for line in console.splitlines()]


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_processes_end_with_their_machine_whatever_they_do(tmp_path: Path) -> None:
    with World(tmp_path, GATEWAY) as world:
        machine = world.boot(STUBBORN)
        wait_until(lambda: machine.console().count("\n") == 2, machine)
        pids = pids_of(machine.console())
        assert all(map(is_there, pids))
    assert not any(map(is_there, pids))


def test_machines_end_with_a_test_that_is_killed(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from strict_clouds.world import World
from tests.clouds.gateways import GATEWAY
with World(Path({str(tmp_path)!r})) as world:
    print(world.boot({STUBBORN!r}).directory, flush=True)
    input()
"""
    test = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert test.stdout is not None
    directory = Path(test.stdout.readline().strip())
    wait_for(lambda: (directory / "console").read_text().count("\n") == 2)
    pids = [*pids_of((directory / "console").read_text()), int((directory / "pid").read_text())]
    test.kill()
    test.communicate()
    wait_for(lambda: not any(map(is_there, pids)))
