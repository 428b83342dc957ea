"""Whether this worker can reach gateways on the internet, as far as can be told without one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import pytest

from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions
from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.fleet import worker_reach
from skyplane_orchestration.provision.fleet.machines import Machines, PublicHosts
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions

HOSTS: Final = PublicHosts("api.example", "web.example")
SUBSCRIPTION: Final = "01234567-89ab-cdef-0123-456789abcdef"
PROXY: Final = {"https": "http://user:hush@proxy.example:3128"}
#: Host and port -> the address that answers.
PUBLIC: Final = {("api.example", 443): "52.95.1.1", ("web.example", 80): "52.95.1.2"}


def found(
    monkeypatch: pytest.MonkeyPatch, answers: dict[tuple[str, int], str], proxies: dict[str, str]
) -> list[tuple[bool, bool, str]]:
    monkeypatch.setattr(
        worker_reach, "_answering", lambda host, port: answers.get((host, port), "")
    )
    monkeypatch.setattr(worker_reach, "getproxies", lambda: proxies)
    findings = worker_reach.worker_findings("aws", HOSTS)
    assert {one.name for one in findings} <= {"aws worker"}
    return [(one.is_ok, one.is_warning, one.text) for one in findings]


def test_a_worker_behind_a_proxy_is_told_what_that_has_to_allow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((is_ok, is_warning, text),) = found(monkeypatch, {}, PROXY)
    assert (is_ok, is_warning) == (True, True)
    assert "only through the proxy http://proxy.example:3128" in text
    assert "allow CONNECT to ports" in text
    assert "7600 to 7632" in text
    assert "hush" not in text


def test_a_worker_that_gets_out_by_443_only_is_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {("api.example", 443): "52.95.1.1"}
    for proxies in ({}, PROXY):
        ((is_ok, is_warning, text),) = found(monkeypatch, answers, proxies)
        assert (is_ok, is_warning) == (True, True)
        assert "port 443 only" in text
        assert "7600 to 7632" in text


@pytest.mark.parametrize("proxies", [{}, PROXY])
def test_a_worker_that_gets_out_is_told_which_ports_count(
    monkeypatch: pytest.MonkeyPatch, proxies: dict[str, str]
) -> None:
    ((is_ok, is_warning, text),) = found(monkeypatch, PUBLIC, proxies)
    assert (is_ok, is_warning) == (True, False)
    assert "7600 to 7632" in text


@pytest.mark.parametrize("answers", [{("api.example", 443): "10.0.0.9"}, {}])
def test_nothing_is_said_that_is_not_known(
    monkeypatch: pytest.MonkeyPatch, answers: dict[tuple[str, int], str]
) -> None:
    """An endpoint within the worker's own network; no way out at all, which other checks tell."""
    assert found(monkeypatch, answers, {}) == []


@pytest.mark.parametrize(
    ("cloud", "hosts"),
    [
        (AwsCloud(AwsOptions()), {"ec2.us-east-1.amazonaws.com"}),
        (AwsCloud(AwsOptions(regions=("aws:cn-north-1",))), {"ec2.cn-north-1.amazonaws.com.cn"}),
        (AwsCloud(AwsOptions(public_address=False)), ()),
        (AwsCloud(AwsOptions(endpoint_url="http://127.0.0.1:1")), ()),
        (GcpCloud(GcpOptions("my-project")), {"compute.googleapis.com", "storage.googleapis.com"}),
        (
            AzureCloud(AzureOptions(SUBSCRIPTION)),
            {"management.azure.com", "www.msftconnecttest.com"},
        ),
    ],
)
def test_each_cloud_names_hosts_that_are_on_the_internet_as_its_instances_are(
    cloud: Machines, hosts: Collection[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2"):
        monkeypatch.delenv(name, raising=False)
    assert set(cloud.public_hosts or ()) == set(hosts)
