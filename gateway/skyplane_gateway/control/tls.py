"""TLS contexts of a gateway: TLS 1.3 only, both sides show a certificate of the fleet."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.errors import NotAuthorised
from skyplane_gateway.identifiers import node_of_uri, orchestrator_uri


def server_context(config: GatewayConfig) -> ssl.SSLContext:
    """For the server: demands a certificate of the fleet's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return _prepare(context, config)


def client_context(config: GatewayConfig) -> ssl.SSLContext:
    """For calls to other gateways, with this gateway's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # The client checks the URI name: addresses are bare IPs.
    return _prepare(context, config)


def _prepare(context: ssl.SSLContext, config: GatewayConfig) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=str(config.authority_path))
    context.load_cert_chain(str(config.certificate_path))
    return context


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request: the gateway `node`, or the orchestrator."""

    node: str = ""

    @property
    def is_orchestrator(self) -> bool:
        return not self.node


def caller_of(certificate: dict[str, Any] | None, fleet_key: str) -> Caller:
    """The caller named by its certificate of this fleet. Raises NotAuthorised otherwise."""
    names = [v for kind, v in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    if orchestrator_uri(fleet_key) in names:
        return Caller()
    for name in names:
        node = node_of_uri(fleet_key, name)
        if node:
            return Caller(node=node)
    raise NotAuthorised("the certificate does not belong to this fleet")
