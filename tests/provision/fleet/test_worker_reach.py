"""Whether this worker can reach gateways on the internet, as far as can be told without one."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest
from tests.connect_proxy import Way, connect_proxy

from skyplane_gateway.common.dialing import ProxyRefused
from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions
from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.fleet import worker_reach
from skyplane_orchestration.provision.fleet.machines import Machines, PublicHosts
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions

HOSTS: Final = PublicHosts("api.example", "web.example")
SUBSCRIPTION: Final = "01234567-89ab-cdef-0123-456789abcdef"
#: Host and port -> the address that answers.
PUBLIC: Final = {("api.example", 443): "52.95.1.1", ("web.example", 80): "52.95.1.2"}
ONLY_443: Final = {("api.example", 443): "52.95.1.1"}
RANGES: Final = InstanceOptions(("203.0.113.0/24",))
BY_443: Final = replace(RANGES, control_port=443)


@pytest.fixture(autouse=True)
def no_proxy_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def found(
    monkeypatch: pytest.MonkeyPatch,
    answers: dict[tuple[str, int], str],
    options: InstanceOptions = RANGES,
) -> list[tuple[bool, str]]:
    """(whether it is a warning, its text) of each finding about the way out."""
    monkeypatch.setattr(
        worker_reach, "_answering", lambda host, port: answers.get((host, port), "")
    )
    monkeypatch.setattr(AwsCloud, "public_hosts", HOSTS)
    findings = worker_reach.worker_findings([AwsCloud(AwsOptions())], options)
    assert {(one.name, one.is_ok) for one in findings} <= {("aws worker", True)}
    return [(one.is_warning, one.text) for one in findings]


def told_of(
    monkeypatch: pytest.MonkeyPatch,
    way: Way,
    options: InstanceOptions = RANGES,
    answer: bytes = b"",
) -> tuple[bool, str]:
    """The finding behind a real proxy. It is the way although this machine gets out otherwise."""
    with connect_proxy(way, answer) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url("user:hush"))
        ((is_warning, text),) = found(monkeypatch, PUBLIC, options)
        assert proxy.url() in text
    assert "hush" not in text
    return is_warning, text


@pytest.fixture
def listening() -> Iterator[tuple[str, int]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.mark.parametrize(("options", "port"), [(RANGES, 7600), (BY_443, 443)])
def test_a_proxy_that_allows_the_port_is_well(
    options: InstanceOptions,
    port: int,
    listening: tuple[str, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_warning, text = told_of(monkeypatch, lambda *_: listening, options)
    assert not is_warning
    assert f"lets calls to port {port} through" in text


def test_a_proxy_that_allows_443_alone_is_told_from_one_that_allows_neither(
    listening: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    is_warning, text = told_of(monkeypatch, lambda _, port: listening if port == 443 else None)
    assert is_warning
    assert "403 Forbidden" in text
    assert "it allows port 443, so set control_port: 443" in text

    def only_the_api(host: str, _: int) -> tuple[str, int] | None:
        return listening if host == HOSTS.api else None

    for options, wanted in ((RANGES, "ports 7600 to 7632"), (BY_443, "port 443")):
        is_warning, text = told_of(monkeypatch, only_the_api, options)
        assert is_warning
        assert f"let the proxy allow {wanted} of instances" in text
        assert "control_port" not in text


@pytest.mark.parametrize("is_silent", [True, False])
def test_silence_behind_a_proxy_is_no_refusal(
    is_silent: bool, listening: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for an address that does not answer, or says after a while that it does not."""
    asked = []

    def through(proxy: object, host: str, port: int, timeout_s: float) -> socket.socket:
        if host == HOSTS.api:
            return socket.create_connection(listening)
        asked.append((host, port))
        if is_silent:
            raise TimeoutError
        raise ProxyRefused("504 Gateway Timeout", 504)

    monkeypatch.setattr(worker_reach, "through", through)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    ((is_warning, text),) = found(monkeypatch, {})
    assert not is_warning
    assert "lets calls to port 7600 through" in text
    assert asked == [("8.8.8.8", 7600)]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 407 Proxy\r\n\r\n", b"SSH-2.0\r\n\r\n"])
def test_a_proxy_that_lets_nobody_through_is_told(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_warning, text = told_of(monkeypatch, lambda *_: None, answer=answer)
    assert is_warning
    assert "cannot be checked" in text


def test_a_proxy_of_another_kind_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:hush@proxy.example:1080")
    ((is_warning, text),) = found(monkeypatch, {})
    assert is_warning
    assert "socks5://proxy.example:1080" in text


def test_a_worker_that_gets_out_by_443_only_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((is_warning, text),) = found(monkeypatch, ONLY_443)
    assert is_warning
    assert "port 443 only" in text
    assert "set control_port: 443" in text
    assert "7600 to 7632" in text
    ((is_warning, text),) = found(monkeypatch, ONLY_443, BY_443)
    assert not is_warning


def test_a_worker_that_gets_out_is_told_which_ports_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ((is_warning, text),) = found(monkeypatch, PUBLIC)
    assert not is_warning
    assert "7600 to 7632" in text


@pytest.mark.parametrize("answers", [{("api.example", 443): "10.0.0.9"}, {}])
def test_nothing_is_said_that_is_not_known(
    monkeypatch: pytest.MonkeyPatch, answers: dict[tuple[str, int], str]
) -> None:
    """An endpoint within the worker's own network; no way out at all, which other checks tell."""
    assert found(monkeypatch, answers) == []


@pytest.mark.parametrize(
    ("told", "state", "says"),
    [
        (["52.1.1.1"], (True, False), "in at 52.1.1.1; if it gets out by another"),
        (["52.1.1.1", "52.2.2.2"], (True, True), "in at 52.1.1.1 and 52.2.2.2: its address"),
        ([], (False, False), "cannot be learnt; name the addresses"),
    ],
)
def test_the_address_that_is_let_in_is_told(
    told: list[str],
    state: tuple[bool, bool],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def learn(urls: Sequence[str]) -> str:
        if not told:
            raise CloudUnavailable("it cannot be learnt; name the addresses in control_cidrs")
        return told[0 if urls[0] == "https://a.example" else -1]

    monkeypatch.setattr(worker_reach, "_answering", lambda *_: "")
    monkeypatch.setattr(AwsCloud, "public_hosts", HOSTS)
    options = InstanceOptions(egress_address_urls=("https://a.example", "https://b.example"))
    (finding,) = worker_reach.worker_findings([AwsCloud(AwsOptions())], options, learn)
    assert finding.name == "worker address"
    assert (finding.is_ok, finding.is_warning) == state
    assert says in finding.text
    assert "control_cidrs" in finding.text


def test_instances_without_public_addresses_need_no_way_out() -> None:
    cloud = AwsCloud(AwsOptions(public_address=False))
    assert worker_reach.worker_findings([cloud], InstanceOptions()) == ()


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
