"""The boot script on real systems: their kernel, systemd, network and cloud-init.

The times that these tests print are those of emulated processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e import image_registry
from tests.e2e.conftest import filled
from tests.machine.guests import HOST_OF_GUESTS, PATIENCE_S, Guest, Guests
from tests.machine.roots import SYSTEMS, root_or_skip
from tests.provision.fleet.enrolling import KEY, SECRET, document_of
from tests.provision.fleet.machine_account import MachineAccount, MachineCloud

from skyplane_gateway.common.dialing import directly
from skyplane_orchestration.provision.fleet import user_data as boot_scripts
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.fleet.software import write_bundle
from skyplane_orchestration.provision.fleet.user_data import BootSettings, user_data
from skyplane_orchestration.security.authority import Authority
from skyplane_orchestration.units import SECONDS_PER_MINUTE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e import image as images
    from tests.e2e.conftest import ClientKit, S3Server

    from skyplane_orchestration.provision.provisioner import Provisioner

pytestmark = [pytest.mark.machine, pytest.mark.root, pytest.mark.timeout(2 * PATIENCE_S)]

STARTED: Final = "Shutdown scheduled for"
WAITS: Final = "skyplane: waiting for the software"
#: Part of the time from launch to ready -> what is in the console at its end.
ENDS_OF_PARTS: Final = {
    "boot": STARTED,
    "software": "skyplane: starting the gateways",
    "start": "waits for its orchestrator",
    "enrolment": "is ready: control",
}
OPTIONS: Final = InstanceOptions(
    ("127.0.0.1/32",),
    ready_timeout_s=PATIENCE_S,
    boot_timeout_s=PATIENCE_S,
    answer_timeout_s=120.0,
    end_timeout_s=300.0,
    poll_s=1.0,
)


@pytest.fixture(autouse=True)
def slow_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Emulated ones take ten times as long as a cloud's for packages and images."""
    monkeypatch.setattr(boot_scripts, "SETUP_MINUTES", int(PATIENCE_S // SECONDS_PER_MINUTE))


@pytest.fixture
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BootSettings]:
    if request.param == "push":
        yield BootSettings()
    elif request.param == "bundle":
        write_bundle(tmp_path / "bundle.zip")
        yield BootSettings(bundle=str(tmp_path / "bundle.zip"))
    else:
        image: images.Image = request.getfixturevalue("image")
        image.podman("push", "--quiet", image.reference, f"dir:{tmp_path / 'image'}")
        with image_registry.serving(tmp_path / "image") as name:
            yield BootSettings(image=name.replace("127.0.0.1", HOST_OF_GUESTS))


def provisioner_of(
    guests: Guests, systems: Mapping[str, str], settings: BootSettings
) -> tuple[Provisioner, MachineAccount]:
    """One whose instances are guests.

    Args:
        systems: region -> the system of its instances.
    """
    roots = {region: root_or_skip(system) for region, system in systems.items()}
    account = MachineAccount(
        boot=lambda request: guests.boot(roots[request.region], request.user_data)
    )
    clouds = Clouds([MachineCloud("aws", account, regions=tuple(systems))])
    boot = Boot(
        partial(user_data, settings),
        lambda one: partial(directly, one.address, ENROLMENT_PORT),
        timeout_s=120.0,
        software=lambda _: settings.pushed(),
    )
    return InstanceProvisioner(FleetContext(clouds, boot, OPTIONS)), account


def print_times(guest: Guest, settings: BootSettings, capsys: pytest.CaptureFixture[str]) -> None:
    ends_s = [0.0, *(guest.uptime_s(text) for text in ENDS_OF_PARTS.values())]
    parts = [
        f"{part} {end_s - begin_s:.0f} s"
        for part, (begin_s, end_s) in zip(ENDS_OF_PARTS, pairwise(ends_s), strict=True)
    ]
    with capsys.disabled():
        print(f"\n{guest.system} by {settings.software}: {', '.join(parts)}")


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ("push", "power button"),
        pytest.param("bundle", "lease", marks=pytest.mark.nightly),
        pytest.param("image", "lease", marks=pytest.mark.nightly),
    ],
    indirect=["settings"],
)
def test_two_systems_copy_and_power_themselves_off(
    settings: BootSettings,
    end: str,
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    guests: Guests,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = servers
    bucket = f"by-{settings.software}"
    job = filled(servers, bucket)
    systems = dict(zip((kit.SOURCE, kit.SINK), SYSTEMS, strict=True))
    provisioner, account = provisioner_of(guests, systems, settings)
    client = kit.client(provisioner=provisioner)
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    result = client.transfer(job, fleet)
    assert (result.objects, result.encrypted) == (3, True)
    assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
    if end == "power button":
        client.teardown(fleet)
    for guest in guests.all:
        guest.await_power_off()
        # First for the time of the setup, then for the hard end.
        assert guest.console().count(STARTED) == 2
        print_times(guest, settings, capsys)
    if end == "lease":
        assert all("ending: all gateways have ended" in guest.console() for guest in guests.all)
        client.teardown(fleet)
    assert account.alive() == []


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_machine_that_nobody_reaches_ends_at_its_hard_end(system: str, guests: Guests) -> None:
    # An emulated processor may take more than a minute from the schedule to the wait.
    guest = guests.boot(root_or_skip(system), script(hard_end_s=180.0))
    guest.await_line(WAITS)
    guest.await_power_off()


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_machine_that_is_reset_powers_itself_off(system: str, guests: Guests) -> None:
    guest = guests.boot(root_or_skip(system), script(hard_end_s=3600.0))
    guest.await_line(WAITS)
    guest.reset()
    guest.await_power_off()
    assert guest.console().count(WAITS) == 1


def script(hard_end_s: float) -> str:
    document = document_of(Authority(SECRET, KEY))
    return user_data(BootSettings(), replace(document, port=ENROLMENT_PORT), hard_end_s)
