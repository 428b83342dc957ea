"""TLS contexts of a gateway: TLS 1.3 only, both ends show a certificate of the fleet."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.errors import NotAuthorised
from skyplane_gateway.identifiers import node_of_uri, orchestrator_uri


def server_context(config: GatewayConfig) -> ssl.SSLContext:
    """Serves with the gateway's certificate and demands one of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return _prepare(context, config)


def client_context(config: GatewayConfig) -> ssl.SSLContext:
    """Calls other gateways with the gateway's own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # Addresses are bare IPs; the caller compares the URI name.
    return _prepare(context, config)


def _prepare(context: ssl.SSLContext, config: GatewayConfig) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=str(config.authority_path))
    context.load_cert_chain(str(config.certificate_path))
    return context


@dataclass(frozen=True, slots=True)
class Caller:
    """Who made a call: the orchestrator, or the gateway `node`."""

    node: str = ""

    @property
    def is_orchestrator(self) -> bool:
        return not self.node


def caller_of(certificate: dict[str, Any] | None, fleet_key: str) -> Caller:
    """Read the caller from its verified certificate.

    Raises:
        NotAuthorised: no certificate, or one of another fleet.
    """
    names = [v for kind, v in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    if orchestrator_uri(fleet_key) in names:
        return Caller()
    for name in names:
        node = node_of_uri(fleet_key, name)
        if node:
            return Caller(node=node)
    raise NotAuthorised("the certificate does not belong to this fleet")
