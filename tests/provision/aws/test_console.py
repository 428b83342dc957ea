"""The end of the console output."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from tests.provision.aws.harness import AwsHarness, aws_harness
from tests.provision.aws.samples import REQUEST, prepared

from strict_clouds.firewall import IngressRule


class Talker:
    """A machine that says something on its console."""

    address = "127.0.0.1"

    is_running = True

    def shut_down(self) -> None:
        pass

    def cut_power(self) -> None:
        pass

    def allow(self, rules: Iterable[IngressRule]) -> None:
        pass

    def console(self) -> str:
        return "booting\nno such image: é\n"


class Talkers:
    def boot(self, user_data: str, *, metadata_url: str = "") -> Talker:
        assert user_data == REQUEST.user_data
        return Talker()


@pytest.mark.parametrize("old_types", [set(), {REQUEST.instance_type}])
def test_the_end_is_returned(old_types: set[str]) -> None:
    with aws_harness(Talkers()) as harness:
        harness.ec2.conditions.old_types = old_types
        cloud = prepared(harness.aws())
        instance = cloud.launch(REQUEST)
        assert cloud.console_tail(instance, 1000) == "booting\nno such image: é\n"
        assert cloud.console_tail(instance, 6) == "e: é\n"
        assert cloud.console_tail(instance, 0) == ""


def test_there_may_be_none(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    instance = cloud.launch(REQUEST)
    assert cloud.console_tail(instance, 1000) == ""
    assert cloud.console_tail(replace(instance, cloud_id="i-0000000000000000"), 1000) == ""


def test_the_web_console_shows_the_instances_with_the_fleets_tag(harness: AwsHarness) -> None:
    url = harness.aws().console_url("ab" * 16, "aws:eu-west-3")
    page, _, filters = url.partition("#")
    assert page == "https://eu-west-3.console.aws.amazon.com/ec2/home?region=eu-west-3"
    assert filters == f"Instances:tag:skyplane:fleet={'ab' * 16}"
