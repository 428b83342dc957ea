from __future__ import annotations

import pytest
from tests.transfer.samples import fleet_of

from skyplane_orchestration.model.fleet import INTERNAL_HOST, GatewayHandle


@pytest.mark.parametrize(
    ("paths", "sources", "sinks"),
    [
        (["ab"], "a", "b"),
        (["arb", "ab"], "a", "b"),
        (["arb", "crd"], "ac", "bd"),
        (["a"], "a", "a"),
    ],
)
def test_sources_and_sinks(paths: list[str], sources: str, sinks: str) -> None:
    fleet = fleet_of(*paths)
    assert "".join(handle.node for handle in fleet.sources) == sources
    assert "".join(handle.node for handle in fleet.sinks) == sinks


def test_a_gateway_by_name() -> None:
    fleet = fleet_of("ab")
    assert fleet.gateway("b") is fleet.gateways[1]
    with pytest.raises(KeyError):
        fleet.gateway("z")


def test_a_fleet_holds_no_secret() -> None:
    """It travels through XCom: names, addresses and fingerprints only."""
    assert set(fleet_of("ab").to_dict()["gateways"][0]) == {
        "node",
        "region",
        "control",
        "data",
        "fingerprint",
        "details",
    }


def test_gateways_in_one_network_dial_their_internal_addresses() -> None:
    def gateway(region: str, host: str) -> GatewayHandle:
        details = {INTERNAL_HOST: host} if host else {}
        return GatewayHandle(
            f"{region}/0", region, ("192.0.2.1", 7601), ("192.0.2.1", 7602), "", details
        )

    dialed = gateway("gcp:us-east1", "10.0.0.1")
    assert dialed.data_for(gateway("gcp:us-west1", "10.0.0.2")) == ("10.0.0.1", 7602)
    for dialer in (gateway("gcp:us-west1", ""), gateway("aws:us-east-1", "10.0.0.2")):
        assert dialed.data_for(dialer) == dialer.data_for(dialed) == dialed.data
