"""The certificate authority and the keys of a fleet, derived from the fleet secret.

Provision, transfer, trigger and teardown run on different workers, and no secret passes
between them. Every worker has the fleet secret. From it and the fleet key, each worker derives
the same authority key, hello keys and sealing keys with HKDF-SHA256 (RFC 5869; the fleet key is
the salt, with one info label per purpose).

`cryptography` is imported on first use: gateways inside this process need no certificates.
"""

from __future__ import annotations

import json
import secrets
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from skyplane_gateway.common.identifiers import gateway_uri, orchestrator_uri
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.security.private_files import config_path, kept_text
from skyplane_orchestration.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from skyplane_orchestration.security.certificates import CertificateAuthority, IssuedCertificate

#: Shortest fleet secret: 256 bits, as strong as the derived keys.
MINIMUM_SECRET_BYTES: Final = 32

#: Validity of an orchestrator's own certificate: longer than a fleet's default hard end.
CLIENT_VALIDITY_S: Final = 48.0 * SECONDS_PER_HOUR

_KEY_BYTES: Final = 32


def default_secret_path() -> Path:
    """`$XDG_CONFIG_HOME/skyplane-orch/secret`, by default in `~/.config`."""
    return config_path("secret")


@dataclass(frozen=True, slots=True)
class FleetSecret:
    """The secret that all workers of a deployment share: at least 32 bytes.

    Raises ConfigurationInvalid for a shorter secret.
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.value) < MINIMUM_SECRET_BYTES:
            raise ConfigurationInvalid(
                f"the fleet secret has {len(self.value)} bytes and needs at least"
                f" {MINIMUM_SECRET_BYTES}; make one with `openssl rand -hex 32`"
            )

    @classmethod
    def from_text(cls, text: str) -> FleetSecret:
        """The secret of a connection or a resource, without surrounding blanks."""
        return cls(text.strip().encode())

    @classmethod
    def from_file(cls, path: Path | None = None) -> FleetSecret:
        """The secret in a file of this user; the file is created on first use.

        Raises ConfigurationInvalid if others can read the file, if it belongs to another
        user, or if it cannot be read or created.
        """
        place = default_secret_path() if path is None else path
        give = "give the secret in the connection instead"
        make = partial(secrets.token_hex, _KEY_BYTES)
        return cls.from_text(kept_text(place, "the fleet secret", make, give))


class Authority:
    """The certificate authority and the keys of one fleet; another key gives an unrelated one."""

    def __init__(
        self, secret: FleetSecret, fleet_key: str, *, wall_clock: Callable[[], float] = time.time
    ) -> None:
        if not fleet_key:
            raise ConfigurationInvalid("a certificate authority needs a fleet key")
        self.fleet_key = fleet_key
        self._secret = secret
        self._wall_clock = wall_clock

    def __repr__(self) -> str:
        return f"Authority(fleet_key={self.fleet_key!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an authority holds the fleet secret, so it cannot be pickled")

    def hello_key(self, one: str, other: str) -> bytes:
        """The 32-byte key by which two neighbours authenticate each other, in either order."""
        return self._derive("hello", json.dumps(sorted((one, other))))

    def sealing_key(self, transfer_key: str, start_id: str) -> bytes:
        """The 32-byte key from which senders of a transfer derive their sealing subkeys.

        `start_id` is that of the fleet: a rebuilt fleet counts epochs and chunks from one again,
        and messages to its predecessor must not open.
        """
        return self._derive("sealing", json.dumps([transfer_key, start_id]))

    def enrolment_token(self, instance: str, launch_id: str) -> bytes:
        """The 32 bytes by which an instance proves itself once, after its launch.

        Other launches of the same instance have other tokens. From a token nobody can derive
        another key of the fleet.
        """
        return self._derive("enrolment", json.dumps([instance, launch_id]))

    @property
    def orchestrator_uri(self) -> str:
        """The URI name in the orchestrator's certificate."""
        return orchestrator_uri(self.fleet_key)

    def expected_uri(self, node: str) -> str:
        """The URI name in the certificate of gateway `node`."""
        return gateway_uri(self.fleet_key, node)

    def ca_certificate_pem(self, hard_end_unix_s: float) -> str:
        """The authority's own certificate, valid until `hard_end_unix_s`.

        Two workers make different certificates with the same name and key. Each verifies the
        certificates that the other has issued.
        """
        return self._certificates.own_certificate_pem(hard_end_unix_s)

    def issue(self, name_uri: str, validity_s: float) -> IssuedCertificate:
        """A certificate with a new key for `name_uri`, its only name; for servers and clients."""
        return self._certificates.issue(name_uri, validity_s)

    def issue_for(self, public_key_der: bytes, name_uri: str, validity_s: float) -> str:
        """A certificate, PEM, for a public key whose private key is elsewhere."""
        return self._certificates.issue_for(public_key_der, name_uri, validity_s)

    def public_key_of(self, certificate_der: bytes) -> tuple[bytes, str]:
        """The Ed25519 key in a certificate of any issuer, DER, and its id.

        The id is the first 40 hex characters of the SHA-256 of the key's SubjectPublicKeyInfo.
        Raises NotAuthorised for a broken certificate, or a key of another kind.
        """
        return self._certificates.public_key_of(certificate_der)

    def enrolment_context(self, validity_s: float = SECONDS_PER_HOUR) -> ssl.SSLContext:
        """As `client_context`, but it accepts every server.

        The caller must check the server's proof; see `provision.fleet.boot`.
        """
        return self._certificates.enrolment_context(self.orchestrator_uri, validity_s)

    def client_context(self, validity_s: float = CLIENT_VALIDITY_S) -> ssl.SSLContext:
        """The orchestrator's TLS context: TLS 1.3 with a new certificate.

        Gateways are reached by address, so the context checks no host name. The caller compares
        the peer's URI name with `expected_uri(node)`.
        """
        return self._certificates.client_context(self.orchestrator_uri, validity_s)

    @cached_property
    def _certificates(self) -> CertificateAuthority:
        from skyplane_orchestration.security.certificates import CertificateAuthority

        return CertificateAuthority(
            self.fleet_key, self._derive("authority key"), wall_clock=self._wall_clock
        )

    def _derive(self, label: str, context: str = "") -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        info = b"skyplane-orchestration v1 " + label.encode() + b"\0" + context.encode()
        derivation = HKDF(
            algorithm=SHA256(), length=_KEY_BYTES, salt=self.fleet_key.encode(), info=info
        )
        return derivation.derive(self._secret.value)
