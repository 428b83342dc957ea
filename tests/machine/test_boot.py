"""The boot script on real systems: their kernel, systemd, network and cloud-init.

The times that these tests print are those of emulated processors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
from tests.e2e import image_registry
from tests.e2e.conftest import filled
from tests.machine.guests import HOST_OF_GUESTS, PATIENCE_S, Guest, Guests
from tests.machine.roots import SYSTEMS, root_or_skip
from tests.provision.fleet.enrolling import KEY, SECRET, document_of
from tests.provision.fleet.machine_account import MachineAccount, MachineCloud

from skyplane_gateway.common.dialing import directly
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.fleet.software import write_bundle
from skyplane_orchestration.provision.fleet.user_data import BootSettings, user_data
from skyplane_orchestration.security.authority import Authority

if TYPE_CHECKING:
    from tests.e2e import image as images
    from tests.e2e.conftest import ClientKit, S3Server

    from skyplane_orchestration.provision.provisioner import Provisioner

pytestmark = [pytest.mark.machine, pytest.mark.root, pytest.mark.timeout(2 * PATIENCE_S)]

#: What the script says, in this order.
STARTED: Final = "Shutdown scheduled for"
WAITS: Final = "skyplane: waiting for the software"
INSTALLED: Final = "skyplane: starting the gateways"
ENROLS: Final = "waits for its"
OPTIONS: Final = InstanceOptions(
    ("127.0.0.1/32",),
    ready_timeout_s=PATIENCE_S,
    boot_timeout_s=PATIENCE_S,
    answer_timeout_s=120.0,
    end_timeout_s=300.0,
    poll_s=1.0,
)


@pytest.fixture(scope="module", params=["bundle", "image"])
def settings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BootSettings]:
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "bundle":
        path = folder / "bundle.zip"
        write_bundle(path)
        yield BootSettings(bundle=str(path))
        return
    image: images.Image = request.getfixturevalue("image")
    image.podman("push", "--quiet", image.reference, f"dir:{folder / 'image'}")
    with image_registry.serving(folder / "image") as name:
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


def print_times(guest: Guest, capsys: pytest.CaptureFixture[str]) -> None:
    booted, installed = guest.uptime_s(STARTED), guest.uptime_s(INSTALLED)
    enrols = guest.uptime_s(ENROLS)
    with capsys.disabled():
        print(
            f"\n{guest.system}: boot {booted:.0f} s, software {installed - booted:.0f} s,"
            f" start {enrols - installed:.0f} s"
        )


def test_two_systems_copy_and_end_by_their_power_buttons(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    guests: Guests,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = servers
    job = filled(servers, "push")
    systems = dict(zip((kit.SOURCE, kit.SINK), SYSTEMS, strict=True))
    provisioner, account = provisioner_of(guests, systems, BootSettings())
    client = kit.client(provisioner=provisioner)
    fleet = client.provision(kit.plan((kit.SOURCE, kit.SINK)))
    result = client.transfer(job, fleet)
    assert (result.objects, result.encrypted) == (3, True)
    assert destination.objects("push", "q/") == source.objects("push", "p/")
    client.teardown(fleet)
    assert account.alive() == []
    for guest in guests.all:
        guest.await_power_off()
        # First for the time of the setup, then for the hard end.
        assert guest.console().count(STARTED) == 2
        print_times(guest, capsys)


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
def test_one_machine_copies_and_ends_with_its_lease(
    system: str,
    settings: BootSettings,
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    guests: Guests,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = servers
    bucket = f"{system}-{settings.software}"
    job = filled(servers, bucket)
    region = kit.SOURCE
    job = replace(job, destination=replace(job.destination, region=region))
    provisioner, account = provisioner_of(guests, {region: system}, settings)
    client = kit.client(provisioner=provisioner)
    fleet = client.provision(kit.plan((region,)))
    assert client.transfer(job, fleet).objects == 3
    assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
    (guest,) = guests.all
    guest.await_power_off()
    assert "ending: all gateways have ended" in guest.console()
    client.teardown(fleet)
    assert account.alive() == []
    print_times(guest, capsys)


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_machine_that_nobody_reaches_ends_at_its_hard_end(system: str, guests: Guests) -> None:
    guest = guests.boot(root_or_skip(system), script(hard_end_s=60.0))
    guest.await_line(WAITS)
    guest.await_power_off()


@pytest.mark.nightly
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("button", ["power", "reset"])
def test_a_machine_powers_itself_off_by_either_button(
    button: str, system: str, guests: Guests
) -> None:
    guest = guests.boot(root_or_skip(system), script(hard_end_s=3600.0))
    guest.await_line(WAITS)
    guest.reset() if button == "reset" else guest.shut_down()
    guest.await_power_off()
    assert guest.console().count(WAITS) == 1


def script(hard_end_s: float) -> str:
    document = document_of(Authority(SECRET, KEY))
    return user_data(BootSettings(), replace(document, port=ENROLMENT_PORT), hard_end_s)
