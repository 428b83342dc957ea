from __future__ import annotations

import pytest
from tests.transfer.samples import fleet_of


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
