from __future__ import annotations

import json
from typing import Any

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.config import AttachOrder, GatewayConfig, Route, Topology
from skyplane_gateway.transport.link import WRITE_TIMEOUT_S


def test_sources_and_sinks_of_a_topology() -> None:
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
def test_an_invalid_route_is_refused(
    nodes: tuple[str, ...], connections: tuple[int, ...], share_gbps: float
) -> None:
    with pytest.raises(ConfigurationInvalid, match="route 7"):
        Route(7, nodes, connections, share_gbps)


def config(**settings: Any) -> GatewayConfig:
    fields: dict[str, Any] = {
        "node": "a",
        "fleet_key": "ab" * 16,
        "control_host": "127.0.0.1",
        "data_host": "127.0.0.1",
        "directory": "/nowhere",
        "hello_keys_hex": {"b": "00" * 32},
        **settings,
    }
    return GatewayConfig(**fields)


@pytest.mark.parametrize(
    "bad",
    [
        {"start_within_s": 0.0},
        {"lease_s": -1.0},
        {"hard_end_s": 0.0},
        {"ack_deadline_s": 0.0},
        {"ack_deadline_s": float("inf")},
        {"stall_deadline_s": 0.0},
        {"stall_deadline_s": 119.0},
        {"stall_deadline_s": float("nan")},
        {"write_timeout_s": 0.0},
        {"write_timeout_s": -1.0},
        {"assembly_mib": 0},
        {"readers": 0},
        {"readers": 2.0},
        {"store_threads": 0},
        {"hello_keys_hex": {"b": "00"}},
        {"hello_keys_hex": {"b": "not hex at all"}},
    ],
)
def test_an_invalid_setting_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationInvalid, match=next(iter(bad))):
        config(**bad)


def test_the_stall_deadline_is_twice_the_ack_deadline_by_default() -> None:
    assert config().stalled_after_s == 240.0
    assert config(ack_deadline_s=4.0).stalled_after_s == 8.0
    assert config(ack_deadline_s=4.0, stall_deadline_s=4.0).stalled_after_s == 4.0


def test_a_configuration_survives_its_json_form() -> None:
    for given in (config(), config(stall_deadline_s=900.0, write_timeout_s=5.0)):
        assert GatewayConfig.from_dict(json.loads(json.dumps(given.to_dict()))) == given


def test_the_default_write_timeout_is_that_of_a_link() -> None:
    assert config().write_timeout_s == WRITE_TIMEOUT_S


def test_the_order_to_attach_keeps_its_names_and_shows_no_secret() -> None:
    """A gateway of the last release would take a key of another name for none, and not encrypt."""
    credentials = Credentials({"access_key_id": "hush"})
    store = StoreSpec("memory", "b")
    order = AttachOrder(1, "source", store, credentials, bytes_per_s=5.0, sealing_key="ab" * 32)
    document = json.loads(json.dumps(order.to_dict()))
    assert document == {
        "epoch": 1,
        "side": "source",
        "store": store.to_dict(),
        "credentials": {"access_key_id": "hush"},
        "verify": "stored",
        "bytes_per_s": 5.0,
        "sealing_key": "ab" * 32,
        "tried_prefix": "",
        "group": None,
    }
    assert AttachOrder.from_dict(document) == order
    assert "hush" not in repr(order)
    assert "abab" not in repr(order)
    for name, value in (
        ("sealing_key", "hush"),
        ("sealing_key", ["hush"]),
        ("credentials", "hush"),
    ):
        with pytest.raises(ConfigurationInvalid, match=name) as caught:
            AttachOrder.from_dict({**document, name: value})
        assert "hush" not in caught.value.message
