"""The end of the console output of instances, and their page in the web console."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import pytest
from tests.provision.aws.harness import aws_harness
from tests.provision.aws.samples import REQUEST
from tests.provision.fleet.cloud_harness import CloudHarness
from tests.provision.fleet.cloud_harnesses import HARNESSES
from tests.provision.gcp.harness import gcp_harness

from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.fleet.machines import Instance, Machines
from strict_clouds.arm import SUBSCRIPTION
from strict_clouds.firewall import IngressRule

KEY: Final = "ab" * 16
clouds = pytest.mark.parametrize("cloud", HARNESSES)


class Talker:
    """A machine that says something on its console."""

    address = "127.77.0.1"
    is_running = True

    def shut_down(self) -> None: ...

    def cut_power(self) -> None: ...

    def allow(self, rules: Iterable[IngressRule]) -> None: ...

    def console(self) -> str:
        return "booting\nno such image: é\n"


class Talkers:
    def boot(self, user_data: str, *, metadata_url: str = "") -> Talker:
        return Talker()


def launched(harness: CloudHarness) -> tuple[Machines, Instance]:
    cloud, region = harness.worker(), harness.region
    request = replace(
        REQUEST, region=region, instance=f"{region}/0", instance_type=harness.instance_type
    )
    cloud.create_firewalls(request.tags, [region])
    return cloud, cloud.launch(request)


@clouds
def test_the_end_is_returned(cloud: str) -> None:
    with HARNESSES[cloud](Talkers()) as harness:
        machines, instance = launched(harness)
        assert machines.console_tail(instance, 1000) == "booting\nno such image: é\n"
        assert machines.console_tail(instance, 6) == "e: é\n"
        assert machines.console_tail(instance, 0) == ""


@clouds
def test_there_may_be_none(cloud: str) -> None:
    with HARNESSES[cloud]() as harness:
        machines, instance = launched(harness)
        assert machines.console_tail(instance, 1000) == ""
        gone = replace(instance, cloud_id=harness.unknown_id(instance))
        assert machines.console_tail(gone, 1000) == ""


def test_old_types_of_aws_tell_what_was_copied() -> None:
    with aws_harness(Talkers()) as harness:
        harness.ec2.conditions.old_types = {REQUEST.instance_type}
        machines, instance = launched(harness)
        assert machines.console_tail(instance, 6) == "e: é\n"


def test_a_stopped_instance_of_google_has_no_output() -> None:
    with gcp_harness(Talkers()) as harness:
        machines, instance = launched(harness)
        harness.gce.power_off(instance.cloud_id)
        assert machines.console_tail(instance, 1000) == ""


@pytest.mark.parametrize(
    ("cloud", "region", "url"),
    [
        (
            "aws",
            "aws:eu-west-3",
            "https://eu-west-3.console.aws.amazon.com/ec2/home?region=eu-west-3"
            f"#Instances:tag:skyplane:fleet={KEY}",
        ),
        (
            "gcp",
            "gcp:us-central1",
            "https://console.cloud.google.com/compute/instances?project=strict-project",
        ),
        # Another Resource Manager has another portal.
        ("azure", "azure:westeurope", ""),
    ],
)
def test_the_web_console_shows_the_instances(cloud: str, region: str, url: str) -> None:
    with HARNESSES[cloud]() as harness:
        assert harness.worker().console_url(KEY, region) == url


def test_the_portal_shows_the_resource_group() -> None:
    url = AzureCloud(AzureOptions(SUBSCRIPTION)).console_url(KEY, "azure:westeurope")
    place = f"subscriptions/{SUBSCRIPTION}/resourceGroups/skyplane-{KEY}"
    assert url == f"https://portal.azure.com/#resource/{place}/overview"
