"""An attacker on the wire: never data, never a hang."""

from __future__ import annotations

from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import buckets, content, copy_spec, fill, route
from tests.gateway.wire_attacks import (
    HANDSHAKE,
    ORDER,
    POLYNOMIAL,
    TURNS,
    On,
    Turns,
    altering,
    flipped,
    in_mid_transfer,
    polynomial_added,
    raised,
    silent_from_now,
    stall_deadline_of,
)
from tests.gateway.wire_lab import PLACES, all_at_once, run_attacked
from tests.gateway.wire_layout import FIELDS, Field, uncovered_bytes
from tests.gateway.wire_proxy import WireProxy

from skyplane_gateway.protocol.messages import MessageType

# An attacker on the wire alters each field of each message: never data, never a hang.


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
#: One case per type of message; of data and receipts, per reader.
SHORT = {
    *((kind, "lower") for kind in HANDSHAKE),
    *OPAQUE,
    (MessageType.DATA, "relay"),
    (MessageType.RECEIPT, "relay"),
    (MessageType.GOODBYE, "relay"),
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
    fleet_of: Any, kind: MessageType, place: str, turns: str, change: str
) -> None:
    """An altered message costs a retry; where all are altered, the transfer may fail."""

    where = PLACES[place]
    stall_deadline_s = stall_deadline_of(kind) if turns == "every" else 20.0

    async def run(field: Field) -> None:
        attack = On(altering(field, CHANGES[change]), where.hop, TURNS[turns], kind)
        wanted = in_mid_transfer(attack, kind, where.hop)
        outcome = await run_attacked(
            fleet_of, wanted, place=where, stall_deadline_s=stall_deadline_s
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


# An attacker drops, repeats, delays, moves and forges messages: never data, never a hang.


#: An attack on two messages can exchange them.
TURNS_HERE: dict[str, Turns] = {"first two": lambda number: number < 2, "every": TURNS["every"]}
SHORT_ORDER = {
    (MessageType.DATA, "upper", "first two"),
    (MessageType.DATA, "relay", "first two"),
    (MessageType.DATA, "relay", "every"),
    (MessageType.RECEIPT, "lower", "first two"),
    (MessageType.RECEIPT, "relay", "first two"),
    (MessageType.RECEIPT, "relay", "every"),
    *((kind, "lower", "first two") for kind in HANDSHAKE),
}
#: A neighbour that ends in good order after its HELLO is not dialed again.
ENDS_A_PATH = "behind a goodbye DONE"
#: The reason of a forged GOODBYE makes a difference only while messages can still come.
ONCE = {ENDS_A_PATH, *(name for name in ORDER if not name.startswith("behind a goodbye"))}


def order_cases() -> list[Any]:
    return [
        pytest.param(
            *case,
            marks=() if case in SHORT_ORDER else pytest.mark.long,
            id="-".join((case[0].name, *case[1:])),
        )
        for case in (
            (kind, place, turns)
            for kind in (*HANDSHAKE, MessageType.DATA, MessageType.RECEIPT)
            for place in PLACES
            for turns in TURNS_HERE
        )
        if not (case[0] in HANDSHAKE and case[1] == "relay")
    ]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "place", "turns"), order_cases())
async def test_messages_are_moved_and_forged(
    fleet_of: Any, kind: MessageType, place: str, turns: str
) -> None:
    where = PLACES[place]

    async def run(name: str) -> None:
        ends_path = name == ENDS_A_PATH and kind not in HANDSHAKE
        may_fail = ends_path or turns == "every"
        attack = On(ORDER[name](), where.hop, TURNS_HERE[turns], kind)
        wanted = in_mid_transfer(attack, kind, where.hop)
        stall_deadline_s = stall_deadline_of(kind) if may_fail else 20.0
        outcome = await run_attacked(
            fleet_of, wanted, place=where, stall_deadline_s=stall_deadline_s
        )
        assert attack.times > 0
        assert may_fail or outcome.state == "succeeded"

    names = [name for name in ORDER if name in ONCE or (kind not in HANDSHAKE and turns != "every")]
    await all_at_once((name, run(name)) for name in names)


@pytest.mark.parametrize("place", ["upper", "lower", "direct"])
async def test_a_connection_that_takes_everything_and_brings_nothing(
    fleet_of: Any, place: str
) -> None:
    attack = silent_from_now()
    await run_attacked(fleet_of, attack, place=PLACES[place], stall_deadline_s=0.3)


async def test_without_encryption_the_same_attack_changes_objects(fleet_of: Any) -> None:
    """The attack is real: this is why a fleet encrypts."""
    source, destination = buckets({"key": bytes(1000)})
    attack = On(polynomial_added, ("r", "b"), TURNS["every"], MessageType.DATA)
    proxy = WireProxy(attack)
    async with fleet_of(route(0, "a", "r", "b"), wire=proxy) as fleet:
        status = await fleet.run(copy_spec(source, destination))
        assert status["state"] == "succeeded"
    assert content(destination) == {"key": bytes(995) + POLYNOMIAL.to_bytes(5, "little")}
    assert b"key" in proxy.seen


@pytest.mark.parametrize("kind", [MessageType.DATA, MessageType.RECEIPT])
async def test_a_path_that_alters_messages_is_left_for_an_honest_one(
    fleet_of: Any, kind: MessageType
) -> None:
    source, destination = buckets()
    objects = {f"key-{number}": bytes([number]) * 4096 for number in range(24)}
    fill(source, objects)
    tag = next(field for field in FIELDS if str(field) == f"{kind.name}-tag")
    attack = On(altering(tag, flipped), ("r", "b"), TURNS["every"], kind)
    routes = route(0, "a", "r", "b"), route(1, "a", "s", "b")
    deadlines = {"ack_deadline_s": 0.5, "stall_deadline_s": 20.0}
    async with fleet_of(*routes, wire=WireProxy(attack), **deadlines) as fleet:
        spec = copy_spec(source, destination, chunk_bytes=4096)
        status = await fleet.run(spec, is_encrypted=True)
    assert (status["error"], status["copied"]) == (None, 24)
    assert attack.times > 0
    assert content(destination) == objects
