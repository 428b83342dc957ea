"""An attacker on the wire alters each field of each message: never data, never a hang."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.wire_attacks import (
    HANDSHAKE,
    TURNS,
    On,
    altering,
    flipped,
    in_mid_transfer,
    raised,
    stall_deadline_of,
)
from tests.gateway.wire_lab import PLACES, all_at_once, run_attacked
from tests.gateway.wire_layout import FIELDS, Field, uncovered_bytes

from skyplane_gateway.protocol.messages import MessageType

pytestmark = pytest.mark.usefixtures("small_frames")

CHANGES = {"flipped": flipped, "raised": raised}
#: What a relay does not read, it does not notice either: its neighbour at the end does.
OPAQUE = {(MessageType.DATA, "upper"), (MessageType.RECEIPT, "lower")}
ALL = [
    (kind, place, turns, change)
    for kind in MessageType
    for place in PLACES
    for turns in TURNS
    for change in CHANGES
    # In a relay's place its own handshakes are honest.
    if not (kind in HANDSHAKE and place == "relay")
]
#: One case per type of message and reader of it.
SHORT = {
    *((kind, place) for kind in HANDSHAKE for place in ("upper", "lower")),
    *OPAQUE,
    (MessageType.DATA, "relay"),
    (MessageType.RECEIPT, "relay"),
    (MessageType.GOODBYE, "relay"),
    (MessageType.GOODBYE, "upper"),
}


@pytest.mark.parametrize("kind", MessageType)
def test_every_byte_of_every_message_belongs_to_a_field(kind: MessageType) -> None:
    """A field that nobody attacks would fail here."""
    assert uncovered_bytes(kind) == 0
    assert [field for field in FIELDS if field.kind is kind] != []


def cases() -> list[Any]:
    return [
        pytest.param(
            *case,
            marks=()
            if case[:2] in SHORT and case[2:] == ("first", "flipped")
            else pytest.mark.long,
            id="-".join((case[0].name, *case[1:])),
        )
        for case in ALL
    ]


@pytest.mark.parametrize(("kind", "place", "turns", "change"), cases())
async def test_each_field_of_a_message_is_altered(
    fleet_of: Any, kit: Any, kind: MessageType, place: str, turns: str, change: str
) -> None:
    """An altered message costs a retry; where all are altered, the transfer may fail."""

    where = PLACES[place]
    stall_deadline_s = stall_deadline_of(kind) if turns == "every" else 20.0

    async def run(field: Field) -> None:
        attack = On(altering(field, CHANGES[change]), where.hop, TURNS[turns], kind)
        wanted = in_mid_transfer(attack, kind, where.hop)
        outcome = await run_attacked(
            fleet_of, kit, wanted, place=where, stall_deadline_s=stall_deadline_s
        )
        assert attack.times > 0
        if kind in HANDSHAKE:
            # A dialer sends frames behind its PROOF; an acceptor that refuses it takes none.
            assert not any(connection.receipts for connection in attack.connections)
        if turns != "every":
            assert outcome.state == "succeeded"

    is_opaque = (kind, place) in OPAQUE
    await all_at_once(
        (str(field), run(field))
        for field in FIELDS
        if field.kind is kind and (field.is_outer or not is_opaque)
    )
