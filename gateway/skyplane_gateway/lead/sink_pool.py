"""Verbs on the destination, at whichever sink answers."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from skyplane_gateway.errors import (
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.lead.peers import SinkPeer
from skyplane_gateway.lead.retry import patiently, pause_s

log = logging.getLogger(__name__)

#: At the end of a transfer a sink has so long for a verb; somebody waits for the end.
_ONCE_WITHIN_S: Final = 15.0

#: After these a verb may have been carried out, or may be yet.
_MAYBE_DONE: Final = (GatewayUnreachable, StoreUnavailable, asyncio.CancelledError)

_NO_ANSWER: Final = (GatewayUnreachable, UnknownTransfer)


class Sinks:
    """The sinks of a transfer, one as good as another.

    Args:
        peers: at least one.
        stall_deadline_s: how long a verb is tried while no sink answers.
        rng: of the pauses.
    """

    def __init__(
        self, peers: Sequence[SinkPeer], *, stall_deadline_s: float, rng: random.Random
    ) -> None:
        self._peers = tuple(peers)
        self._stall_deadline_s = stall_deadline_s
        self._rng = rng
        self._turn = 0
        #: When a sink last answered anything: also that its store throttles.
        self._answered_s = 0.0
        #: Sinks that did not answer when they were last asked, and what became of it.
        self.lost: dict[str, str] = {}
        #: Sinks that have said that they are ending.
        self._leaving: set[str] = set()
        #: Keys for which an upload may have begun that nobody was told of, and when the
        #: first of them was asked for.
        self.doubtful_keys: dict[str, float] = {}
        self.verbs_under_way = 0

    async def call(
        self, verb: str, arguments: Mapping[str, Any], *, prefer: str = ""
    ) -> tuple[dict[str, Any], str]:
        """Run a verb, with patience where that can help; its answer, and who gave it.

        Args:
            prefer: the sink to ask first; by default they take turns.

        Raises:
            GatewayLost: no sink has answered for the stall deadline, or all are ending.
            UnknownTransfer, StaleEpoch: the sinks do not work for this lead.
            StoreError: as the store says.
        """
        loop = asyncio.get_running_loop()
        began_s, attempt = loop.time(), 0
        self.verbs_under_way += 1
        try:
            while True:
                attempt += 1
                refusals: list[SkyplaneError] = []
                for peer in self._in_order(prefer):
                    answer = await self._ask(peer, verb, arguments, refusals)
                    if answer is not None:
                        return answer, peer.node
                if len(refusals) == len(self._peers):
                    raise refusals[0]
                if len(self._leaving) == len(self._peers):
                    raise GatewayLost(f"every sink gateway has left ({self._reasons()})")
                if loop.time() - max(began_s, self._answered_s) >= self._stall_deadline_s:
                    raise self._silence()
                await asyncio.sleep(pause_s(attempt, self._rng))
        finally:
            self.verbs_under_way -= 1

    async def call_once(self, verb: str, arguments: Mapping[str, Any], *, prefer: str = "") -> bool:
        """Run a verb at any sink that answers, without patience; whether one did it.

        A sink that did not answer is not asked again: there may be many such calls, and
        somebody waits for the last of them.
        """
        for peer in self._in_order(prefer):
            if peer.node in self.lost:
                continue
            try:
                async with asyncio.timeout(_ONCE_WITHIN_S):
                    await peer.call(verb, arguments)
            except TimeoutError:
                self.lost[peer.node] = f"no answer within {_ONCE_WITHIN_S:g} s"
                log.warning("%s could not %s: %s", peer.node, verb, self.lost[peer.node])
            except SkyplaneError as error:
                log.warning("%s could not %s: %s", peer.node, verb, error)
                if isinstance(error, GatewayUnreachable):
                    self.lost[peer.node] = error.message
            else:
                return True
        return False

    async def _ask(
        self,
        peer: SinkPeer,
        verb: str,
        arguments: Mapping[str, Any],
        refusals: list[SkyplaneError],
    ) -> dict[str, Any] | None:
        """The sink's answer; None when it does not answer, or refuses to work for us."""
        try:
            answer = await patiently(lambda: self._answer(peer, verb, arguments), self._rng)
        except (GatewayUnreachable, UnknownTransfer) as error:
            log.warning("sink gateway %s is lost: %s", peer.node, error)
            self.lost[peer.node] = error.message
            if isinstance(error, UnknownTransfer):
                refusals.append(error)
            if isinstance(error, GatewayDraining):
                self._leaving.add(peer.node)
            return None
        self.lost.pop(peer.node, None)
        self._leaving.discard(peer.node)
        return answer

    async def _answer(
        self, peer: SinkPeer, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        try:
            answer = await peer.call(verb, arguments)
        except (SkyplaneError, asyncio.CancelledError) as error:
            may_be_done = isinstance(error, _MAYBE_DONE) and not isinstance(error, GatewayDraining)
            if verb == "create" and may_be_done:
                self.doubtful_keys.setdefault(arguments["key"], asked_s)
            # A sink that does not work for us is as good as none.
            if isinstance(error, SkyplaneError) and not isinstance(error, _NO_ANSWER):
                self._answered_s = loop.time()
            raise
        self._answered_s = loop.time()
        return answer

    def _in_order(self, prefer: str) -> list[SinkPeer]:
        """Silent ones last; else the preferred one first, or each in its turn."""
        count = len(self._peers)
        if not prefer:
            self._turn += 1
        turn = self._turn % count
        peers = [*self._peers[turn:], *self._peers[:turn]]
        return sorted(peers, key=lambda peer: (peer.node in self.lost, peer.node != prefer))

    def _silence(self) -> GatewayLost:
        return GatewayLost(
            f"no sink has answered within {self._stall_deadline_s:g} s ({self._reasons()})"
        )

    def _reasons(self) -> str:
        return "; ".join(
            f"sink gateway {node} is lost: {reason}" for node, reason in self.lost.items()
        )
