"""TLS contexts of a gateway: TLS 1.3 only, both sides show a certificate of the fleet."""

from __future__ import annotations

import ssl

from skyplane_gateway.config import GatewayConfig


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
