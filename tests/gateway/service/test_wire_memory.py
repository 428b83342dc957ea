"""What an attacker on the wire can make a gateway keep in memory."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.wire_attacks import TURNS, On, in_mid_transfer
from tests.gateway.wire_lab import PLACES, run_attacked
from tests.gateway.wire_proxy import Message, Pipe

from skyplane_gateway.protocol import WIRE_VERSION, GoodbyeReason
from skyplane_gateway.protocol.messages import (
    MAX_BYTES,
    PREFIX_BYTES,
    MessageType,
    unpack_goodbye,
)

pytestmark = pytest.mark.usefixtures("small_frames")

#: Lengths beyond the limit of every type: 4 GiB, and one byte too many for the largest.
LENGTHS = (0xFFFF_FFFF, max(MAX_BYTES.values()) - PREFIX_BYTES + 1)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (MessageType.HELLO, "lower"),
        (MessageType.CHALLENGE, "lower"),
        (MessageType.PROOF, "lower"),
        (MessageType.DATA, "relay"),
        (MessageType.RECEIPT, "relay"),
    ],
)
async def test_a_forged_length_is_refused_with_the_prefix(
    fleet_of: Any, kit: Any, kind: MessageType, place: str, length: int
) -> None:
    """The gateway answers the eight bytes at once: it waits for no more and keeps no room."""
    where = PLACES[place]
    refused: set[Pipe] = set()

    def forge(message: Message) -> None:
        refused.add(message.pipe)
        prefix = bytes([kind, 0]) + WIRE_VERSION.to_bytes(2, "big") + length.to_bytes(4, "big")
        message.pipe.send(prefix)

    reasons: list[GoodbyeReason] = []
    forging = On(forge, where.hop, TURNS["first"], kind)

    def attack(message: Message) -> None:
        if message.pipe in refused:
            return  # Not one byte follows.
        if message.pipe.back in refused and message.kind is MessageType.GOODBYE:
            reasons.append(unpack_goodbye(message.body)[0])
        forging(message)

    wanted = in_mid_transfer(attack, kind, where.hop)
    outcome = await run_attacked(fleet_of, kit, wanted, place=where)
    assert outcome.state == "succeeded"
    assert reasons[:1] == [GoodbyeReason.PROTOCOL_ERROR]
