"""The key of an instance, its self-signed certificate, and checks of what it is given."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from skyplane_gateway.common.errors import ConfigurationInvalid
from skyplane_gateway.enrolment.documents import UNENROLLED_URI

#: Nobody checks the dates of the self-signed certificate: the proof covers it instead.
_VALIDITY: Final = dt.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """The Ed25519 key of an instance, which never leaves it.

    Args:
        certificate_pem, certificate_der: self-signed.
        key_pem: private key, PKCS 8.
    """

    certificate_pem: str
    certificate_der: bytes
    key_pem: str = field(repr=False)

    @classmethod
    def create(cls, now: dt.datetime) -> Self:
        key = Ed25519PrivateKey.generate()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skyplane instance")])
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(UNENROLLED_URI)])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALIDITY)
            .not_valid_after(now + _VALIDITY)
            .add_extension(names, critical=False)
            .sign(key, algorithm=None)
        )
        return cls(
            certificate_pem=certificate.public_bytes(serialization.Encoding.PEM).decode(),
            certificate_der=certificate.public_bytes(serialization.Encoding.DER),
            key_pem=key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )

    def require_own(self, certificate_pem: str, *, authority_pem: str, uri: str) -> None:
        """Raise ConfigurationInvalid unless a gateway of this instance can use a certificate.

        It must be for this key, from the fleet's authority, and carry the gateway's name.
        """
        own = x509.load_der_x509_certificate(self.certificate_der)
        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
            authority = x509.load_pem_x509_certificate(authority_pem.encode())
            certificate.verify_directly_issued_by(authority)
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            uris = names.value.get_values_for_type(x509.UniformResourceIdentifier)
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
            raise ConfigurationInvalid(
                f"the certificate for {uri} is not one of the fleet's authority: {error}"
            ) from error
        if certificate.public_key() != own.public_key():
            raise ConfigurationInvalid(f"the certificate for {uri} is for another key")
        if uris != [uri]:
            raise ConfigurationInvalid(f"a certificate for {uris} was sent in place of {uri}")
