"""The incarnation of a hop: tells which connections were dialed together.

When one connection breaks, the dialer builds all connections of the hop again. The
acceptor may see a new connection before it sees that an old one is closed, because TCP
does not order them. So the dialer writes its incarnation into the HELLO's nonce, which
both proofs cover:

    started u48 | count u24 | random, 7 bytes

`started` is the start of the dialing process, in 1/65536 s since 1970. `count` is the
number of incarnations that the process has begun. Seven random bytes make the nonce
unpredictable; an attacker cannot collect 2**56 proofs.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.protocol.limits import NONCE_BYTES

_STARTED_BYTES: Final = 6
_COUNT_BYTES: Final = 3
_TICKS_PER_S: Final = 1 << 16
_RANDOM_BYTES: Final = NONCE_BYTES - _STARTED_BYTES - _COUNT_BYTES


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One set of connections of a hop; a later incarnation compares greater."""

    started: int
    count: int

    def nonce(self, rng: random.Random) -> bytes:
        """A fresh nonce for one connection of this incarnation."""
        return (
            self.started.to_bytes(_STARTED_BYTES, "big")
            + self.count.to_bytes(_COUNT_BYTES, "big")
            + rng.randbytes(_RANDOM_BYTES)
        )

    @classmethod
    def of(cls, nonce: bytes) -> Incarnation:
        """The incarnation in the nonce of a HELLO."""
        end = _STARTED_BYTES + _COUNT_BYTES
        return cls(
            int.from_bytes(nonce[:_STARTED_BYTES], "big"),
            int.from_bytes(nonce[_STARTED_BYTES:end], "big"),
        )


class Incarnations:
    """Counts the incarnations of one process. The wall clock puts a restarted process later."""

    def __init__(self, clock: Clock) -> None:
        self._started = int(clock.wall() * _TICKS_PER_S) % (1 << 8 * _STARTED_BYTES)
        self._count = 0

    def next(self) -> Incarnation:
        self._count = (self._count + 1) % (1 << 8 * _COUNT_BYTES)
        return Incarnation(self._started, self._count)
