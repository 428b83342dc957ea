"""The gateway's image: built from the Dockerfile, run by the boot script of instances."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import shutil
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler
from typing import TYPE_CHECKING, Final

import pytest
from tests import https_server
from tests.e2e.conftest import DESTINATION_REGION, SOURCE_REGION, filled
from tests.provision.fleet.machine_account import MachineAccount, MachineCloud

from skyplane_gateway.common.dialing import directly
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.fleet.user_data import BootSettings, user_data
from strict_clouds.world import Distribution, Program, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e import image as images
    from tests.e2e.conftest import ClientKit, S3Server


pytestmark = [pytest.mark.e2e, pytest.mark.root, pytest.mark.image, pytest.mark.timeout(900)]

#: Machines without Docker, with a podman.
_WITH_PODMAN: Final[Distribution] = (("python3",), {})
_MOST_MB = 400


def test_the_image_is_small_not_root_and_has_a_health_check(
    image: images.Image, capsys: pytest.CaptureFixture[str]
) -> None:
    configuration = image.configuration
    assert configuration["User"] == "10001:10001"
    assert configuration["Healthcheck"]["Test"][-1] == "health"
    assert not [line for line in configuration["Config"]["Env"] if "PIP" in line]
    with capsys.disabled():
        own = image.size_bytes - image.base_bytes
        print(f"\nimage: {image.size_bytes / 1e6:.0f} MB, {own / 1e6:.0f} MB of it on the base")
    assert image.size_bytes / 1e6 < _MOST_MB


@pytest.fixture(params=["name", "archive"])
def boots(
    request: pytest.FixtureRequest,
    image: images.Image,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[images.Image, BootSettings, Program]]:
    """How machines get the image: it is there by its name, or they read it from an address."""
    if request.param == "name":
        yield image, BootSettings(image=image.reference), Program((), "")
        return
    folder = tmp_path / "served"
    folder.mkdir()
    archive = folder / "gateway.tar"
    image.podman("save", "--quiet", "--output", str(archive), image.reference.partition("@")[0])
    # Podman takes no long path.
    without = replace(image, storage=tmp_path_factory.mktemp("gw") / "storage")
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with https_server.serving(handler, tmp_path) as (url, trusted):
        settings = BootSettings(image=f"{url}/gateway.tar?X-Amz-Date=1&a='b'", image_sha256=sha256)
        yield without, settings, Program((), "", environment={"SSL_CERT_FILE": trusted})
    without.podman("rm", "--all", "--force")
    shutil.rmtree(without.storage)


def test_two_containers_pass_objects_on_and_end_with_their_machines(
    boots: tuple[images.Image, BootSettings, Program],
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    image, settings, program = boots
    source, destination = servers
    bucket = "archive" if settings.address else "image"
    job = filled(servers, bucket)
    with World(tmp_path / "world", program) as world:
        programs = {"podman": image.program()}
        account = MachineAccount(
            boot=lambda request: world.boot(
                request.user_data, distribution=_WITH_PODMAN, programs=programs
            )
        )
        regions = (SOURCE_REGION, DESTINATION_REGION)
        client = kit.client(
            provisioner=InstanceProvisioner(
                FleetContext(
                    Clouds([MachineCloud("aws", account, regions=regions)]),
                    Boot(
                        partial(user_data, settings),
                        lambda one: partial(directly, one.address, ENROLMENT_PORT),
                    ),
                    InstanceOptions(("127.0.0.1/32",), poll_s=0.2, end_timeout_s=120.0),
                )
            )
        )
        fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
        containers = json.loads(image.podman("ps", "--format", "json"))
        assert len(containers) == 2
        for container in containers:
            is_well(image, container["Id"])
        with capsys.disabled():
            print(f"\nstart-up of a container: {start_up_s(image, containers, world):.2f} s")
        result = client.transfer(job, fleet)
        assert (result.objects, result.encrypted) == (3, True)
        assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
        client.teardown(fleet)
        assert account.alive() == []
        for machine in world.machines:
            machine.wait_ended()
            assert "ending: all gateways have ended" in machine.console()


def is_well(image: images.Image, container: str) -> None:
    """Its health check passes, it is not root, and it can write below `/tmp` only."""
    (found,) = json.loads(image.podman("inspect", container))
    assert found["HostConfig"]["ReadonlyRootfs"] is True
    assert found["EffectiveCaps"] in ([], None)
    said = image.podman("exec", container, "/opt/skyplane/bin/skyplane-gateway", "health")
    assert said == "gateways that answer: 1\n"
    script = "id -u; touch /opt/skyplane/x 2>&1 || true; touch /tmp/x && rm /tmp/x && echo wrote"
    user, refusal, wrote = image.podman("exec", container, "sh", "-c", script).splitlines()
    assert (user, wrote) == ("10001", "wrote")
    assert "Read-only file system" in refusal


def start_up_s(image: images.Image, containers: list[dict[str, str]], world: World) -> float:
    """The longest time from the start of a container until it waits for its orchestrator."""
    shown = '{{.State.StartedAt.Format "2006-01-02T15:04:05.000Z07:00"}}'
    began = [
        dt.datetime.fromisoformat(image.podman("inspect", "--format", shown, one["Id"]).strip())
        for one in containers
    ]
    listening = [
        dt.datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=dt.UTC)
        for machine in world.machines
        for found in re.finditer(
            r"^(\S+ \S+) INFO \S+ \S+ waits for its", machine.console(), re.MULTILINE
        )
    ]
    assert len(began) == len(listening) == len(containers)
    # Containers and consoles are in no common order.
    pairs = zip(sorted(began), sorted(listening), strict=True)
    return max((there - start).total_seconds() for start, there in pairs)
