"""The documents of an enrolment, and its proof.

The orchestrator and the instance exchange lines of JSON over one TLS connection:

    orchestrator -> instance   EnrolmentChallenge
    instance -> orchestrator   Proof
    orchestrator -> instance   Delivery
    instance -> orchestrator   {}, or an error as `SkyplaneError.to_dict`
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.common.identifiers import wire_fleet_id
from skyplane_gateway.common.schema import decode, encode, parsed
from skyplane_gateway.config import GatewayConfig, require_hex_of_32_bytes

#: Version of the enrolment document and of the exchange; both ends need the same.
ENROLMENT_VERSION: Final = 1

#: Longest enrolment document on standard input; user data of EC2 has 16 KiB.
MOST_DOCUMENT_BYTES: Final = 64 << 10

#: Longest challenge, proof or error.
MOST_MESSAGE_BYTES: Final = 16 << 10

#: Longest delivery: certificates and configurations of 32 gateways with 500 neighbours each.
MOST_DELIVERY_BYTES: Final = 4 << 20

#: The URI name in the self-signed certificate of an instance that is not enrolled.
UNENROLLED_URI: Final = "skyplane://unenrolled"

_LABEL: Final = f"skyplane enrolment v{ENROLMENT_VERSION}"
_HIGHEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class EnrolmentDocument:
    """What an instance knows when it boots. Everybody may read it after the enrolment.

    Args:
        fleet_key: lower-case hex.
        instance: its name in the fleet, `region tag/index`.
        port: TCP port on which it waits for its orchestrator.
        start_within_s: how long it waits.
        authority_pem: certificate of the fleet's authority, valid as long as the gateways live.
        token_hex: 32 bytes that prove the instance to its orchestrator, once.

    Raises ConfigurationInvalid for a value that cannot be used.
    """

    fleet_key: str
    instance: str
    port: int
    start_within_s: float
    authority_pem: str
    token_hex: str = field(repr=False)

    def __post_init__(self) -> None:
        wire_fleet_id(self.fleet_key)
        require_hex_of_32_bytes("token_hex", self.token_hex)
        if not self.instance:
            raise ConfigurationInvalid("an enrolment needs the name of its instance")
        if not 0 <= self.port <= _HIGHEST_PORT:
            raise ConfigurationInvalid(f"port must be 0 to {_HIGHEST_PORT}, not {self.port}")
        if not 0 < self.start_within_s < math.inf:
            raise ConfigurationInvalid.about(
                "{start_within_s} must be positive and finite, not {given!r}",
                given=self.start_within_s,
            )

    def to_json(self) -> str:
        return json.dumps(encode(self, ENROLMENT_VERSION))

    @classmethod
    def from_json(cls, text: str) -> EnrolmentDocument:
        """Raises ConfigurationInvalid for a broken document, which it does not repeat."""
        what = "the enrolment document"
        return decode(cls, parsed(text, what), what, version=ENROLMENT_VERSION)


@dataclass(frozen=True, slots=True)
class EnrolmentChallenge:
    """32 random bytes, new for each connection. Raises ConfigurationInvalid for others."""

    challenge_hex: str

    def __post_init__(self) -> None:
        require_hex_of_32_bytes("challenge_hex", self.challenge_hex)


@dataclass(frozen=True, slots=True)
class Proof:
    """See `proof_of`."""

    proof_hex: str

    def __post_init__(self) -> None:
        require_hex_of_32_bytes("proof_hex", self.proof_hex)


@dataclass(frozen=True, slots=True)
class DeliveredGateway:
    """One gateway process of an instance.

    Args:
        config: its directory and its hosts are filled in by the instance.
        certificate_pem: for the instance's public key, with the gateway's URI name.
    """

    config: GatewayConfig
    certificate_pem: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """All gateways of an instance; node -> gateway."""

    gateways: Mapping[str, DeliveredGateway]


M = TypeVar("M", EnrolmentChallenge, Proof, Delivery)


def proof_of(
    token: bytes, *, fleet_key: str, instance: str, challenge: bytes, certificate_der: bytes
) -> bytes:
    """The HMAC-SHA256, 32 bytes, by which an instance proves that it knows its token.

    It covers the certificate of the instance's TLS connection, as `tls-server-end-point` of RFC
    5929 does: it is worth nothing to a peer with another key.
    """
    certificate = hashlib.sha256(certificate_der).hexdigest()
    message = json.dumps([_LABEL, fleet_key, instance, challenge.hex(), certificate])
    return hmac.digest(token, message.encode(), "sha256")


def message_of(kind: type[M], line: bytes) -> M:
    """The dataclass `kind` from a line. Raises ConfigurationInvalid for anything else."""
    what = f"the {kind.__name__.removeprefix('Enrolment').lower()} of the enrolment"
    return decode(kind, parsed(line, what), what)


def line_of(message: EnrolmentChallenge | Proof | Delivery) -> bytes:
    return json.dumps(encode(message)).encode() + b"\n"
