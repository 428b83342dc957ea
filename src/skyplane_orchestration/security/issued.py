"""A certificate that an authority has issued."""

from __future__ import annotations

import hashlib
import ssl
from typing import NamedTuple


class IssuedCertificate(NamedTuple):
    """A certificate with its private key, both PEM."""

    certificate_pem: str
    private_key_pem: str

    def __repr__(self) -> str:
        return f"IssuedCertificate({fingerprint_of(self.certificate_pem)})"


def fingerprint_of(certificate_pem: str) -> str:
    """SHA-256 of the first certificate in a PEM text, over its DER form, in hex."""
    begin = certificate_pem.index("-----BEGIN CERTIFICATE-----")
    end_mark = "-----END CERTIFICATE-----"
    end = certificate_pem.index(end_mark, begin) + len(end_mark)
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate_pem[begin:end])).hexdigest()
