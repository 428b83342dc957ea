"""Suite 1: AES-256-GCM from source to sink (NIST SP 800-38D).

    subkey = HKDF-SHA256(key, salt = incarnation, info = label | purpose | epoch)
    nonce  = 4 zero bytes | counter u64

Each sender takes a random incarnation of 128 bits, so it has subkeys of its own. It counts its
messages from 0, so it never uses a nonce twice with one of them. The epoch is that of the outer
header: a new lead means new subkeys. Frames and receipts have different purposes, so a frame that
a relay sends back is not a receipt.
"""

from __future__ import annotations

import itertools
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol.errors import (
    FrameAltered,
    LocalProtocolError,
    NotEncrypted,
)
from skyplane_gateway.protocol.messages import epoch_field
from skyplane_gateway.protocol.sealing import (
    SEAL_BYTES,
    SUITE_AES_256_GCM,
    SUITE_PLAIN,
    Sealing,
    pack_prologue,
    unpack_prologue,
)

KEY_BYTES: Final = 32
INCARNATION_BYTES: Final = 16

_LABEL: Final = b"skyplane wire v1 aes-256-gcm "
_NONCE: Final = struct.Struct(">4xQ")
#: Messages of one subkey. SP 800-38D sets this limit for random nonces; a counter may go further.
_MOST_MESSAGES: Final = 1 << 32
#: Subkeys that are kept. A forged incarnation only costs one derivation.
_SUBKEYS_KEPT: Final = 256


def sealing_of(key: bytes, incarnation: bytes) -> Sealing:
    """The sealers of one end of a transfer.

    Args:
        key: 32 bytes that only the sources and sinks of the transfer have.
        incarnation: 16 random bytes, fresh for each call.
    """
    return Sealing(
        AesGcmSealer(key, incarnation, b"frames"), AesGcmSealer(key, incarnation, b"receipts")
    )


class AesGcmSealer:
    """Seals messages of one purpose, and opens those of other senders with the same key."""

    def __init__(self, key: bytes, incarnation: bytes, purpose: bytes) -> None:
        if len(key) != KEY_BYTES or len(incarnation) != INCARNATION_BYTES:
            raise LocalProtocolError(
                f"a sealing key has {KEY_BYTES} bytes and an incarnation {INCARNATION_BYTES}"
            )
        self._key = key
        self._info = _LABEL + purpose + b" "
        self._incarnation = incarnation
        self._counter = itertools.count()
        #: (incarnation, epoch) -> cipher; the latest used ones.
        self._subkeys: OrderedDict[tuple[bytes, bytes], AESGCM] = OrderedDict()

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        counter = next(self._counter)
        if counter >= _MOST_MESSAGES:
            raise LocalProtocolError("a sender has sealed too many messages with one subkey")
        prologue = pack_prologue(SUITE_AES_256_GCM, self._incarnation, counter)
        subkey = self._subkey(self._incarnation, outer)
        return prologue, subkey.encrypt(_NONCE.pack(counter), b"".join(body), outer)

    def open(self, outer: bytes, sealed: memoryview) -> memoryview:
        if len(sealed) < SEAL_BYTES:
            raise FrameAltered(f"sealed part of {len(sealed)} bytes is too short")
        suite, incarnation, counter, hidden = unpack_prologue(sealed)
        if suite == SUITE_PLAIN:
            raise NotEncrypted("message in plain text, but this transfer is encrypted")
        if suite != SUITE_AES_256_GCM:
            raise FrameAltered(f"message of suite {suite}, which is unknown")
        try:
            body = self._subkey(incarnation, outer).decrypt(_NONCE.pack(counter), hidden, outer)
        except InvalidTag:
            # The error of the library says nothing more.
            raise FrameAltered("a message was altered on its way, or has another key") from None
        return memoryview(body)

    def _subkey(self, incarnation: bytes, outer: bytes) -> AESGCM:
        owner = incarnation, epoch_field(outer)
        known = self._subkeys.get(owner)
        if known is None:
            known = self._subkeys[owner] = self._derived(*owner)
            if len(self._subkeys) > _SUBKEYS_KEPT:
                self._subkeys.popitem(last=False)
        self._subkeys.move_to_end(owner)
        return known

    def _derived(self, incarnation: bytes, epoch: bytes) -> AESGCM:
        derivation = HKDF(SHA256(), KEY_BYTES, salt=incarnation, info=self._info + epoch)
        return AESGCM(derivation.derive(self._key))
