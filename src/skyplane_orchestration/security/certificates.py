"""Certificates of a fleet: Ed25519 keys, X.509 (RFC 5280), one URI name each."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from skyplane_orchestration.errors import NotAuthorised
from skyplane_orchestration.units import SECONDS_PER_HOUR

#: Certificates are valid from this long ago, because clocks of machines differ.
BACKDATE_S: Final = SECONDS_PER_HOUR

#: Hex characters of a key id: 160 bits, within the values of every cloud's tags.
KEY_ID_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate with its private key, both PEM."""

    certificate_pem: str
    private_key_pem: str = field(repr=False)


class CertificateAuthority:
    """Issues certificates with one private key; `security.authority` documents the methods.

    Args:
        name: the common name.
        private_key: 32 bytes (RFC 8032).
    """

    def __init__(self, name: str, private_key: bytes, *, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._ca_key = Ed25519PrivateKey.from_private_bytes(private_key)
        # A common name holds at most 64 characters (RFC 5280, ub-common-name).
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])

    def own_certificate_pem(self, hard_end_unix_s: float) -> str:
        public_key = self._ca_key.public_key()
        builder = (
            self._builder(self._ca_name, public_key, hard_end_unix_s)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
        )
        return _certificate_pem(builder.sign(self._ca_key, algorithm=None))

    def issue(self, name_uri: str, validity_s: float) -> IssuedCertificate:
        key = Ed25519PrivateKey.generate()
        certificate = self._issue(key.public_key(), name_uri, validity_s)
        private_key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode()
        return IssuedCertificate(
            certificate_pem=_certificate_pem(certificate), private_key_pem=private_key_pem
        )

    def issue_for(self, public_key_der: bytes, name_uri: str, validity_s: float) -> str:
        key = serialization.load_der_public_key(public_key_der)
        assert isinstance(key, Ed25519PublicKey)  # `public_key_of` gives no other.
        return _certificate_pem(self._issue(key, name_uri, validity_s))

    def public_key_of(self, certificate_der: bytes) -> tuple[bytes, str]:
        try:
            key = x509.load_der_x509_certificate(certificate_der).public_key()
        except (ValueError, UnsupportedAlgorithm) as error:
            raise NotAuthorised(f"the certificate of the peer cannot be read: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise NotAuthorised("the key of the peer is not an Ed25519 key")
        der = key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return der, hashlib.sha256(der).hexdigest()[:KEY_ID_CHARACTERS]

    def _issue(
        self, public_key: Ed25519PublicKey, name_uri: str, validity_s: float
    ) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "skyplane")])
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name_uri)])
        builder = (
            self._builder(subject, public_key, self._wall_clock() + validity_s)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(names, critical=False)
        )
        return builder.sign(self._ca_key, algorithm=None)

    def client_context(self, own_uri: str, validity_s: float) -> ssl.SSLContext:
        context = self._context(own_uri, validity_s)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(
            cadata=self.own_certificate_pem(self._wall_clock() + validity_s)
        )
        return context

    def enrolment_context(self, own_uri: str, validity_s: float) -> ssl.SSLContext:
        context = self._context(own_uri, validity_s)
        # The server's certificate is self-signed. Its proof of the token covers it.
        context.verify_mode = ssl.CERT_NONE
        return context

    def _context(self, own_uri: str, validity_s: float) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        own = self.issue(own_uri, validity_s)
        # The ssl module reads certificates from named files only. An anonymous file has a name
        # under /proc, and a crash leaves no file.
        with _anonymous_file() as file:
            file.write(own.certificate_pem + own.private_key_pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def _builder(
        self, subject: x509.Name, public_key: Ed25519PublicKey, not_after_unix_s: float
    ) -> x509.CertificateBuilder:
        authority_key = self._ca_key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(_utc(self._wall_clock() - BACKDATE_S))
            .not_valid_after(_utc(not_after_unix_s))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key), critical=False
            )
        )


def _anonymous_file() -> IO[str]:
    """An empty file without a name; on the disk where Python lacks `memfd_create` (old glibc)."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("skyplane-client", os.MFD_CLOEXEC), "w", encoding="ascii")
    return tempfile.TemporaryFile("w", encoding="ascii")


def _utc(unix_s: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(unix_s), tz=dt.UTC)


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
