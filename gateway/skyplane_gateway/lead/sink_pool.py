"""Sink gateways as the lead calls them: any sink that answers runs a verb on the destination."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.errors import (
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StoreUnavailable,
    Throttled,
    UnknownTransfer,
)
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.source.chunk_orders import ChunkState

log = logging.getLogger(__name__)

#: Time limit of a verb that is tried once, at the end of a transfer.
_ONCE_WITHIN_S: Final = 15.0

#: After these errors the sink may have run the verb, or may still run it.
_MAYBE_DONE: Final = (GatewayUnreachable, StoreUnavailable, Throttled, asyncio.CancelledError)

#: The sink does not answer, or does not serve this lead.
_NO_ANSWER: Final = (GatewayUnreachable, UnknownTransfer)


@dataclass(frozen=True, slots=True)
class SinkPeer:
    """A gateway that writes at the destination; the lead's own may be one.

    Attributes:
        call: runs a verb of `Destination.run` there; every call may be repeated. Raises
            GatewayUnreachable when the sink does not answer, UnknownTransfer or StaleEpoch when
            it does not serve this lead, and StoreError as its store says.
    """

    node: str
    call: Callable[[str, Mapping[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

    async def chunks(self, **arguments: Any) -> list[ChunkState]:
        """Chunks that it has whole and has not written; see `TransferSides.store_verb`."""
        answer = await self.call("chunks", arguments)
        return [ChunkState(*row) for row in answer["chunks"]]


def remote_sink(node: str, client: ControlClient, transfer_key: str, epoch: int) -> SinkPeer:
    """A sink behind its control API."""

    async def call(verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(client.store_verb, transfer_key, epoch, verb, arguments)

    return SinkPeer(node, call)


class SinkPool:
    """The sinks of a transfer; they take turns.

    Args:
        stall_deadline_s: how long a verb is tried while no sink answers.

    Attributes:
        lost: sinks that did not answer their last call -> why.
        unanswered_creates: key -> time of the first request for an upload that had no answer.
        verbs_in_flight: how many verbs wait for an answer.
    """

    def __init__(
        self, peers: Sequence[SinkPeer], *, stall_deadline_s: float, retries: Retries
    ) -> None:
        self._peers = tuple(peers)
        self._stall_deadline_s = stall_deadline_s
        self._retries = retries
        self._turn = 0
        #: When a sink last answered, be it with an error of its store.
        self._answered_s = 0.0
        #: Sinks that have said that they are ending.
        self._leaving: set[str] = set()
        self.lost: dict[str, str] = {}
        self.unanswered_creates: dict[str, float] = {}
        self.verbs_in_flight = 0

    @property
    def count(self) -> int:
        """Sinks of the transfer, lost ones included."""
        return len(self._peers)

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Run a verb at a sink, with retries.

        Raises:
            GatewayLost: no sink has answered for the stall deadline, or all are ending.
            UnknownTransfer, StaleEpoch: the sinks do not serve this lead.
            StoreError: as the store says.
        """
        loop = asyncio.get_running_loop()
        began_s, attempt = loop.time(), 0
        self.verbs_in_flight += 1
        try:
            while True:
                attempt += 1
                refusals: list[SkyplaneError] = []
                for peer in self._in_turn():
                    answer = await self._call_peer(peer, verb, arguments, refusals)
                    if answer is not None:
                        return answer
                if len(refusals) == len(self._peers):
                    raise refusals[0]
                if len(self._leaving) == len(self._peers):
                    raise GatewayLost(f"every sink gateway has left ({self._reasons()})")
                if loop.time() - max(began_s, self._answered_s) >= self._stall_deadline_s:
                    raise GatewayLost(
                        f"no sink has answered within {self._stall_deadline_s:g} s"
                        f" ({self._reasons()})"
                    )
                await self._retries.pause(attempt)
        finally:
            self.verbs_in_flight -= 1

    async def try_call(self, verb: str, arguments: Mapping[str, Any]) -> bool:
        """Run a verb at any sink that answers, without retries; whether a sink ran it.

        Skips sinks that did not answer their last call: at the end of a transfer there may be
        many such calls.
        """
        for peer in self._in_turn():
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

    async def _call_peer(
        self, peer: SinkPeer, verb: str, arguments: Mapping[str, Any], refusals: list[SkyplaneError]
    ) -> dict[str, Any] | None:
        """The sink's answer; None when it does not answer, or does not serve this lead."""
        try:
            answer = await self._retries.run(lambda: self._call_noted(peer, verb, arguments))
        except _NO_ANSWER as error:
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

    async def _call_noted(
        self, peer: SinkPeer, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Call once; note when it answered, and creations that may happen unseen."""
        loop = asyncio.get_running_loop()
        called_s = loop.time()
        try:
            answer = await peer.call(verb, arguments)
        except (SkyplaneError, asyncio.CancelledError) as error:
            may_be_done = isinstance(error, _MAYBE_DONE) and not isinstance(error, GatewayDraining)
            if verb == "create" and may_be_done:
                self.unanswered_creates.setdefault(arguments["key"], called_s)
            if isinstance(error, SkyplaneError) and not isinstance(error, _NO_ANSWER):
                self._answered_s = loop.time()
            raise
        self._answered_s = loop.time()
        return answer

    def _in_turn(self) -> list[SinkPeer]:
        """Each sink first in its turn; lost sinks last."""
        self._turn = (self._turn + 1) % len(self._peers)
        peers = [*self._peers[self._turn :], *self._peers[: self._turn]]
        return sorted(peers, key=lambda peer: peer.node in self.lost)

    def _reasons(self) -> str:
        return "; ".join(
            f"sink gateway {node} is lost: {reason}" for node, reason in self.lost.items()
        )
