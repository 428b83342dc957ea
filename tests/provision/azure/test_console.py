"""The console output of Azure's machines."""

from __future__ import annotations

from dataclasses import replace

from tests.provision.azure.harness import AzureHarness, azure_harness
from tests.provision.azure.samples import a_request, prepared

from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from strict_clouds.arm import SUBSCRIPTION


class _Machine:
    """A machine that only prints."""

    address = "127.77.0.1"
    is_running = True

    def shut_down(self) -> None: ...

    def cut_power(self) -> None: ...

    def console(self) -> str:
        return "first line\nlast line\n"

    def allow(self, rules: object) -> None: ...


class _Machines:
    def boot(self, user_data: str, *, metadata_url: str = "") -> _Machine:
        return _Machine()


def test_the_end_of_the_console_is_read() -> None:
    with azure_harness(_Machines()) as harness:
        cloud = prepared(harness.azure())
        launched = cloud.launch(a_request())
        assert cloud.console_tail(launched, 10) == "last line\n"
        assert cloud.console_tail(launched, 1000) == "first line\nlast line\n"
        assert cloud.console_tail(launched, 0) == ""


def test_without_output_it_is_empty(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    launched = cloud.launch(a_request())
    assert cloud.console_tail(launched, 10) == ""
    assert cloud.console_tail(replace(launched, cloud_id="gw-none/0"), 10) == ""


def test_the_portal_shows_the_resource_group() -> None:
    url = AzureCloud(AzureOptions(SUBSCRIPTION)).console_url("ab" * 16, "azure:westeurope")
    place = f"subscriptions/{SUBSCRIPTION}/resourceGroups/skyplane-{'ab' * 16}"
    assert url == f"https://portal.azure.com/#resource/{place}/overview"


def test_another_resource_manager_has_another_portal(harness: AzureHarness) -> None:
    assert harness.azure().console_url("ab" * 16, "azure:westeurope") == ""
