"""What is behind a loss: gateways that do not answer, or gateways whose store does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from skyplane_gateway.errors import GatewayLost, SkyplaneError, StoreUnavailable
from skyplane_gateway.lead.peers import SinkPeer
from skyplane_gateway.objects import StoreSpec

log = logging.getLogger(__name__)

#: A sink that has not answered by then is no better than one that is gone.
_ASKED_WITHIN_S: Final = 5.0


async def behind(
    loss: GatewayLost, sinks: Sequence[SinkPeer], destination: StoreSpec, silent_s: float
) -> SkyplaneError:
    """The error that a transfer ends with when its gateways seem to be lost.

    Args:
        silent_s: a destination that takes a chunk for so long does not answer.

    Returns:
        `StoreUnavailable` where a sink answers and still waits for the destination to take
        what it has whole: other gateways would fare no better. Else the loss itself.
    """
    held = sum(await asyncio.gather(*(_unwritten(sink, silent_s) for sink in sinks)))
    if not held:
        return loss
    return StoreUnavailable(
        f"the destination {destination.place} does not answer; chunks waiting for it: {held}; "
        f"check that its gateway can reach it, then try again ({loss.message})"
    )


async def _unwritten(sink: SinkPeer, silent_s: float) -> int:
    try:
        async with asyncio.timeout(_ASKED_WITHIN_S):
            answer = await sink.call("waiting", {"for_s": silent_s})
    except (SkyplaneError, TimeoutError) as error:
        log.info("%s does not say what waits for its store: %r", sink.node, error)
        return 0
    return len(answer["chunks"])
