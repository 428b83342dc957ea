from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.config import GatewayConfig, Route, Topology
from skyplane_gateway.errors import ConfigurationInvalid


def test_a_topology_knows_its_ends() -> None:
    routes = (
        Route(0, ("a", "r", "b"), (1, 1), 1.0),
        Route(1, ("a", "c"), (1,), 1.0),
        Route(2, ("d", "b"), (1,), 1.0),
    )
    topology = Topology(routes, {}, {})
    assert (topology.sources, topology.sinks) == (("a", "d"), ("b", "c"))


@pytest.mark.parametrize(
    ("nodes", "connections", "share_gbps"),
    [
        ((), (), 1.0),
        (("a", "b"), (), 1.0),
        (("a", "b"), (1, 1), 1.0),
        (("a", "b", "a"), (1, 1), 1.0),
        (("a", "b"), (0,), 1.0),
        (("a", "b"), (65,), 1.0),
        (("a", "b"), (1,), 0.0),
        (("a", "b"), (1,), -1.0),
        (("a", "b"), (1,), float("nan")),
        (("a", "b"), (1,), float("inf")),
    ],
)
def test_a_route_that_cannot_be_is_refused(
    nodes: tuple[str, ...], connections: tuple[int, ...], share_gbps: float
) -> None:
    with pytest.raises(ConfigurationInvalid, match="route 7"):
        Route(7, nodes, connections, share_gbps)


@pytest.mark.parametrize(
    "bad",
    [
        {"start_within_s": 0.0},
        {"lease_s": -1.0},
        {"hard_end_s": 0.0},
        {"ack_deadline_s": 0.0},
        {"assembly_mib": 0},
        {"readers": 0},
        {"store_threads": 0},
        {"hello_key_hex": "00"},
        {"hello_key_hex": "not hex at all"},
    ],
)
def test_a_gateway_that_could_do_nothing_is_refused(bad: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "node": "a",
        "fleet_key": "ab" * 16,
        "control_host": "127.0.0.1",
        "data_host": "127.0.0.1",
        "directory": "/nowhere",
        "hello_key_hex": "00" * 32,
        **bad,
    }
    with pytest.raises(ConfigurationInvalid, match=next(iter(bad))):
        GatewayConfig(**fields)
