"""An attacker on the wire alters each field of each message: never data, never a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.wire_attacks import altering, every, first, flipped, later, on, raised
from tests.gateway.wire_lab import DIRECT, RELAYED, run_attacked
from tests.gateway.wire_layout import FIELDS, Field, uncovered_bytes
from tests.gateway.wire_proxy import Attack, Hop, Message

from skyplane_gateway.protocol.messages import MessageType

pytestmark = pytest.mark.usefixtures("small_frames")

UPPER, LOWER, WHOLE = ("a", "r"), ("r", "b"), DIRECT
_HANDSHAKE = (MessageType.HELLO, MessageType.CHALLENGE, MessageType.PROOF)

Change = Callable[[bytes], bytes]


@pytest.mark.parametrize("kind", MessageType)
def test_every_byte_of_every_message_belongs_to_a_field(kind: MessageType) -> None:
    """A field that nobody attacks would fail here."""
    assert uncovered_bytes(kind) == 0
    assert [field for field in FIELDS if field.kind is kind] != []


def attack_on(field: Field, change: Change, hop: Hop, turns: Callable[[int], bool]) -> Attack:
    altered = on(field.kind, altering(field, change), hop=hop, turns=turns)
    if field.kind is not MessageType.GOODBYE:
        return altered
    # A gateway says GOODBYE in mid-transfer to one that breaks the protocol.
    fleet = next(f for f in FIELDS if str(f) == "DATA-fleet")
    spoiled = altering(fleet, flipped)

    def attack(message: Message) -> None:
        is_first = message.kind is MessageType.DATA and message.number == 0
        if is_first and message.pipe.hop == hop:
            spoiled(message)
        else:
            altered(message)

    return attack


CASES = [
    pytest.param(field, hop, id=f"{field}-{'-'.join(hop)}")
    for field in FIELDS
    for hop in ((UPPER, LOWER) if field.is_outer else (LOWER,))
]


@pytest.mark.parametrize(("field", "hop"), CASES)
async def test_one_altered_message_costs_a_retry(
    fleet_of: Any, kit: Any, field: Field, hop: Hop
) -> None:
    outcome = await run_attacked(
        fleet_of,
        kit,
        attack_on(field, flipped, hop, first),
        is_attacked_at_start=field.kind in _HANDSHAKE,
    )
    assert outcome.state == "succeeded"
