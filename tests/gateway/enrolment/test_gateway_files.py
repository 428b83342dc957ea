from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.control.tls import server_context
from skyplane_gateway.enrolment.documents import DeliveredGateway, Delivery, EnrolmentDocument
from skyplane_gateway.enrolment.gateway_files import write_gateways
from skyplane_gateway.enrolment.identity import InstanceIdentity
from skyplane_gateway.main import read_config
from skyplane_orchestration.security.authority import Authority, FleetSecret

KEY = "ab" * 16
NODE = "aws:us-east-1/0"
NOW = dt.datetime.now(dt.UTC)
AUTHORITY = Authority(FleetSecret(b"the secret of all tests of this file"), KEY)
IDENTITY = InstanceIdentity.create(NOW)
DOCUMENT = EnrolmentDocument(
    fleet_key=KEY,
    instance=NODE,
    port=0,
    start_within_s=60.0,
    authority_pem=AUTHORITY.ca_certificate_pem(NOW.timestamp() + 60.0),
    token_hex="00" * 32,
)


def delivered(
    node: str = NODE, *, key: InstanceIdentity = IDENTITY, fleet_key: str = KEY, uri: str = ""
) -> DeliveredGateway:
    public_key, _ = AUTHORITY.public_key_of(key.certificate_der)
    config = GatewayConfig(
        node=node, fleet_key=fleet_key, control_host="", data_host="", directory="/etc"
    )
    return DeliveredGateway(
        config, AUTHORITY.issue_for(public_key, uri or AUTHORITY.expected_uri(node), 60.0)
    )


def write(root: Path, delivery: Delivery) -> dict[str, GatewayConfig]:
    return write_gateways(delivery, DOCUMENT, IDENTITY, root=root, address="10.0.0.7")


def test_a_gateway_can_start_from_its_files(tmp_path: Path) -> None:
    config = write(tmp_path, Delivery({NODE: delivered()}))[NODE]
    assert (config.control_host, config.data_host) == ("10.0.0.7", "10.0.0.7")
    directory = tmp_path / KEY / "aws:us-east-1%2F0"
    assert config.directory == str(directory)
    assert read_config(directory / "config.json", KEY) == config
    server_context(config)  # Key and certificate match.
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("gateways", "says"),
    [
        ({}, "no gateway"),
        ({"gcp:us-east1/0": delivered()}, "is that of aws"),
        ({NODE: delivered(fleet_key="cd" * 16)}, "in fleet cd"),
        ({NODE: delivered(key=InstanceIdentity.create(NOW))}, "for another key"),
        ({NODE: delivered(uri=AUTHORITY.orchestrator_uri)}, "in place of"),
        ({NODE: DeliveredGateway(delivered().config, "")}, "not one of the fleet's authority"),
        (
            {NODE: DeliveredGateway(delivered().config, IDENTITY.certificate_pem)},
            "not one of the fleet's authority",
        ),
        (
            {NODE: DeliveredGateway(delivered().config, DOCUMENT.authority_pem)},
            "not one of the fleet's authority",
        ),
    ],
)
def test_a_delivery_for_somebody_else_writes_nothing(
    gateways: dict[str, DeliveredGateway], says: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationInvalid, match=says):
        write(
            tmp_path,
            Delivery({f"{NODE}.1": delivered(f"{NODE}.1"), **gateways} if gateways else {}),
        )
    assert not list(tmp_path.iterdir())


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / KEY).touch()
    with pytest.raises(ConfigurationInvalid, match="cannot write"):
        write(tmp_path, Delivery({NODE: delivered()}))
