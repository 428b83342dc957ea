"""Dials neighbours, and retries for as long as the route is in the topology."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.transport.incarnation import Incarnation, Incarnations
from skyplane_gateway.transport.link import HELLO_TIMEOUT_S, Link
from skyplane_gateway.transport.route import Hop, LocalRoute

#: The first pause is short, because most connections come back at once. The longest limits
#: how late the return of a neighbour is noticed. Dialing never gives up.
DIAL_RETRY: Final = RetryPolicy(first_pause_s=0.05, longest_pause_s=10.0)

#: A connection that lasted this long has worked: its next failure is a first one.
STABLE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Dial:
    """What a connection is dialed for."""

    route: LocalRoute
    hop: Hop
    incarnation: Incarnation


class Dialer:
    """Opens the connections of the hops that this gateway dials.

    Args:
        on_failure: called after every attempt that fails; the next attempt follows.
        clock: its wall time orders incarnations; see `incarnation`.

    Attributes:
        pending: links that are not established yet. The owner of a link removes it.
    """

    def __init__(
        self,
        identity: Identity,
        make_link: Callable[[Connection], Link],
        on_failure: Callable[[LocalRoute, Hop, str], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._identity = identity
        self._make_link = make_link
        self._on_failure = on_failure
        self._incarnations = Incarnations(clock)
        self._rng = rng
        self.pending: dict[Link, Dial] = {}

    def start(self, route: LocalRoute, hop: Hop, local_host: str, delay_s: float) -> None:
        """Dial all connections of a hop; `LocalRoute.tear_down` cancels it."""
        hop.incarnation = self._incarnations.next()
        dial = Dial(route, hop, hop.incarnation)
        for _ in range(hop.connections):
            work = self._dial(dial, local_host, delay_s)
            task = asyncio.get_running_loop().create_task(work)
            route.dials.add(task)
            task.add_done_callback(route.dials.discard)

    def pause_s(self, failures: int) -> float:
        return DIAL_RETRY.pause_s(failures + 1, self._rng)

    async def _dial(self, dial: Dial, local_host: str, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        await asyncio.sleep(delay_s)
        while True:
            began_s = loop.time()
            reason = await self._attempt(dial, local_host)
            if reason is None:
                return
            self._on_failure(dial.route, dial.hop, reason)
            # A long attempt, such as one that waited for an answer, is a pause itself.
            failures = 0 if loop.time() - began_s >= STABLE_S else failures + 1
            await asyncio.sleep(self.pause_s(failures))

    async def _attempt(self, dial: Dial, local_host: str) -> str | None:
        """Connect once; None when the connection is established, else the reason."""
        connection = Connection.dial(
            self._identity,
            route=dial.route.number,
            side=dial.hop.side,
            nonce=dial.incarnation.nonce(self._rng),
            expected_peer=dial.hop.peer,
        )
        link = self._make_link(connection)
        self.pending[link] = dial
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: link, *dial.hop.address, local_addr=(local_host, 0)
                )
            await link.settled.wait()
        except TimeoutError:
            return f"no connection within {HELLO_TIMEOUT_S:g} s"
        except OSError as error:
            return str(error)
        finally:
            # `tear_down` cancels this task, perhaps in the middle of a handshake.
            if self.pending.pop(link, None) is not None:
                link.abort("not needed any more")
        return None if link.established is not None else link.end_reason
