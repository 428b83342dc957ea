"""The directories of an instance's gateways."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.identifiers import gateway_uri
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.enrolment.documents import DeliveredGateway, Delivery, EnrolmentDocument
from skyplane_gateway.enrolment.identity import InstanceIdentity


def write_gateways(
    delivery: Delivery,
    document: EnrolmentDocument,
    identity: InstanceIdentity,
    *,
    root: Path,
    address: str,
) -> dict[str, GatewayConfig]:
    """Write `config.json`, `gateway.pem` and `authority.pem` of each gateway; their configurations.

    Args:
        root: a private directory.
        address: of the instance; gateways listen there whose configuration names no other.

    Raises ConfigurationInvalid for a delivery that cannot be used, or files that cannot be
    written.
    """
    if not delivery.gateways:
        raise ConfigurationInvalid("the delivery has no gateway")
    for node, gateway in delivery.gateways.items():
        config = gateway.config
        if (config.node, config.fleet_key) != (node, document.fleet_key):
            raise ConfigurationInvalid(
                f"the configuration for {node} is that of {config.node} in fleet {config.fleet_key}"
            )
        identity.require_own(
            gateway.certificate_pem,
            authority_pem=document.authority_pem,
            uri=gateway_uri(document.fleet_key, node),
        )
    # The last gateway that ends removes this directory, but not the root.
    fleet = root / document.fleet_key
    try:
        return {
            node: _write(fleet / quote(node, safe=":"), gateway, document, identity, address)
            for node, gateway in delivery.gateways.items()
        }
    except OSError as error:
        raise ConfigurationInvalid(
            f"the instance cannot write the files of its gateways: {error}"
        ) from error


def _write(
    directory: Path,
    gateway: DeliveredGateway,
    document: EnrolmentDocument,
    identity: InstanceIdentity,
    address: str,
) -> GatewayConfig:
    # The hosts are named where an instance has an address of its own for data.
    config = replace(
        gateway.config,
        directory=str(directory),
        control_host=gateway.config.control_host or address,
        data_host=gateway.config.data_host or address,
    )
    files: Mapping[Path, str] = {
        config.certificate_path: gateway.certificate_pem + identity.key_pem,
        config.authority_path: document.authority_pem,
        config_path(config): json.dumps(config.to_dict(), indent=1) + "\n",
    }
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, text in files.items():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    return config


def config_path(config: GatewayConfig) -> Path:
    """The file that holds a gateway's configuration."""
    return Path(config.directory) / "config.json"
