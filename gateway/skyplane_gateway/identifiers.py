"""Names that both sides of the control API and of the wire must spell alike."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

from skyplane_gateway.errors import ConfigurationInvalid

_SCHEME: Final = "skyplane://"


def orchestrator_uri(fleet_key: str) -> str:
    """The URI name in the certificate of whoever steers the fleet."""
    return f"{_SCHEME}{fleet_key}/orchestrator"


def gateway_uri(fleet_key: str, node: str) -> str:
    """The URI name in a gateway's certificate."""
    return f"{_SCHEME}{fleet_key}/gateway/{quote(node, safe='')}"


def node_of_uri(fleet_key: str, uri: str) -> str:
    """The gateway that `gateway_uri` named; empty for any other URI."""
    prefix = f"{_SCHEME}{fleet_key}/gateway/"
    return unquote(uri[len(prefix) :]) if uri.startswith(prefix) else ""


def wire_fleet_id(fleet_key: str) -> bytes:
    """The 8 bytes that name the fleet on the wire.

    Raises:
        ConfigurationInvalid: the key is not hex, or too short.
    """
    return _front("fleet key", fleet_key, 8)


def wire_transfer_id(transfer_key: str) -> bytes:
    """The 16 bytes that name a transfer on the wire: the key itself.

    Raises:
        ConfigurationInvalid: the key is not hex, or too short.
    """
    return _front("transfer key", transfer_key, 16)


def _front(what: str, key: str, length: int) -> bytes:
    try:
        front = bytes.fromhex(key)[:length]
    except ValueError:
        front = b""
    if len(front) < length:
        raise ConfigurationInvalid(f"the {what} {key!r} is not the hex of {length} bytes or more")
    return front
