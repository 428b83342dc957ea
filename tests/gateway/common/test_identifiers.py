from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.identifiers import (
    gateway_uri,
    node_of_uri,
    orchestrator_uri,
    wire_fleet_id,
    wire_transfer_id,
)

KEY = "00112233445566778899aabbccddeeff"


@given(st.text(min_size=1).filter(lambda text: text.isprintable()))
def test_a_uri_names_its_node(node: str) -> None:
    uri = gateway_uri(KEY, node)
    assert node_of_uri(KEY, uri) == node
    assert node_of_uri("ff" * 16, uri) == ""
    assert uri.count("/") == 4, "a slash in a node is escaped"


def test_the_uri_of_the_orchestrator_names_no_node() -> None:
    assert node_of_uri(KEY, orchestrator_uri(KEY)) == ""
    assert gateway_uri(KEY, "orchestrator") != orchestrator_uri(KEY)


def test_ids_on_the_wire_are_prefixes_of_the_keys() -> None:
    assert wire_fleet_id(KEY) == bytes.fromhex("0011223344556677")
    assert wire_transfer_id(KEY) == bytes.fromhex(KEY)
    assert wire_transfer_id(KEY + "00") == bytes.fromhex(KEY)


@pytest.mark.parametrize("key", ["", "abc", "zz" * 16, "00" * 7, "../" * 12])
def test_an_invalid_key_is_refused(key: str) -> None:
    for call in (wire_fleet_id, wire_transfer_id):
        with pytest.raises(ConfigurationInvalid, match="hex"):
            call(key)
