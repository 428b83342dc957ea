"""The address of this worker, by echoes on the loopback interface."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.connect_proxy import connect_proxy

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.fleet import egress_address as module
from skyplane_orchestration.provision.fleet.egress_address import egress_address
from skyplane_orchestration.provision.fleet.options import InstanceOptions


@contextmanager
def echo(text: bytes, status: int = 200) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


@pytest.mark.parametrize(
    ("said", "status", "complaint"),
    [
        (b"52.1.2.3\n", 200, ""),
        (b"10.1.2.3", 200, "which is no address of the internet"),
        (b"2001:db8::1", 200, "does not say an address of IPv4, but '2001:db8::1'"),
        (b"<html>" + b"x" * 100_000, 200, "does not say an address of IPv4, but '<html>xxx"),
        (b"52.1.2.3", 503, "HTTP 503"),
    ],
)
def test_the_first_good_answer_counts(
    said: bytes, status: int, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with echo(said, status) as first, echo(b"52.9.9.9") as second:
        monkeypatch.setattr(module, "PUBLIC_ECHOES", (first, second))
        assert egress_address((first, second)) == ("52.9.9.9" if complaint else "52.1.2.3")
        if complaint:
            with pytest.raises(CloudUnavailable, match=r"name the addresses .* control_cidrs") as e:
                egress_address((first,))
            assert complaint in e.value.message


def test_an_own_echo_may_tell_a_private_address() -> None:
    with echo(b"10.1.2.3") as url:
        assert egress_address((url,)) == "10.1.2.3"


def test_behind_a_proxy_its_address_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_PROXY has the echo's name, and not the addresses of gateways."""
    with connect_proxy(lambda *_: None) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url())
        monkeypatch.setenv("NO_PROXY", "echo.example")
        with pytest.raises(CloudUnavailable, match=r"the proxy .* 403 Forbidden"):
            egress_address(("https://echo.example/ip",))
    assert proxy.asked == [("echo.example", 443)]


def test_echoes_are_reached_by_https(monkeypatch: pytest.MonkeyPatch) -> None:
    for url in ("http://echo.example", "echo.example", "https://"):
        with pytest.raises(ConfigurationInvalid, match="egress_address_urls"):
            InstanceOptions(egress_address_urls=(url,))
    monkeypatch.setenv("SKYPLANE_EGRESS_ADDRESS_URLS", "https://a.example  https://b.example/x")
    assert InstanceOptions().egress_address_urls == ("https://a.example", "https://b.example/x")


@pytest.mark.parametrize("url", ["ftp://echo.example", "https://", "https://echo.example:99999/"])
def test_what_is_no_address_of_an_echo_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="egress_address_urls has"):
        module.check_echoes([url])
