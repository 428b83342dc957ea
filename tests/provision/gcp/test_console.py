"""The console of an instance."""

from __future__ import annotations

from collections.abc import Iterable

from tests.provision.gcp.harness import gcp_harness
from tests.provision.gcp.samples import a_request, prepared

from strict_clouds.firewall import IngressRule


class Talker:
    """A machine that has printed something."""

    address = "203.0.113.9"
    is_running = True

    def shut_down(self) -> None:
        self.is_running = False

    def cut_power(self) -> None:
        self.is_running = False

    def console(self) -> str:
        return "one\ntwo\nthrée\n"

    def allow(self, rules: Iterable[IngressRule]) -> None:
        pass


class Talkers:
    def boot(self, user_data: str, *, metadata_url: str = "") -> Talker:
        return Talker()


def test_the_end_of_the_output_is_read() -> None:
    with gcp_harness(Talkers()) as harness:
        cloud = prepared(harness.gcp())
        instance = cloud.launch(a_request())
        assert cloud.console_tail(instance, 1000) == "one\ntwo\nthrée\n"
        assert cloud.console_tail(instance, 7) == "thrée\n"
        assert cloud.console_tail(instance, 0) == ""


def test_a_stopped_instance_or_none_has_no_output() -> None:
    with gcp_harness(Talkers()) as harness:
        cloud = prepared(harness.gcp())
        instance = cloud.launch(a_request())
        harness.gce.power_off(instance.cloud_id)
        assert cloud.console_tail(instance, 1000) == ""
        cloud.terminate([instance])
        assert cloud.console_tail(instance, 1000) == ""


def test_the_web_console_shows_the_instances_of_the_project() -> None:
    with gcp_harness() as harness:
        url = harness.gcp().console_url("ab" * 16, "gcp:us-central1")
    assert url == "https://console.cloud.google.com/compute/instances?project=strict-project"
