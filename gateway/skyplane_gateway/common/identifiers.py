"""Identifiers of certificates and of the wire, shared by gateways and orchestrator."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from skyplane_gateway.common.errors import ConfigurationInvalid

_SCHEME: Final = "skyplane://"


def orchestrator_uri(fleet_key: str) -> str:
    """The URI name in an orchestrator's certificate."""
    return f"{_SCHEME}{fleet_key}/orchestrator"


def gateway_uri(fleet_key: str, node: str) -> str:
    """The URI name in a gateway's certificate."""
    return f"{_SCHEME}{fleet_key}/gateway/{quote(node, safe='')}"


def node_of_uri(fleet_key: str, uri: str) -> str:
    """The node of a gateway's URI; empty for any other URI."""
    key, node = gateway_of_uri(uri)
    return node if key == fleet_key else ""


def gateway_of_uri(uri: str) -> tuple[str, str]:
    """The fleet key and the node of a gateway's URI; both empty for any other URI."""
    key, found, node = uri.removeprefix(_SCHEME).partition("/gateway/")
    return (key, unquote(node)) if found and uri.startswith(_SCHEME) else ("", "")


def wire_fleet_id(fleet_key: str) -> bytes:
    """The fleet id on the wire, 8 bytes. Raises ConfigurationInvalid for a broken key."""
    return _prefix("fleet key", fleet_key, 8)


def wire_transfer_id(transfer_key: str) -> bytes:
    """The transfer id on the wire, 16 bytes. Raises ConfigurationInvalid for a broken key."""
    return _prefix("transfer key", transfer_key, 16)


def _prefix(what: str, key: str, length: int) -> bytes:
    try:
        prefix = bytes.fromhex(key)[:length]
    except ValueError:
        prefix = b""
    if len(prefix) < length:
        raise ConfigurationInvalid(f"the {what} {key!r} is not the hex of {length} bytes or more")
    return prefix
