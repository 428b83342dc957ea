"""Dialling neighbours, again and again, for as long as the lane is to stand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, Protocol

from skyplane_gateway.clock import Clock
from skyplane_gateway.protocol import (
    Connection,
    Established,
    FrameHeader,
    Identity,
    ReceiptHeader,
)
from skyplane_gateway.retry import RetryPolicy
from skyplane_gateway.transport.incarnation import Incarnation, Incarnations
from skyplane_gateway.transport.link import HELLO_TIMEOUT_S, Link, LinkOwner
from skyplane_gateway.transport.route import Hop, Lane

#: The first pause is short, since most connections come back at once; the longest limits how
#: late the return of a neighbour is noticed. Dialling never gives up.
DIAL_RETRY: Final = RetryPolicy(first_pause_s=0.05, longest_pause_s=10.0)

#: A connection that stood this long has worked: its next failure is a first one.
STABLE_S: Final = 1.0


class DialOwner(LinkOwner, Protocol):
    """Who is also told what comes of dialling."""

    def dialled(self, link: Link, lane: Lane, hop: Hop, incarnation: Incarnation) -> None:
        """A connection that was dialled for that incarnation is established."""

    def dial_failed(self, lane: Lane, hop: Hop, reason: str) -> None:
        """One try did not succeed; the next one follows."""


class Dialler:
    """Builds the connections of the hops that this gateway dials.

    Args:
        identity: what is proven in the hello.
        owner: told what comes of it.
        make_link: binds a connection to its owner.
        clock: its wall time tells incarnations apart; see `incarnation`.
        rng: nonces, and jitter of the pauses.
    """

    def __init__(
        self,
        identity: Identity,
        owner: DialOwner,
        make_link: Callable[[Connection, LinkOwner], Link],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._identity = identity
        self._owner = owner
        self._make_link = make_link
        self._incarnations = Incarnations(clock)
        self._rng = rng

    def begin(self, lane: Lane, hop: Hop, local_host: str, delay_s: float) -> None:
        """Dial all connections of a hop afresh; `Lane.tear_down` ends it."""
        hop.incarnation = self._incarnations.next()
        for _ in range(hop.wanted):
            dial = self._dial(lane, hop, hop.incarnation, local_host, delay_s)
            task = asyncio.get_running_loop().create_task(dial)
            lane.dials.add(task)
            task.add_done_callback(lane.dials.discard)

    def pause_s(self, setbacks: int) -> float:
        return DIAL_RETRY.pause_s(setbacks + 1, self._rng)

    async def _dial(
        self, lane: Lane, hop: Hop, incarnation: Incarnation, local_host: str, delay_s: float
    ) -> None:
        loop = asyncio.get_running_loop()
        setbacks = 0
        await asyncio.sleep(delay_s)
        while True:
            began_s = loop.time()
            reason = await self._try(lane, hop, incarnation, local_host)
            if reason is None:
                return
            self._owner.dial_failed(lane, hop, reason)
            # A try that took long, such as one that waited for an answer, is a pause itself.
            setbacks = 0 if loop.time() - began_s >= STABLE_S else setbacks + 1
            await asyncio.sleep(self.pause_s(setbacks))

    async def _try(
        self, lane: Lane, hop: Hop, incarnation: Incarnation, local_host: str
    ) -> str | None:
        """Connect once; None when it is established, else why not."""
        connection = Connection.dial(
            self._identity,
            route=lane.number,
            side=hop.side,
            nonce=incarnation.nonce(self._rng.randbytes),
            expected_peer=hop.peer,
        )
        owner = _Dialled(self._owner, lane, hop, incarnation)
        link = self._make_link(connection, owner)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: link, *hop.address, local_addr=(local_host, 0)
                )
            await owner.settled.wait()
        except TimeoutError:
            return f"no connection within {HELLO_TIMEOUT_S:g} s"
        except OSError as error:
            return str(error)
        finally:
            # Also where the lane was torn down meanwhile, which cancels this.
            if not owner.is_established:
                link.abort("not needed any more")
        return None if owner.is_established else owner.reason


class _Dialled:
    """The owner of a link that this gateway dialled: tells the dialler how it went."""

    def __init__(self, owner: DialOwner, lane: Lane, hop: Hop, incarnation: Incarnation) -> None:
        self._owner = owner
        self._lane = lane
        self._hop = hop
        self._incarnation = incarnation
        self.settled = asyncio.Event()
        self.is_established = False
        self.reason = ""

    def link_greeted(self, link: Link) -> bool:
        return self._owner.link_greeted(link)

    def link_established(self, link: Link, event: Established) -> None:
        self.is_established = True
        self.settled.set()
        self._owner.dialled(link, self._lane, self._hop, self._incarnation)

    def link_frame(self, link: Link, header: FrameHeader, sealed: memoryview) -> None:
        self._owner.link_frame(link, header, sealed)

    def link_receipt(self, link: Link, header: ReceiptHeader, sealed: memoryview) -> None:
        self._owner.link_receipt(link, header, sealed)

    def link_writable(self, link: Link) -> None:
        self._owner.link_writable(link)

    def link_lost(self, link: Link, reason: str) -> None:
        self.reason = reason
        self.settled.set()
        self._owner.link_lost(link, reason)
