"""Signs the runs of a manifest with an Ed25519 key, and checks their signatures.

A signature covers what the pointer says of a run and of its segments, with the digests of their
files. So it holds for every row that the run left.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from skyplane_gateway.common.schema import encode
from skyplane_gateway.common.wording import FieldName
from skyplane_gateway.manifest.document import Pointer, Snapshot
from skyplane_orchestration.errors import ConfigurationInvalid

#: Of one run; `unchecked` without a key to check by.
SignatureState = Literal["signed", "unsigned", "wrong", "unchecked"]

_VARIABLE: Final = "env:"
_HALVES: Final[Mapping[str, Any]] = {"private": Ed25519PrivateKey, "public": Ed25519PublicKey}


@dataclass(frozen=True, slots=True)
class ManifestKey:
    """A key: its private half signs, its public half checks.

    A reference is a PEM file, or `env:NAME`: the variable that has its text.
    """

    public: Ed25519PublicKey
    private: Ed25519PrivateKey | None = None

    @classmethod
    def for_signing(cls, reference: str) -> Self:
        """Raises ConfigurationInvalid."""
        private = _loaded("manifest_key", "private", reference)
        return cls(private.public_key(), private)

    @classmethod
    def for_checks(cls, reference: str) -> Self:
        """Raises ConfigurationInvalid."""
        return cls(_loaded("public_key", "public", reference))

    def sign(self, pointer: Pointer, snapshot: Snapshot) -> str:
        assert self.private is not None  # `for_signing` has made it.
        return b64encode(self.private.sign(_signed(pointer, snapshot))).decode()

    def state_of(self, pointer: Pointer, snapshot: Snapshot) -> SignatureState:
        """Whether this key has signed a run as the pointer has it."""
        if not snapshot.signature:
            return "unsigned"
        try:
            signature = b64decode(snapshot.signature, validate=True)
            self.public.verify(signature, _signed(pointer, snapshot))
        except (InvalidSignature, ValueError):
            return "wrong"
        return "signed"


def _signed(pointer: Pointer, snapshot: Snapshot) -> bytes:
    document = {
        "place": pointer.place,
        "run": encode(replace(snapshot, signature="")),
        "segments": [encode(one) for one in pointer.segments_of(snapshot)],
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _loaded(field: str, half: str, reference: str) -> Any:
    why, key = f"is no {half} Ed25519 key in PEM without a passphrase", None
    try:
        if reference.startswith(_VARIABLE):
            text = os.environ[reference.removeprefix(_VARIABLE)].encode()
        else:
            text = Path(reference).expanduser().read_bytes()
        key = load_pem_public_key(text) if half == "public" else load_pem_private_key(text, None)
    except KeyError:
        why = "cannot be read: the variable is not set"
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    except (ValueError, TypeError, UnsupportedAlgorithm):
        pass
    if isinstance(key, _HALVES[half]):
        return key
    # A key in the place of its reference is not to be shown.
    given = repr("-----BEGIN..." if "-----BEGIN" in reference else reference)
    what = FieldName(field)
    raise ConfigurationInvalid.about("{what} {given} {why}", what=what, given=given, why=why)
