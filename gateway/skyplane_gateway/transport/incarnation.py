"""Which connections belong together: the incarnation of a hop, as its dialer counts it.

When a connection breaks, the whole lane is built again, and its acceptor may hear of
the new connections before it hears that the old ones are gone: they are different TCP
connections, nothing orders them. So the dialer says which incarnation each one is of.
It stands in the HELLO's nonce, which both sides prove to have seen:

    started u48 | count u24 | random, 7 bytes

`started` is when the dialing process began (1/65536 s since 1970), `count` how many
incarnations it has begun since. Seven random bytes are enough: a nonce must not be
foreseen, and nobody asks a gateway for 2**56 proofs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.clock import Clock
from skyplane_gateway.protocol.limits import NONCE_BYTES

_STARTED_BYTES: Final = 6
_COUNT_BYTES: Final = 3
_TICKS_PER_S: Final = 1 << 16
_RANDOM_BYTES: Final = NONCE_BYTES - _STARTED_BYTES - _COUNT_BYTES


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One building of a hop's connections; of two, the later one is greater."""

    started: int
    count: int

    def nonce(self, random: Callable[[int], bytes]) -> bytes:
        """A fresh nonce for one connection of this incarnation; `random` gives random bytes."""
        return (
            self.started.to_bytes(_STARTED_BYTES, "big")
            + self.count.to_bytes(_COUNT_BYTES, "big")
            + random(_RANDOM_BYTES)
        )

    @classmethod
    def of(cls, nonce: bytes) -> Incarnation:
        """What the nonce of a HELLO says."""
        end = _STARTED_BYTES + _COUNT_BYTES
        return cls(
            int.from_bytes(nonce[:_STARTED_BYTES], "big"),
            int.from_bytes(nonce[_STARTED_BYTES:end], "big"),
        )


class Incarnations:
    """Counts those of one process.

    Args:
        clock: its wall time, so that a process is later than the one before it.
    """

    def __init__(self, clock: Clock) -> None:
        self._started = int(clock.wall() * _TICKS_PER_S) % (1 << 8 * _STARTED_BYTES)
        self._count = 0

    def next(self) -> Incarnation:
        self._count = (self._count + 1) % (1 << 8 * _COUNT_BYTES)
        return Incarnation(self._started, self._count)
