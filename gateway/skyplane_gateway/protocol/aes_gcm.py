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
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import cryptography
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import AEADDecryptionContext, Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from skyplane_gateway.common.buffers import Buffer, total_bytes, unwritten
from skyplane_gateway.protocol.errors import FrameAltered, LocalProtocolError, NotEncrypted
from skyplane_gateway.protocol.messages import epoch_field
from skyplane_gateway.protocol.sealing import (
    SEAL_BYTES,
    SUITE_AES_256_GCM,
    SUITE_PLAIN,
    TAG_BYTES,
    Opening,
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
#: Room that `update_into` wants behind its result in cryptography 42, which Airflow 3.0 pins.
_ROOM_BYTES: Final = 15 if int(cryptography.__version__.split(".")[0]) < 43 else 0
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
        #: (incarnation, epoch) -> key; the latest used ones. Threads use it, too.
        self._subkeys: OrderedDict[tuple[bytes, bytes], AES] = OrderedDict()
        self._lock = threading.Lock()

    def seal(self, outer: bytes, body: Sequence[Buffer]) -> tuple[Buffer, ...]:
        counter = next(self._counter)
        if counter >= _MOST_MESSAGES:
            raise LocalProtocolError("a sender has sealed too many messages with one subkey")
        prologue = pack_prologue(SUITE_AES_256_GCM, self._incarnation, counter)
        subkey = self._subkey(self._incarnation, outer)
        context = Cipher(subkey, GCM(_NONCE.pack(counter))).encryptor()
        context.authenticate_additional_data(outer)
        hidden = memoryview(unwritten(total_bytes(body) + TAG_BYTES))
        end = 0
        for piece in body:
            end += context.update_into(piece, hidden[end:])
        context.finalize()
        hidden[end:] = context.tag
        return prologue, hidden

    def open(self, outer: bytes, sealed: memoryview) -> Opening:
        if len(sealed) < SEAL_BYTES:
            raise FrameAltered(f"sealed part of {len(sealed)} bytes is too short")
        suite, incarnation, counter, hidden = unpack_prologue(sealed)
        if suite == SUITE_PLAIN:
            raise NotEncrypted("message in plain text, but this transfer is encrypted")
        if suite != SUITE_AES_256_GCM:
            raise FrameAltered(f"message of suite {suite}, which is unknown")
        subkey = self._subkey(incarnation, outer)
        context = Cipher(subkey, GCM(_NONCE.pack(counter))).decryptor()
        context.authenticate_additional_data(outer)
        return _GcmOpening(context, hidden)

    def _subkey(self, incarnation: bytes, outer: bytes) -> AES:
        owner = incarnation, epoch_field(outer)
        with self._lock:
            known = self._subkeys.get(owner)
            if known is None:
                derivation = HKDF(SHA256(), KEY_BYTES, salt=owner[0], info=self._info + owner[1])
                known = self._subkeys[owner] = AES(derivation.derive(self._key))
                if len(self._subkeys) > _SUBKEYS_KEPT:
                    self._subkeys.popitem(last=False)
            self._subkeys.move_to_end(owner)
            return known


class _GcmOpening:
    def __init__(self, context: AEADDecryptionContext, hidden: memoryview) -> None:
        self._context = context
        self._body, self._tag = hidden[:-TAG_BYTES], hidden[-TAG_BYTES:]

    @property
    def left_bytes(self) -> int:
        return len(self._body)

    def take(self, count: int) -> memoryview:
        made = memoryview(unwritten(min(count, len(self._body))))
        self.take_into(made)
        return made

    def take_into(self, place: memoryview) -> None:
        roomy = memoryview(unwritten(len(place) + _ROOM_BYTES)) if _ROOM_BYTES else place
        self._context.update_into(self._body[: len(place)], roomy)
        if _ROOM_BYTES:
            place[:] = roomy[: len(place)]
        self._body = self._body[len(place) :]

    def finish(self) -> None:
        try:
            self._context.finalize_with_tag(bytes(self._tag))
        except InvalidTag:
            # The error of the library says nothing more.
            raise FrameAltered("a message was altered on its way, or has another key") from None
